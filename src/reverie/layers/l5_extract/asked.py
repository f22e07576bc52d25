"""How a person wants to be worked with: rules, corrections and confirmations, by the way they are put."""

from __future__ import annotations

import re

from .found import Found, feedback, how_of, reasoned
from .patterns import (
    ALL_MUST,
    ANY,
    AS_A_RULE,
    ASK_FIRST,
    BARE_NO,
    CODE,
    CONTRAST,
    DONT,
    DONT_WANT,
    DURABLE,
    ENDS_ALWAYS,
    ENDS_FROM_NOW,
    EVER,
    FOR_ALL,
    FROM_NOW,
    GENERAL,
    HERE_ALWAYS,
    I_LIKE,
    IN_CASE,
    INSTEAD,
    KEEP,
    KEEP_THAT,
    NO,
    NONE_OF,
    ONLY_WANT,
    OPENS_RULE,
    OTHERS_WANT,
    POLICY,
    PRAISED,
    REQUESTS,
    RIGHT_CALL,
    RULE,
    SO_DONT,
    STOP_IT,
    STOPPED,
    UNLESS_I,
    URL,
    VERB,
    WE,
    WE_USE,
    WHENEVER,
    YOU_KEEP,
)
from .sentences import Sentence

__all__ = ["confirmation", "correction", "rule"]


def rule(text: str, sentence: Sentence) -> Found | None:
    """Return a rule that a sentence states, or None."""
    from_now = FROM_NOW.match(text) or ENDS_FROM_NOW.match(text)
    body, by = (from_now["what"], "from now on") if from_now else (text, "rule")
    if from_now and _is_rule_like(body):
        return feedback(body, sentence, by)
    if CODE.search(text):
        return None
    ruled = AS_A_RULE.match(body)
    if ruled:
        return feedback(ruled["what"], sentence, by)
    if _is_asked(body, sentence):
        opened = OPENS_RULE.match(body)
        return feedback(body[opened.end() :] if opened else body, sentence, by)
    following = sentence.after[0] if sentence.after else ""
    if YOU_KEEP.match(body) and STOP_IT.search(following):
        return Found("feedback", f"{body} {following}", "", how_of(body), "correction")
    return feedback(body, sentence, "convention") if _is_convention(body, sentence) else None


def _is_asked(text: str, sentence: Sentence) -> bool:
    """Say whether a sentence asks for something that holds beyond the task at hand."""
    opened = OPENS_RULE.match(text)
    bare = text[opened.end() :] if opened else text
    asked, why = reasoned(bare, sentence)
    if RULE.match(bare) or STOPPED.match(bare) or WHENEVER.match(bare) or ONLY_WANT.match(text):
        return True
    if OTHERS_WANT.match(text) or FOR_ALL.match(text):
        return True
    if ASK_FIRST.match(bare) or ENDS_ALWAYS.match(text) or IN_CASE.match(text):
        return True
    if DONT.match(bare) or DONT_WANT.match(text):
        return bool(why or DURABLE.search(bare))
    if NONE_OF.match(bare):
        return bool(why or EVER.search(bare))
    if not re.match(rf"(?!let'?s\b)(?:only |just )?{VERB}\b", bare, ANY):
        return False
    if UNLESS_I.search(bare):
        return True
    # Asked as a favour, for a kind of occasion; or asked with a reason, and of nothing in particular.
    favour = opened and re.match(r"i(?:'d| would| want| need)|it would|make sure|be sure", text, ANY)
    if favour and re.search(r"\b(?:before|after|when(?:ever)?|every|each|unless)\b", bare, ANY):
        return True
    return bool(why and not GENERAL.search(asked) and not REQUESTS.search(bare))


def _is_convention(text: str, sentence: Sentence) -> bool:
    """Say whether a sentence states how people do things here."""
    if HERE_ALWAYS.match(text) or SO_DONT.match(text):
        return True
    why = reasoned(text, sentence)[1]
    if ALL_MUST.match(text) and (why or POLICY.search(text)):
        return True
    if re.search(r",? (?:that|this)(?:'s| is) (?:our|the|a) (?:\w+ )?(?:convention|policy|rule|standard)\b", text, ANY):
        return True
    if not WE.match(text):
        return False
    return bool(
        not re.match(r".*?\bwe (?:use|only|don'?t|do not)\b", text, ANY)
        or WE_USE.search(text)
        or (why and not re.search(r"\bwe (?:use|only)\b", text, ANY))
    )


def _is_rule_like(text: str) -> bool:
    return bool(
        re.match(
            rf"(?:please |you (?:should|must|can) |i want you to |i'd like you to |we )*(?:always |never |only "
            rf"|do not |don'?t |just )*{VERB}\b",
            text,
            ANY,
        )
    ) or bool(RULE.match(text) or DONT.match(text) or WE.match(text) or WHENEVER.match(text))


def correction(text: str, sentence: Sentence) -> Found | None:
    """Return what a sentence corrects, or None."""
    following = sentence.after[0] if sentence.after else ""
    if BARE_NO.match(text) and CONTRAST.match(following) and not CODE.search(following):
        return Found("feedback", following, "", how_of(following), "correction")
    said = NO.match(text)
    rest = said["rest"] if said else text
    if CODE.search(rest) or URL.search(rest):
        return None
    body, why = reasoned(rest, sentence)
    if INSTEAD.match(rest) and (said or why or DURABLE.search(rest)):
        return Found("feedback", body, why, how_of(rest), "correction")
    if said and re.match(r"that'?s not how (?:we|i)\b", text, ANY) and len(rest.split()) > 3:
        return Found("feedback", body, why, how_of(rest), "correction")
    if said and (RULE.match(rest) or (DONT.match(rest) and (why or DURABLE.search(rest))) or WE.match(rest)):
        return Found("feedback", body, why, how_of(rest), "correction")
    return None


def confirmation(text: str, sentence: Sentence) -> Found | None:
    """Return the way of working that a sentence confirms, or None."""
    said = PRAISED.match(text)
    rest = said["rest"] if said else text
    if CODE.search(rest):
        return None
    if KEEP.match(rest) and (said or DURABLE.search(rest) or reasoned(rest, sentence)[1]):
        return feedback(rest, sentence, "confirmation")
    kept = KEEP_THAT.match(rest)
    if kept and said:
        return feedback(kept["what"], sentence, "confirmation")
    if I_LIKE.match(rest):
        return feedback(rest, sentence, "confirmation")
    right = RIGHT_CALL.match(rest)
    if right and not said and not _is_judged(right["what"], rest):
        right = None
    if (
        right
        and not re.match(r"(?:that|this|it|which|he|she)\b(?! (?:way|approach))|i\b", right["what"], ANY)
        and re.search(r"\bcall|choice|way|approach|move|idea|decision|thing to do|(?:what|how) i\b", rest, ANY)
    ):
        body, why = reasoned(rest, sentence)
        why = why or right["more"].strip(" ,.;:—–-") or ""
        return Found("feedback", body, why if len(why) > 8 else "", how_of(rest), "confirmation")
    return None


def _is_judged(what: str, text: str) -> bool:
    """Say whether a way of working is called right, without a word of praise before."""
    doing = re.match(r"(?!(?:no|some|any|every)?thing\b|morning|during|being)\w+ing\b", what, ANY)
    right = re.search(r"\bthe (?:right|correct) |\bi want", text, ANY)
    done = re.search(r"\b(?:was|were) (?:\w+ )?the (?:right|correct) (?:call|choice|decision|move|way)\b", text, ANY)
    return bool((doing and right) or done)
