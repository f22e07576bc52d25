"""Read the metadata at the start of a GGUF file without loading the weights."""

from __future__ import annotations

import struct
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from ..errors import ModelUnknown
from ..values import record

_MAGIC: Final = b"GGUF"
_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_STRING_BYTES: Final = 16_000_000
_MAX_ITEMS: Final = 10_000_000


@record
class GgufWeights:
    """A file of weights: its name and, where the file says it, the context length it was trained for."""

    path: Path
    name: str
    context_tokens: int | None


def read_weights(path: Path) -> GgufWeights:
    """Return the path, name and context length of a GGUF file; raise ``ModelUnknown`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            found = _head(file)
    except (OSError, struct.error, ValueError, UnicodeDecodeError) as error:
        raise ModelUnknown(f"{path} is not a readable GGUF file: {error}") from error
    architecture = found.get("general.architecture")
    context: Any = found.get(f"{architecture}.context_length")
    return GgufWeights(path, path.stem, context if isinstance(context, int) and context > 0 else None)


def _head(file: BufferedReader) -> dict[str, Any]:
    """Return the metadata up to the context length, which comes before the long vocabulary list."""
    if file.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    (version,) = _read(file, "<I")
    if version < 2:
        raise ValueError(f"version {version} is too old")
    _, count = _read(file, "<QQ")
    found: dict[str, Any] = {}
    for _ in range(min(count, 10_000)):
        key = _string(file)
        (kind,) = _read(file, "<I")
        found[key] = _value(file, kind)
        if f"{found.get('general.architecture')}.context_length" in found:
            break
    return found


def _value(file: BufferedReader, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        item, length = _read(file, "<IQ")
        if length > _MAX_ITEMS:
            raise ValueError(f"a list of {length} items")
        for _ in range(length):
            _value(file, item)
        return None
    if kind not in _SCALARS:
        raise ValueError(f"a value of unknown kind {kind}")
    return _read(file, _SCALARS[kind])[0]


def _string(file: BufferedReader) -> str:
    (length,) = _read(file, "<Q")
    if length > _MAX_STRING_BYTES:
        raise ValueError(f"a text of {length} bytes")
    return _exactly(file, length).decode("utf-8", "replace")


def _read(file: BufferedReader, shape: str) -> tuple[Any, ...]:
    return struct.unpack(shape, _exactly(file, struct.calcsize(shape)))


def _exactly(file: BufferedReader, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ValueError("it ends too early")
    return data
