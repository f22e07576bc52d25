"""What one sentence of a person asks to be kept: a rule, who they are, what goes on, where something is.

Every pattern is written for precision: a sentence that is about the task at hand, a question or a description of what
programs do gives nothing.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from ...values import record
from .dates import has_date
from .patterns import (
    ANY,
    ASKS,
    BIDDING,
    CODE,
    DONT,
    DURABLE,
    ENDS_FROM_NOW,
    FROM_NOW,
    GOING,
    HERE,
    I_LIKE,
    INSTEAD,
    KEEP,
    LEAD,
    LIVES,
    LOOK_THERE,
    MOMENTARY,
    NO,
    NOW,
    OWNS,
    POINTED,
    POLITE,
    PRAISED,
    PREFER,
    REASONED,
    REQUESTS,
    RIGHT_CALL,
    RULE,
    STATES,
    STOPPED,
    STRONG,
    TRACKED,
    URL,
    URL_IS,
    VERB,
    WE,
    WE_USE,
    WEAK,
    WHEN,
    WHENEVER,
    WHO,
    WHO_CASED,
    WHY,
    WHY_BESIDE,
    WHY_NEXT,
)
from .sentences import Sentence

__all__ = ["Found", "found_in"]

Kind: TypeAlias = Literal["user", "feedback", "project", "reference"]


@record
class Found:
    """Something worth keeping, in the person's own words, and what gave it away."""

    type: Kind
    text: str
    why: str = ""
    how: str = ""
    by: str = ""


def found_in(sentence: Sentence) -> Found | None:
    """Return what a sentence asks to be kept, or None."""
    text = sentence.text.strip()
    if not 8 <= len(text) <= 600:
        return None
    plain = LEAD.sub("", text, count=1) if LEAD.match(text) else text
    if (sentence.in_document and not sentence.first) or _is_shouted(text):
        return None
    explicit = STRONG.match(_polite(text))
    if explicit and not _is_recalling(text):
        return _explicit(explicit["what"], sentence)
    if text.rstrip().endswith("?") or sentence.in_document:
        return None
    found = _implicit(text, plain, sentence)
    weak = WEAK.match(plain) or WEAK.match(text)
    if found is None and weak:
        found = _implicit(weak["what"], weak["what"], sentence)
    return found


def _polite(text: str) -> str:
    lead = POLITE.match(text)
    return text[lead.end() :] if lead else text


def _is_shouted(text: str) -> bool:
    """Say whether most of it stands in capitals, as in the boilerplate of prompts."""
    letters = [letter for letter in text if letter.isalpha()]
    return len(letters) > 20 and sum(letter.isupper() for letter in letters) > len(letters) / 2


def _is_recalling(text: str) -> bool:
    """Say whether a person speaks of something both know, and asks nobody to keep it."""
    if text.rstrip().endswith("?") and not re.match(r"(?:can|could|would|will) you\b", _polite(text), ANY):
        return True
    asked = r"\b(?:do|did|don'?t) you (?:still )?remember\b|\bremember (?:when|how|what|why|where|if|whether)\b"
    that_one = (
        r"\bremember that (?!(?:the|our|my|an?|i|we|you|they|he|she|it)\b)(?:\w+ ){1,3}(?:i|we|you|he|she|they)\b"
    )
    return bool(re.search(rf"{asked}|{that_one}", text, ANY))


def _explicit(what: str, sentence: Sentence) -> Found | None:
    """Keep what a person asked to be kept, under the type it looks like."""
    what = what.strip().rstrip("?").strip()
    if len(what.split()) < 3 or MOMENTARY.search(what) or re.match(r"(?:this|that|it)\b(?! \w+ (?:is|are))", what, ANY):
        return None
    found = _implicit(what, what, sentence)
    if found is not None:
        return Found(found.type, found.text, found.why, found.how, "remember")
    text, why = _with_why(what, sentence)
    if re.match(r"(?:i|i'm|i've|my)\b", text, ANY):
        return Found("user", text, why, by="remember")
    if re.match(rf"(?:to |not to |never |always |don'?t |do not |{VERB}\b)", text, ANY):
        return Found("feedback", re.sub(r"^to ", "", text), why, _how(text), "remember")
    if URL.search(text):
        return Found("reference", text, why, by="remember")
    if re.search(r"\bremember,", sentence.text, ANY):  # "Remember, every step counts": said to cheer, not to be kept
        return None
    return Found("project", text, why, by="remember")


def _implicit(text: str, plain: str, sentence: Sentence) -> Found | None:
    if MOMENTARY.search(text) or POINTED.search(plain):
        return None
    return (
        _reference(plain)
        or _correction(text, sentence)
        or _rule(plain, sentence)
        or _confirmation(text, sentence)
        or _person(plain, sentence)
        or _project(plain, sentence)
    )


