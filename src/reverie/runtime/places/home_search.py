"""Search all files of a home for texts, in parts and without following links."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PART_BYTES: Final = 1 << 20


def written_forms(text: str) -> list[str]:
    """Return the forms in which a file may hold a text: as it is, and as JSON or JSON inside JSON."""
    forms = [text]
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        forms += [once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]]
    return list(dict.fromkeys(forms))


def home_files(home: Path) -> Iterator[str]:
    """Yield the names of all files of a home, relative to it."""
    for folder, _, names in os.walk(home):
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), home)


def search_home(home: Path, forms: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each regular file of a home with those of the forms that its bytes hold."""
    wanted = {form.encode(errors="surrogatepass"): form for form in forms}
    for name in home_files(home):
        path = home / name
        if path.is_file() and not path.is_symlink():
            yield name, {wanted[one] for one in _found(path, wanted)}


def _found(path: Path, wanted: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    longest = max(map(len, wanted), default=1)
    with suppress(OSError), path.open("rb") as file:
        tail = b""
        while part := file.read(_PART_BYTES):
            data = tail + part
            found |= {one for one in wanted if one not in found and one in data}
            tail = data[len(data) - longest + 1 :] if longest > 1 else b""
    return found
