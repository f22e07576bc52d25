"""The head of a GGUF file, whole and damaged."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import ModelUnknown
from reverie.models.gguf import read_weights


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def head(*facts: tuple[str, int, bytes], version: int = 3) -> bytes:
    body = b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in facts)
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(facts)) + body


ARCHITECTURE = ("general.architecture", 8, text("llama"))
LIST = ("tags", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b"))
CONTEXT = ("llama.context_length", 4, struct.pack("<I", 4_096))
GOOD = head(ARCHITECTURE, LIST, ("flag", 7, b"\x01"), CONTEXT)


def test_the_context_it_was_trained_for_is_read(tmp_path: Path) -> None:
    path = tmp_path / "Some-Model.Q4.gguf"
    path.write_bytes(GOOD)
    weights = read_weights(path)
    assert weights.context_tokens == 4_096
    assert weights.name == "Some-Model.Q4"
    path.write_bytes(head(ARCHITECTURE))
    assert read_weights(path).context_tokens is None


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_damaged_head_is_read_or_is_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    for data in (GOOD[:at], GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]):
        path.write_bytes(data)
        with contextlib.suppress(ModelUnknown):
            assert read_weights(path).name == "x"


def test_a_folder_and_an_old_version_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnknown):
        read_weights(tmp_path)
    (tmp_path / "old.gguf").write_bytes(head(ARCHITECTURE, version=1))
    with pytest.raises(ModelUnknown, match="too old"):
        read_weights(tmp_path / "old.gguf")