def _rule(text: str, sentence: Sentence) -> Found | None:
    from_now = FROM_NOW.match(text) or ENDS_FROM_NOW.match(text)
    body, by = (from_now["what"], "from now on") if from_now else (text, "rule")
    if from_now and _is_rule_like(body):
        return _feedback(body, sentence, by)
    if CODE.search(text):
        return None
    why = _with_why(body, sentence)[1]
    if RULE.match(body) or STOPPED.match(body) or WHENEVER.match(body):
        return _feedback(body, sentence, by)
    if DONT.match(body) and (why or DURABLE.search(body)):
        return _feedback(body, sentence, by)
    if WE.match(body) and (
        not re.match(r".*?\bwe (?:use|only|don'?t|do not)\b", body, ANY)
        or WE_USE.search(body)
        or (why and not re.search(r"\bwe (?:use|only)\b", body, ANY))
    ):
        return _feedback(body, sentence, "convention")
    return None


def _is_rule_like(text: str) -> bool:
    return bool(
        re.match(
            rf"(?:please |you (?:should|must|can) |i want you to |i'd like you to |we )*(?:always |never |only "
            rf"|do not |don'?t |just )*{VERB}\b",
            text,
            ANY,
        )
    ) or bool(RULE.match(text) or DONT.match(text) or WE.match(text) or WHENEVER.match(text))


def _correction(text: str, sentence: Sentence) -> Found | None:
    said = NO.match(text)
    rest = said["rest"] if said else text
    if CODE.search(rest) or URL.search(rest):
        return None
    rule, why = _with_why(rest, sentence)
    if INSTEAD.match(rest) and (said or why or DURABLE.search(rest)):
        return Found("feedback", rule, why, _how(rest), "correction")
    if said and (RULE.match(rest) or (DONT.match(rest) and (why or DURABLE.search(rest))) or WE.match(rest)):
        return Found("feedback", rule, why, _how(rest), "correction")
    return None


def _confirmation(text: str, sentence: Sentence) -> Found | None:
    said = PRAISED.match(text)
    rest = said["rest"] if said else text
    if CODE.search(rest):
        return None
    if KEEP.match(rest) and (said or DURABLE.search(rest) or _with_why(rest, sentence)[1]):
        return _feedback(rest, sentence, "confirmation")
    if I_LIKE.match(rest):
        return _feedback(rest, sentence, "confirmation")
    right = RIGHT_CALL.match(rest) if said else None
    if (
        right
        and not re.match(r"(?:that|this|it|which|he|she)\b(?! (?:way|approach))|i\b", right["what"], ANY)
        and re.search(r"\bcall|choice|way|approach|move|idea|decision|thing to do|what i\b", rest, ANY)
    ):
        rule, why = _with_why(rest, sentence)
        why = why or right["more"].strip(" ,.;:—–-") or ""
        return Found("feedback", rule, why if len(why) > 8 else "", _how(rest), "confirmation")
    return None


def _person(text: str, sentence: Sentence) -> Found | None:
    if CODE.search(text) or ASKS.match(text):
        return None
    if PREFER.match(text) and not re.search(
        r"\bprefer (?:if|that) you\b|\brather (?:you|we) (?!ask)\w+ed\b", text, ANY
    ):
        body, why = _with_why(text, sentence)
        return Found("user", body, why, by="preference")
    if WHO.search(text) and not _unsure(text):
        if re.search(r"\bcall me\b", text, ANY) and not WHO_CASED.search(text):
            return None
        body, why = _with_why(text, sentence)
        return Found("user", body, why, by="who")
    return None


def _unsure(text: str) -> bool:
    return bool(
        re.search(
            r"\b(?:if|when|unless|suppose|imagine|pretend|as if|let's say|maybe) i\b|\bi(?:'ve"
            r"| have) been (?:trying|waiting|debugging|getting|seeing|looking|stuck)\b|\blearning that\b",
            text,
            ANY,
        )
    )


def _project(text: str, sentence: Sentence) -> Found | None:
    if ASKS.match(text) or CODE.search(text) or re.match(r"(?:i|you)\b", text, ANY):
        return None
    if REQUESTS.search(text):
        return None
    dated = has_date(NOW.sub("", text)) and GOING.search(text) and STATES.search(text)
    body, why = _with_why(text, sentence)
    if dated:
        return Found("project", body, why, by="deadline")
    if REASONED.search(text):
        return Found("project", text if "reason" in text.lower() else body, why, by="decision")
    if OWNS.match(text):
        return Found("project", body, why, by="owner")
    return None


def _reference(text: str) -> Found | None:
    if HERE.search(text):
        return None
    if LOOK_THERE.match(text):
        return Found("reference", text, by="pointer")
    if ASKS.match(text) and not re.match(r"(?:use|check)\b", text, ANY):
        return None
    if LIVES.search(text) or TRACKED.search(text) or URL_IS.search(text):
        return Found("reference", text, by="pointer")
    return None


def _feedback(text: str, sentence: Sentence, by: str) -> Found:
    rule, why = _with_why(text, sentence)
    return Found("feedback", re.sub(r"^(?:please|pls)\s+", "", rule, flags=ANY), why, _how(text), by)


def _with_why(text: str, sentence: Sentence) -> tuple[str, str]:
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
    return text, ""


def _how(text: str) -> str:
    when = WHEN.search(text)
    return f"{when.group().strip()}.".capitalize() if when else ""
