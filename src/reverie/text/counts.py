"""Counts with their nouns."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the right number, such as "1 section" or "1,200 sections"."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"


def dollars(usd: float | None) -> str:
    """Return an amount of money as text, with four decimals below one dollar; ``$ –`` if it is None."""
    if usd is None:
        return "$ –"
    return f"${usd:,.4f}" if 0 < usd < 1 else f"${usd:,.2f}"
