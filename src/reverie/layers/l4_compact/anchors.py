"""List exact names of the removed part, which a summary cannot paraphrase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ...conversation.authorship import Utterance, utterances
from ...conversation.cuts import Item
from ...conversation.identifiers import EXACT, Identifier, best_identifiers, mine_groups

_TITLES = {
    "path": "paths",
    "test": "tests",
    "error": "errors",
    "sha": "commits and hashes",
    "id": "ids",
    "url": "links",
    "number": "numbers the user gave",
}


def mined(items: Iterable[Item]) -> tuple[Counter[Identifier], dict[Identifier, str]]:
    """Return how often each exact name occurs in these items, and the uuid of the last item that has it."""
    listed = list(items)
    counts, last = mine_groups(
        utterances(one.entry) if one.entry.message is not None else _added(one) for one in listed
    )
    return counts, {name: listed[at].uuid for name, at in last.items()}


def _added(item: Item) -> Iterator[Utterance]:
    """Yield the text that a decision put into the view, such as an earlier summary."""
    content = item.message.get("content")
    if isinstance(content, str):
        yield Utterance("result", content)


def anchor_list(counts: Mapping[Identifier, int], shown: str, *, tokens: int) -> list[Identifier]:
    """Return the names to list within a token budget, most uses per token first, without symbols and ``shown`` ones."""
    weights = {one: float(count) for one, count in counts.items() if one.kind in EXACT}
    return best_identifiers(weights, tokens, present=shown)


def anchors_text(anchors: Iterable[Identifier]) -> str:
    """Return these names as a section of the summary, grouped by kind; empty if there are none."""
    by_kind: dict[str, list[str]] = {}
    for one in anchors:
        by_kind.setdefault(one.kind, []).append(one.text)
    if not by_kind:
        return ""
    parts = ["## Exact names from the earlier part"]
    for kind, title in _TITLES.items():
        if kind in by_kind:
            parts.append(f"{title}: " + ("\n" if kind == "error" else ", ").join(by_kind[kind]))
    return "\n".join(parts)


def exact_names(items: Iterable[Item], *, tokens: int) -> str:
    """Return the section with the exact names of these items within a token budget; empty if there are none."""
    return anchors_text(anchor_list(mined(items)[0], "", tokens=tokens))
