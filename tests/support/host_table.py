"""The table of docs/guides/other-agents.md, written from the cells that a run of ``pytest --hosts`` recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "other-agents.md"
BEGIN, END = "<!-- begin of the table that pytest --hosts writes -->", "<!-- end of that table -->"
PLUGIN = "plugin folder loads, with index and recall"
FEATURES = (
    "index at start",
    "recall at prompt",
    "recall after compaction",
    "memory shared with the host",
    "big output readable back",
    "session kept and searchable",
    "status line",
    "uninstall byte-exact",
    "turn with hooks, against empty hooks",
    PLUGIN,
)
CANNOT = {
    ("codex", "memory shared with the host"): "the host has no setting for the directory of its memory",
    ("codex", "big output readable back"): "the host cuts it and gives a hook no way to replace it",
    ("codex", "status line"): "the host shows only its own items",
    ("gemini", "memory shared with the host"): "the host has no setting for the directory of its memory",
    ("gemini", "status line"): "the host has none",
    ("qwen", "memory shared with the host"): "the host has no setting for the directory of its memory",
    ("opencode", "memory shared with the host"): "the host has no memory",
    ("opencode", "status line"): "the host has none",
}
"""Cells that a host makes impossible, with the reason; they are printed and not tried."""
Cell = tuple[str, str, str, str]
"""The program, its version, the feature and the result."""


def table(cells: Iterable[Cell]) -> str:
    """Return the cells as a Markdown table with a column for each program, and the reasons below it."""
    found = {(title, feature): cell for title, _, feature, cell in cells}
    versions = {title: version for title, version, *_ in cells}
    heads = [f"{title} {re.sub(r'[^0-9.]+', '', version)}" for title, version in versions.items()]
    lines = [f"| | {' | '.join(heads)} |", f"|---{'|---' * len(heads)}|"]
    notes: list[str] = []
    for feature in dict.fromkeys(feature for _, feature in found):
        row = []
        for title in versions:
            word, _, reason = found.get((title, feature), "no: not run").partition(": ")
            short = not reason and (word == "yes" or word[:1].isdigit())
            note = reason or word
            if not short and note not in notes:
                notes.append(note)
            row.append(word if short else f"{'no' if reason else '-'} [{notes.index(note) + 1}]")
        lines.append(f"| {feature} | {' | '.join(row)} |")
    return "\n".join([*lines, "", *(f"{at}. {note}." for at, note in enumerate(notes, 1))])


def write(cells: list[Cell]) -> None:
    """Put the table of a whole run into the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    GUIDE.write_text(f"{head}{BEGIN}\n\n{table(cells)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
