"""Embedders: a GGUF file in this process (extra ``local``), or an endpoint with OpenAI's ``/embeddings``.

The cosine of two unrelated texts is near 0 with some models and near 0.5 or 0.7 with others. So that one threshold fits
all of them, vectors are measured from the middle of sixty unrelated prompts. Half of these are general questions, half
concern the writer's own work, so the same prompts tell of a new one to which half it belongs.
"""

from __future__ import annotations

import importlib
import json
import os
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from math import sqrt
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

from ..digests import hex_of
from ..errors import ModelError, ModelUnavailable, ModelUnknown
from ..extras import needing
from ..ports import Embedder
from .failures import failure_of_exception, failure_of_status
from .gguf import read_weights

_TIMEOUT_SECONDS: Final = 10.0
_BATCH: Final = 64
_MOST_TOKENS: Final = 2_048
_MOST_CHARS: Final = 8_000


@lru_cache(maxsize=4)
def open_embedder(name: str) -> Embedder:
    """Return the embedder with a name: ``local:/path/model.gguf``, or an endpoint as ``https://host/v1#model``.

    The weights are loaded once in a process. Raise ``ModelUnknown`` if the name is neither.
    """
    provider, _, rest = name.partition(":")
    if provider == "local" and rest:
        return CentredEmbedder(LocalEmbedder(rest))
    if provider in ("http", "https"):
        return CentredEmbedder(EndpointEmbedder(name))
    raise ModelUnknown(f"embedder {name!r}: use local:/path/model.gguf, or an endpoint such as https://host/v1#model")


class CentredEmbedder:
    """An embedder whose vectors are measured from the middle of reference prompts, so that unrelated texts are unlike.

    The prompts are embedded once in a process, together with the first texts.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._means: tuple[list[float], list[float]] | None = None

    @property
    def name(self) -> str:
        """The name of the model with a digest of the reference prompts."""
        return f"{self._embedder.name}-{hex_of(self._prompts.encode())[:8]}"

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one vector of length 1 per text, in order."""
        if self._means is not None:
            return self._centred(self._embedder.vectors(texts))
        halves = [half.splitlines() for half in self._prompts.split("\n\n")]
        found = self._embedder.vectors([*halves[0], *halves[1], *texts])
        first, last = len(halves[0]), len(halves[0]) + len(halves[1])
        self._means = _mean(found[:first]), _mean(found[first:last])
        return self._centred(found[last:])

    def specificity(self, vector: Sequence[float]) -> float:
        """Return how far the vector of a prompt points from the general reference prompts to the others."""
        general, work = self._means or ((), ())
        direction = _unit([one - other for one, other in zip(work, general, strict=True)])
        return sum(value * part for value, part in zip(vector, direction, strict=False))

    @cached_property
    def _prompts(self) -> str:
        return files("reverie.models").joinpath("reference_prompts.txt").read_text("utf-8")

    def _centred(self, vectors: Sequence[array[float]]) -> list[array[float]]:
        general, work = self._means or ([], [])
        centre = [(one + other) / 2 for one, other in zip(general, work, strict=True)]
        return [_unit([value - middle for value, middle in zip(vector, centre, strict=True)]) for vector in vectors]


class LocalEmbedder:
    """A GGUF file of an embedding model, run by llama.cpp in this process; the first text loads it."""

    def __init__(self, path: str | Path) -> None:
        found = Path(path).expanduser()
        if not found.is_file():
            raise ModelUnknown(f"there is no file {found}: give the path of the GGUF file of an embedding model")
        self._weights = read_weights(found.absolute())
        self._server: Any = None
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The name of the file with its size, so that other weights under the same name give other vectors."""
        return f"local:{self._weights.name}:{self._weights.path.stat().st_size}"

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one vector per text; a text with too many tokens is cut in half until it fits."""
        with self._lock:
            if self._server is None:
                self._server = self._start()
        return [self._vector(text[:_MOST_CHARS] or " ") for text in texts]

    def _vector(self, text: str) -> array[float]:
        while True:
            reply: Any = self._server.handle_embeddings({"input": [text]})
            if "data" in reply:
                return _unit(reply["data"][0]["embedding"])
            problem = str(cast("Mapping[str, Any]", reply).get("error", reply))
            if "too large" not in problem or len(text) < 2:
                raise ModelUnavailable(f"{self.name}: llama.cpp gave no vector: {problem}")
            text = text[: len(text) // 2]

    def _start(self) -> Any:
        with needing("local", "xllamacpp is not installed", ModelUnknown):
            engine: Any = importlib.import_module("xllamacpp")
        params = engine.CommonParams()
        params.model.path = str(self._weights.path)
        params.embedding = True
        tokens = min(_MOST_TOKENS, self._weights.context_tokens or _MOST_TOKENS)
        params.n_ctx = params.n_batch = params.n_ubatch = tokens
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [os.urandom(16).hex()]
        params.ui = params.warmup = False
        params.verbosity = -1
        try:
            return engine.Server(params)
        except RuntimeError as error:
            raise ModelUnavailable(f"{self.name}: llama.cpp could not load it: {error}") from error


class EndpointEmbedder:
    """An endpoint that offers OpenAI's ``/embeddings``; the key is in ``OPENAI_API_KEY``, if it needs one."""

    def __init__(self, url: str, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._base, _, self._model = url.partition("#")
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        """The address of the endpoint and the name of its model."""
        return f"{self._base}#{self._model}"

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one vector per text, in batches; a text is cut after 8,000 characters."""
        found: list[array[float]] = []
        for at in range(0, len(texts), _BATCH):
            found += self._batch([text[:_MOST_CHARS] or " " for text in texts[at : at + _BATCH]])
        return found

    def _batch(self, texts: list[str]) -> list[array[float]]:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        body = {"input": texts, "encoding_format": "float", **({"model": self._model} if self._model else {})}
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        request = Request(f"{self._base.rstrip('/')}/embeddings", json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=self._timeout_seconds) as response:
                reply: Any = json.load(response)
            rows = sorted(reply["data"], key=lambda row: row["index"])
            found = [_unit(row["embedding"]) for row in rows]
        except HTTPError as error:
            raise failure_of_status(self.name, error.code, error.read(), dict(error.headers)) from error
        except (LookupError, TypeError, ValueError, HTTPException) as error:
            raise ModelUnavailable(f"{self.name}: its reply holds no vectors: {error!r}") from error
        except OSError as error:
            raise failure_of_exception(self.name, error) from error
        if len(found) != len(texts):
            raise ModelError(f"{self.name}: {len(texts)} texts gave {len(found)} vectors")
        return found


def _mean(vectors: Sequence[array[float]]) -> list[float]:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def _unit(values: Sequence[float]) -> array[float]:
    size = sqrt(sum(value * value for value in values)) or 1.0
    return array("f", [value / size for value in values])
