"""Texts are in plain English: the number of sentences in the old voice only falls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from plain_english import SOURCE, Sentence, is_old, old_sentences, sentences

import reverie
from reverie.cli.main import group

CEILING = 50
PAGES_CEILING = 5
"""Lower these numbers when there are fewer; never raise them."""


def help_texts(command: click.Command, path: str = "reverie") -> Iterator[tuple[str, str]]:
    """Yield the help of a command and of all its subcommands."""
    context = click.Context(command, info_name=path)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from help_texts(found, f"{path} {name}")


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Yield the docstring of every exported name and of its public methods and properties."""
    for name in reverie.__all__:
        thing: Any = getattr(reverie, name)
        yield name, inspect.getdoc(thing) or ""
        for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not attribute.startswith("_") and (callable(value) or isinstance(value, property)):
                yield f"{name}.{attribute}", inspect.getdoc(value) or ""


def old_in(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if is_old(sentence)]


@cache
def in_source() -> list[Sentence]:
    """Return every sentence of the source in the old voice."""
    return old_sentences(SOURCE)


@pytest.mark.slow
def test_the_number_of_sentences_in_the_old_voice_only_falls() -> None:
    found = [f"{one.path.relative_to(SOURCE)}:{one.line}: {one.text}" for one in in_source()]
    assert len(found) <= CEILING, "\n".join(found)


def test_hardly_a_sentence_of_the_pages_is_in_the_old_voice_except_in_dated_ones() -> None:
    root = SOURCE.parents[1]
    pages = [page for page in (root / "docs").rglob("*.md") if page.parent.name != "design"]
    found = old_sentences(root / "README.md", root / "CONTRIBUTING.md", *pages)
    listed = [f"{one.path.relative_to(root)}:{one.line}: {one.text}" for one in found]
    assert len(listed) <= PAGES_CEILING, "\n".join(listed)


def test_a_page_is_read_without_its_code_by_paragraphs_items_and_cells(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What it is\n\nIt says what\nit does.\n\n```\nwhat\n```\n- `what`\n- see who did it\n\n| a | who told |\n"
    )
    assert [one.line for one in old_sentences(page)] == [1, 3, 10, 12]


def test_no_help_text_is_in_the_old_voice() -> None:
    texts = dict(help_texts(group))
    assert len(texts) > 30
    assert {path: old for path, text in texts.items() if (old := old_in(text))} == {}


@pytest.mark.slow
def test_no_error_text_is_in_the_old_voice() -> None:
    found = [one for one in in_source() if one.kind == "error"]
    assert [f"{one.path.relative_to(SOURCE)}:{one.line}: {one.text}" for one in found] == []


def test_no_text_of_the_public_api_is_in_the_old_voice() -> None:
    texts = dict(public_docstrings())
    assert len(texts) > 60
    assert {name: old for name, text in texts.items() if (old := old_in(text))} == {}
    files = [SOURCE / name for name in ("__init__.py", "errors.py", "events.py", "ports.py")]
    assert [one.text for one in old_sentences(*files)] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "What stands before and beside the messages.",
        "Tell whoever listens something that happened.",
        "Return the files that would lose what they say.",
        "There is nobody to ask: give a model.",
        "One row a call in the ledger.",
        "A compaction can be taken back byte for byte.",
        "The user is told when it ends.",
        "Say who answers.",
    ],
)
def test_a_sentence_in_the_old_voice_is_found(sentence: str) -> None:
    assert old_in(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the token thresholds of a model's window.",
        "Layer 4 in a session: compact the past.",
        "Undo the last compaction, byte for byte.",
        "What failed?",
        "One row per call in the ledger.",
        "Users who have their own loop call ``what()``.",
    ],
)
def test_a_plain_sentence_is_left_alone(sentence: str) -> None:
    assert old_in(sentence) == []
