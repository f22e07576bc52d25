"""What one sentence of a person asks to be kept: a rule, who they are, what goes on, where something is.

Every pattern is written for precision: a sentence that is about the task at hand, a question or a description of what
programs do gives nothing.
"""

from __future__ import annotations

import re

from ...text.dates import has_date
from .asked import confirmation, correction, rule
from .facts import (
    ASKS,
    GOING,
    KEPT_AT,
    LIVES,
    LOOK_THERE,
    NOW,
    OWNS,
    PREFER,
    REASONED,
    STATES,
    TRACKED,
    URL_IS,
    WHO,
    WHO_CASED,
)
from .found import Found, how_of, reasoned
from .patterns import (
    ANY,
    CODE,
    HERE,
    LEAD,
    MOMENTARY,
    OPENS_RULE,
    POINTED,
    POLITE,
    REQUESTS,
    STOPPED,
    STRONG,
    URL,
    VERB,
    WEAK,
)
from .sentences import Sentence

__all__ = ["found_in"]


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
    if sentence.in_document or (text.rstrip().endswith("?") and not _asks_to_stop(text)):
        return None
    found = _implicit(text, plain, sentence)
    weak = WEAK.match(plain) or WEAK.match(text)
    if found is None and weak:
        found = _implicit(weak["what"], weak["what"], sentence)
    return found


def _asks_to_stop(text: str) -> bool:
    """Say whether a question is a polite way to ask for an end to a habit."""
    rest = _polite(text)
    opened = OPENS_RULE.match(rest)
    return bool(opened and STOPPED.match(rest[opened.end() :]))


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
    text, why = reasoned(what, sentence)
    if re.match(r"i (?:never|don'?t|do not) want\b", text, ANY):
        return Found("feedback", text, why, how_of(text), "remember")
    if re.match(r"(?:i|i'm|i've|my)\b", text, ANY):
        return Found("user", text, why, by="remember")
    if re.match(rf"(?:to |not to |never |always |no |don'?t |do not |{VERB}\b)", text, ANY):
        return Found("feedback", re.sub(r"^to ", "", text), why, how_of(text), "remember")
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
        or (_reference(text) if text != plain else None)
        or correction(text, sentence)
        or rule(plain, sentence)
        or confirmation(text, sentence)
        or _person(plain, sentence)
        or _project(plain, sentence)
    )


def _person(text: str, sentence: Sentence) -> Found | None:
    if CODE.search(text) or ASKS.match(text):
        return None
    if PREFER.match(text) and not re.search(
        r"\bprefer (?:if|that) you\b|\brather (?:you|we) (?!ask)\w+ed\b", text, ANY
    ):
        body, why = reasoned(text, sentence)
        about_work = re.search(r"\b(?:when|if|that|how|rather) you\b", text, ANY)
        return Found("feedback" if about_work else "user", body, why, by="preference")
    if (WHO.search(text) or WHO_CASED.search(text)) and not _unsure(text):
        if re.search(r"\bcall me\b", text, ANY) and not WHO_CASED.search(text):
            return None
        body, why = reasoned(text, sentence)
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
    body, why = reasoned(text, sentence)
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
    if LIVES.search(text) or TRACKED.search(text) or KEPT_AT.search(text):
        return Found("reference", text, by="pointer")
    if URL_IS.search(text) and not REQUESTS.search(text):
        return Found("reference", text, by="pointer")
    return None
