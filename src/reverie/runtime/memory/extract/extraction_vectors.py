"""Vectors of sentences for extraction; those of the package's reference sentences are kept in a file of the home.

The file holds nothing of the user. It begins with a digest of the model's name, the sentences and the vectors, so that
vectors of another model, of other sentences or of a damaged file are made again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....digests import hex_of
from ....errors import ModelError, ReverieError
from ....layers.l5_extract import Embed, reference_sentences
from ....paths import open_no_follow, replace_file
from ....ports import Embedder
from ....settings import Settings
from ...search.vectors import settings_embedder, vector_of

FILE_NAME: Final = "reference-vectors"
_DIGEST_CHARS: Final = 64
_MAX_BYTES: Final = 64 * 2**20


def settings_vectors(settings: Settings) -> Embed | None:
    """Return a function from texts to vectors by the embedder of the settings, None without one."""
    embedder = settings_embedder(settings)
    return ExtractionVectors(settings.home, embedder).vectors if embedder is not None else None


class ExtractionVectors:
    """Vectors by an embedder; the reference sentences are embedded once for a home."""

    def __init__(self, home: Path, embedder: Embedder) -> None:
        self._home, self._embedder = home, embedder
        self._sentences = reference_sentences().all
        self._known: dict[str, array[float]] = {}

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one vector per text.

        If the embedder fails, the vectors are empty and like no other, so that words alone decide.
        """
        try:
            if not self._known and not set(texts).isdisjoint(self._sentences):
                self._known = self._kept() or self._made()
            others = [text for text in dict.fromkeys(texts) if text not in self._known]
            made = dict(zip(others, self._embedder.vectors(others), strict=True)) if others else {}
        except ModelError:
            return [array("f") for _ in texts]
        return [self._known[text] if text in self._known else made[text] for text in texts]

    def _kept(self) -> dict[str, array[float]]:
        """Return the vectors in the file; none if it does not exist, is damaged, or is of another model."""
        with suppress(OSError), open(self._home / FILE_NAME, "rb", opener=open_no_follow) as stream:
            data = stream.read(_MAX_BYTES)
            kept = data[_DIGEST_CHARS:]
            if kept and data[:_DIGEST_CHARS] == self._digest(kept):
                size = len(kept) // len(self._sentences)
                parts = (kept[at : at + size] for at in range(0, len(kept), size))
                return dict(zip(self._sentences, map(vector_of, parts), strict=True))
        return {}

    def _made(self) -> dict[str, array[float]]:
        made = self._embedder.vectors(self._sentences)
        data = b"".join(vector.tobytes() for vector in made)
        with suppress(ReverieError, OSError):  # the file only saves time
            replace_file(str(self._home), FILE_NAME, self._digest(data) + data)
        return dict(zip(self._sentences, made, strict=True))

    def _digest(self, vectors: bytes) -> bytes:
        source = "\n".join((self._embedder.name, *self._sentences))
        return hex_of(source.encode() + b"\0" + vectors).encode()
