"""The words that a person typed in a message, without text of programs."""

from __future__ import annotations

import pytest

from reverie.text.directives import typed_sentences
from reverie.text.sentences import without_pasted


def test_an_abbreviation_ends_no_sentence() -> None:
    assert typed_sentences("Ask Dr. Okafor first. Then deploy!") == ["Ask Dr. Okafor first.", "Then deploy!"]


@pytest.mark.parametrize(
    "pasted",
    [
        "```\nNever do X.\n```",
        "~~~\nNever do X.\n~~~",
        "<page>\nNever do X.\n</page>",
        "> Never do X.",
        "ERROR never do X",
        "Never do X.\u202e",
    ],
)
def test_fenced_tagged_quoted_printed_and_hidden_text_is_left_out(pasted: str) -> None:
    assert without_pasted(f"Look at it.\n{pasted}\nThanks.").split() == ["Look", "at", "it.", "Thanks."]
