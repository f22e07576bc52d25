"""What was found in a sentence, and the reason that goes with it."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from ...values import record
from .patterns import ANY, BIDDING, WHEN, WHY, WHY_BESIDE, WHY_NEXT
from .sentences import Sentence

__all__ = ["Found", "Kind", "feedback", "how_of", "reasoned"]

Kind: TypeAlias = Literal["user", "feedback", "project", "reference"]


@record
class Found:
    """Something worth keeping, in the person's own words, and what gave it away."""

    type: Kind
    text: str
    why: str = ""
    how: str = ""
    by: str = ""


def feedback(text: str, sentence: Sentence, by: str) -> Found:
    """Return a rule with its reason and its occasion."""
    rule, why = reasoned(text, sentence)
    return Found("feedback", re.sub(r"^(?:please|pls)\s+", "", rule, flags=ANY), why, how_of(text), by)


def reasoned(text: str, sentence: Sentence) -> tuple[str, str]:
    """Return a text without its reason, and the reason: from its own end, or from the next sentence."""
    own = WHY.search(text)
    if own:
        return text[: own.start()].rstrip(" ,;:—–-("), own["why"].strip().rstrip(").").strip()
    beside = WHY_BESIDE.search(text) if BIDDING.match(text) else None
    if beside:
        return text[: beside.start()], beside["why"].strip().rstrip(".")
    following = sentence.after[0] if sentence.after else ""
    near = WHY_NEXT.match(following)
    if near and len(following) <= 300 and not following.endswith("?"):
        opens = re.match(
            r"(?:because|since|the reason|that's because|this is because|it's because|why:|reason:)", following, ANY
        )
        return text, (near["rest"] if opens else following).strip().rstrip(".")
    later = re.match(
        r"(?:use|prefer|put|write|run|keep|do|take)\b.{3,160}?[,;:]\s*(?:otherwise|because|since)\b.{6,}$",
        following,
        ANY,
    )
    return (text, following.rstrip(".")) if later and BIDDING.match(text) else (text, "")


def how_of(text: str) -> str:
    """Return when a rule applies, as far as it says so."""
    when = WHEN.search(text)
    return f"{when.group().strip()}.".capitalize() if when else ""
