"""Format text for Read: numbered lines within limits, with a note about the rest."""

from __future__ import annotations

from typing import Final

from ...conversation.tokens.estimate import estimate_text
from ...settings import AgentPolicy
from ...values import record

MAX_LINE_CHARS: Final = 2_000


@record
class NumberedText:
    """Numbered lines of a text: first and last line (from 1), the text's total, and whether all of it is shown.

    ``note`` is a line for the model that says which lines are shown; empty if all are.
    """

    text: str
    first: int
    last: int
    total: int
    whole: bool
    note: str = ""


def show_lines(
    text: str, offset: int | None, limit: int | None, policy: AgentPolicy, *, skipped: int = 0, more: bool = False
) -> NumberedText:
    """Return the numbered lines from ``offset`` on, at most ``limit`` and as many as the policy's limits allow.

    ``skipped`` is the number of lines before ``text``; ``more`` says that there are lines after it.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = skipped + len(lines)
    first = max(1, offset or 1)
    start = first - 1 - skipped
    wanted = lines[start:] if limit is None else lines[start : start + limit]
    chosen = wanted[: policy.read_max_lines]
    rows = [_row(first + at, line) for at, line in enumerate(chosen)]
    fitting = _fitting_count(rows, policy)
    last = first + fitting - 1
    cut = any(len(line) > MAX_LINE_CHARS for line in chosen[:fitting])
    whole = first == 1 and last == total and not cut and not more
    reason = ""
    if fitting < len(rows):
        reason = f"{policy.read_max_tokens:,} tokens or {policy.read_max_bytes:,} bytes"
    elif fitting < len(wanted):
        reason = f"{policy.read_max_lines:,} lines"
    elif more and last == total and (limit is None or fitting < limit):
        reason = f"{policy.read_max_bytes:,} bytes"
    return NumberedText("\n".join(rows[:fitting]), first, last, total, whole, _note(first, last, total, more, reason))


def _note(first: int, last: int, total: int, more: bool, reason: str) -> str:
    if first == 1 and last == total and not more:
        return ""
    of = "" if more else f" of {total:,}"
    if not reason:
        return f"\n[lines {first:,} to {last:,}{of}]"
    return (
        f"\n[lines {first:,} to {last:,}{of}; at most {reason} are shown at once: "
        f"offset={last + 1} reads on, Grep searches]"
    )


def show_bytes(data: bytes, offset: int, limit: int | None, policy: AgentPolicy) -> tuple[str, int]:
    """Return the text from a byte offset on, as long as the limits allow, and the offset of its end."""
    end = min(len(data), offset + min(limit or policy.read_max_bytes, policy.read_max_bytes))
    while end > offset + 4 and end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1  # not in the middle of a character
    text = data[offset:end].decode("utf-8", "replace")
    while estimate_text(text) > policy.read_max_tokens:
        text = text[: len(text) * 3 // 4]
        end = offset + len(text.encode())
    return text, end


def _row(number: int, line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) > MAX_LINE_CHARS:
        more = len(line) - MAX_LINE_CHARS
        line = f"{line[:MAX_LINE_CHARS]} [... {more:,} more characters of this line; byte_offset reads them]"
    return f"{number:6}\t{line}"


def _fitting_count(rows: list[str], policy: AgentPolicy) -> int:
    """Return how many of the rows fit the policy's limits; at least one, unless there are no rows."""
    low, high = 1, len(rows)
    while low <= high:
        middle = (low + high) // 2
        text = "\n".join(rows[:middle])
        if len(text.encode()) <= policy.read_max_bytes and estimate_text(text) <= policy.read_max_tokens:
            low = middle + 1
        else:
            high = middle - 1
    return max(high, min(1, len(rows)))
