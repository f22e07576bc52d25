"""The report of a dream as Markdown: changes and their reasons, rejected changes, questions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from typing import Final, Literal, TypeAlias

from ...schemas import REPORT
from ...text.counts import counted
from ...values import field, record
from .changes import Act, FileChange, Question, SkippedChange

Outcome: TypeAlias = Literal["applying", "completed", "failed", "killed"]

_MAX_DIFF_LINES: Final = 120
_MAX_LINE_CHARS: Final = 400
_HEADINGS: Final[dict[str, str]] = {"added": "Added", "merged": "Merged", "changed": "Changed", "removed": "Removed"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@record
class DreamChange:
    """One file that a dream changed (in a dry run: would change), as reported with reason and diff."""

    file: str
    act: Act
    why: str
    by: str = "local"
    into: str = ""
    diff: str = ""


@record
class ModelUsage:
    """Tokens, turns and money a model used in a dream."""

    model: str = ""
    turns: int = 0
    tools: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_share: float = 0.0
    cost_usd: float | None = 0.0
    """The cost of the model in dollars; None if its price is unknown."""
    ended: str = ""
    """How the model's run ended, if it did not finish normally."""


@record
class DreamReport:
    """The report of one dream: its outcome, changes, skipped changes, questions, counts and cost."""

    dream: str
    state: Outcome
    began: str
    """The time at which the dream started, in UTC."""
    seconds: float = 0.0
    dry_run: bool = False
    by: str = "local"
    entry: str = ""
    """The id of the journal entry by which the dream can be undone; empty if nothing was changed."""
    changes: tuple[DreamChange, ...] = ()
    not_done: tuple[SkippedChange, ...] = ()
    questions: tuple[Question, ...] = ()
    paths: tuple[str, ...] = ()
    """Every path that was written during the run, kept or not."""
    files_before: int = 0
    files_after: int = 0
    index_lines: int = 0
    wrong_before: int = 0
    wrong_after: int = 0
    """The number of memories in which lint finds a fault."""
    spent: ModelUsage = field(default_factory=ModelUsage)
    problem: str = ""
    """The error, if the dream failed or was killed."""
    undone: str = ""
    """The id of the journal entry that undid the dream; empty if none did."""
    schema: int = REPORT


def change_of(change: FileChange, by: str) -> DreamChange:
    """Return a file change in the form of the report, with its diff; ``by`` is ``local`` or ``model``."""
    return DreamChange(change.file, change.act, _plain(change.why), by, change.into, _diff(change))


def _diff(change: FileChange) -> str:
    before, after = (_lines(change.before), _lines(change.after))
    old = change.file if change.before is not None else "(new)"
    new = change.file if change.after is not None else f"(in {change.into})" if change.into else "(gone)"
    lines = [_plain(line)[:_MAX_LINE_CHARS] for line in unified_diff(before, after, old, new, lineterm="", n=1)]
    if len(lines) > _MAX_DIFF_LINES:
        left = len(lines) - _MAX_DIFF_LINES
        lines = [*lines[:_MAX_DIFF_LINES], f"({left} more lines; 'reverie memory log' has them all)"]
    return "\n".join(lines)


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def _plain(text: str) -> str:
    """Return a text on one line with control and invisible characters as ``[U+XXXX]``."""
    return _CONTROL.sub(lambda found: f"[U+{ord(found.group()):04X}]", text.replace("\n", " "))


def markdown(report: DreamReport) -> str:
    """Return the report as Markdown."""
    parts = [_opening(report)]
    for act, heading in _HEADINGS.items():
        parts += _section(heading, [_change(one) for one in report.changes if one.act == act])
    refused = [f"- `{one.file}` ({one.act}, by {_who(one.by)}): {_plain(one.why)}" for one in report.not_done]
    parts += _section("Proposed and not done", ["\n".join(refused)] if refused else [])
    asked = [f"- {one.topic}: {', '.join(f'`{file}`' for file in one.files)}: {_plain(one.text)}"
             for one in report.questions]  # fmt: skip
    parts += _section("For you to decide", ["\n".join(asked)] if asked else [])
    parts += _section(
        "Paths written to", [", ".join(f"`{_plain(path)}`" for path in report.paths)] if report.paths else []
    )
    return "\n\n".join(parts) + "\n"


def _opening(report: DreamReport) -> str:
    how = "A dry run: nothing was changed." if report.dry_run else _state(report)
    rows = [("when", f"{report.began}, {report.seconds:.1f} s")]
    if report.state not in ("failed", "killed"):  # those ended before the memories were counted
        rows += [
            ("memories", f"{report.files_before} before, {report.files_after} after"),
            ("memories with a problem", f"{report.wrong_before} before, {report.wrong_after} after"),
            ("index", counted(report.index_lines, "line")),
        ]
    if report.spent.model or len(rows) > 1:
        rows += _costs(report.spent)
    table = "\n".join(f"| {name} | {_plain(value)} |" for name, value in rows)
    return f"# Dream {report.dream}\n\n{how}\n\n| | |\n|---|---|\n{table}"


def _state(report: DreamReport) -> str:
    match report.state:
        case "completed" if report.entry and not report.undone:
            counts = ", ".join(_counted(report.changes)) or "the index only"
            return f"Completed: {counts}. Take it back with `reverie dream --undo` (change {report.entry})."
        case "completed" if report.undone:
            return f"Completed, and undone by change {report.undone}."
        case "completed":
            return "Completed: there was nothing to change."
        case "applying":
            return "It was writing its changes when this was written."
        case "failed":
            return f"Failed: {_plain(report.problem)}. Nothing was changed."
        case "killed":
            return f"Killed{': ' + _plain(report.problem) if report.problem else ''}. Nothing was changed."


def _counted(changes: Sequence[DreamChange]) -> Iterable[str]:
    for act in _HEADINGS:
        many = sum(1 for one in changes if one.act == act)
        if many:
            yield f"{many} {act}"


def _costs(spent: ModelUsage) -> list[tuple[str, str]]:
    if not spent.model:
        return [("model", "none; only equal texts are merged, and relative dates only in English")]
    cost = "price unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"
    rows = [
        ("model", f"{spent.model}, {spent.turns} turns, {spent.tools} tool calls"),
        (
            "used",
            f"{spent.input_tokens:,} tokens in ({spent.cache_read_share:.0%} from the cache), "
            f"{spent.output_tokens:,} out, {cost}",
        ),
    ]
    return [*rows, ("ended", spent.ended)] if spent.ended else rows


def _section(heading: str, parts: Sequence[str]) -> list[str]:
    return [f"## {heading}", *parts] if parts else []


def _change(change: DreamChange) -> str:
    into = f" into `{change.into}`" if change.into else ""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", change.diff) or ("``",)))
    why = change.why or "no reason was given"
    return f"### `{change.file}`{into}\n\n{why} (by {_who(change.by)})\n\n{fence}diff\n{change.diff}\n{fence}"


def _who(by: str) -> str:
    return "the model" if by == "model" else "the local dreamer"
