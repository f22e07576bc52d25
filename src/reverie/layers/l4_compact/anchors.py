"""List exact names of the removed part, which a summary cannot paraphrase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...conversation.cuts import Item
from ...conversation.identifiers import EXACT, Identifier, best_identifiers, mine, mine_entry

__all__ = ["anchor_list", "anchors_text", "mined"]

_TITLES = {
    "path": "paths",
    "test": "tests",
    "error": "errors",
    "sha": "commits and hashes",
    "id": "ids",
    "url": "links",
    "number": "numbers the user gave",
    "symbol": "names in code",
}


def mined(items: Iterable[Item]) -> tuple[Counter[Identifier], dict[Identifier, str]]:
    """Return how often each exact name occurs in these items, and the uuid of the last item that has it."""
    counts: Counter[Identifier] = Counter()
    where: dict[Identifier, str] = {}
    for item in items:
        found = mine_entry(item.entry) if item.entry.message is not None else _mined_text(item)
        counts.update(found)
        where.update(dict.fromkeys(found, item.uuid))
    return counts, where


def _mined_text(item: Item) -> Counter[Identifier]:
    """Count the exact names in a text that a decision put into the view, such as an earlier summary."""
    content = item.message.get("content")
    return mine(content) if isinstance(content, str) else Counter()


def anchor_list(counts: Mapping[Identifier, int], shown: str, *, tokens: int) -> list[Identifier]:
    """Return the names to list within a token budget: most uses per token first, without names in ``shown``."""
    weights = {one: float(count) if one.kind in EXACT else count / 8 for one, count in counts.items()}
    return best_identifiers(weights, tokens, present=shown)


def anchors_text(anchors: Iterable[Identifier]) -> str:
    """Return these names as a section of the summary, grouped by kind; empty if there are none."""
    by_kind: dict[str, list[str]] = {}
    for one in anchors:
        by_kind.setdefault(one.kind, []).append(one.text)
    if not by_kind:
        return ""
    parts = ["## Exact names from the earlier part"]
    parts += [f"{title}:\n" + "\n".join(by_kind[kind]) for kind, title in _TITLES.items() if kind in by_kind]
    return "\n\n".join(parts)
