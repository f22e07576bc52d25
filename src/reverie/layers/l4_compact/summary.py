"""The text of a summary: the body from a model or from notes, and the parts that the program adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from ...conversation.side_query import thinks
from ...conversation.tokens.estimate import estimate_text
from ...model_facts import ModelFacts

OPENING: Final = (
    "This session goes on from an earlier part that is no longer in view. What follows stands in its place; the log "
    "still holds every word of it."
)
_GO_ON: Final = (
    "Go on with the work from where it stands, as if there had been no break: do not ask the user to repeat anything, "
    "do not mention this summary, and take up the last task."
)
_ANALYSIS: Final = re.compile(r"<analysis>.*?(?:</analysis>|(?=<summary>))", re.DOTALL | re.IGNORECASE)
_SUMMARY: Final = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS: Final = re.compile(r"</?(?:analysis|summary)>", re.IGNORECASE)


def may_draft(options: Mapping[str, Any], facts: ModelFacts) -> bool:
    """Say whether a model with these facts may be asked for a draft before its summary, under these options.

    A model that thinks has drafted already, and may refuse a prompt that asks for its reasoning.
    """
    return not (facts.thinking_by_default or thinks(options, facts))


def directive(method: str, *, quote: str = "", instructions: str = "", drafts: bool = False) -> str:
    """Return the prompt that asks a model for a summary by this method, with the user's instructions last.

    ``quote`` is the start of the message at which the methods ``from`` and ``up_to`` cut; ``drafts`` asks for a draft
    before the summary, which is thrown away.
    """
    parts = [prompt_text("full").replace("{draft}\n\n", f"{prompt_text('draft')}\n\n" if drafts else "")]
    if method in ("from", "up_to"):
        line = " ".join(quote.split())
        parts.append(prompt_text(method).replace("{quote}", line if len(line) <= 400 else f"{line[:397]}..."))
    if instructions.strip():
        parts.append(f"Instructions for this summary, which go before anything said above:\n\n{instructions.strip()}")
    return "\n\n".join(parts)


def summary_of(reply: str) -> str:
    """Return the summary in a model's reply, or all of it without tags, without its draft; may be empty."""
    found = _SUMMARY.search(_ANALYSIS.sub("", reply))
    if found is None and "<analysis>" in reply.lower() and "</analysis>" not in reply.lower():
        return ""  # the reply was cut off within its draft
    text = found.group(1) if found is not None else _ANALYSIS.sub("", reply)
    return _TAGS.sub("", text).strip()


def notes_text(sections: Mapping[str, str], *, section_tokens: int, total_tokens: int) -> str:
    """Return notes as text for a summary; a section over its budget is cut and says so, or is left out."""
    parts: list[str] = []
    left = total_tokens
    for heading, content in sections.items():
        content = content.strip()
        room = min(section_tokens, left)
        if not content or room < 16:
            continue
        if estimate_text(content) > room:
            content = f"{_head(content, room - 12)}\n[the rest of this section is in the session's notes]"
        left -= estimate_text(content) + 8
        parts.append(f"## {heading}\n\n{content}")
    return "\n\n".join(parts)


def summary_text(
    body: str, words: str, anchors: str, *, handle: str, earlier: Sequence[str] = (), go_on: bool = True
) -> str:
    """Return the whole text of a summary; ``go_on`` adds a request to continue the work.

    ``words`` is the section of user messages, ``anchors`` that of exact names, ``earlier`` are handles of cuts.
    """
    # The conversation comes last, so that the kept messages go on from it.
    parts = [OPENING, anchors, reading_back(handle, earlier), body.strip(), words, _GO_ON if go_on else ""]
    return "\n\n".join(part for part in parts if part)


def reading_back(handle: str, earlier: Sequence[str] = ()) -> str:
    """Return the section that names the handles of this cut and of earlier ones."""
    back = f"Any message of the part that was cut can be read back by its handle; all of it by the handle {handle}."
    if earlier:
        back += f" Parts that were cut before it: {', '.join(earlier)}."
    return f"## Reading back\n\n{back}"


def _head(text: str, tokens: int) -> str:
    """Return the start of a text that fits the tokens, cut at a line end if that loses less than half."""
    size = max(1, estimate_text(text))
    cut = text[: max(0, len(text) * max(0, tokens) // size)]
    while cut and estimate_text(cut) > tokens:
        cut = cut[: len(cut) * 9 // 10]
    at = cut.rfind("\n")
    return cut[:at] if at > len(cut) // 2 else cut


def prompt_text(name: str) -> str:
    """Return the text of a prompt of this layer, by its name."""
    return files(__name__.rpartition(".")[0]).joinpath("prompts", f"{name}.md").read_text("utf-8").strip()
