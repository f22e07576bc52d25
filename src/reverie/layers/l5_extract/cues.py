"""Recognise explicit requests to save something, by the few words that open them.

These are the only English rules of the local extractor. They aim at certainty: a sentence that opens with none of these
cues is left to a model.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from ...values import record

__all__ = ["Kind", "SaveRequest", "request_in"]

Kind: TypeAlias = Literal["user", "feedback", "project", "reference"]

_REMEMBER: Final = ("remember that", "remember", "keep in mind that", "don't forget that")
_RULE: Final = ("from now on", "always", "never")
_OPENS: Final = re.compile(
    rf"(?:please )?(?:(?P<remember>{'|'.join(_REMEMBER)}):?|(?P<rule>{'|'.join(_RULE)})[:,]?) (?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
# Not saved: a step of the task, talk about the past, a statement, or a reference to the current conversation.
_RECALLS: Final = re.compile(r"^(?:to|when|how|what|why|where|who|if|whether)\b", re.IGNORECASE)
_STATES: Final = re.compile(r"(?:\w+(?:ed|ing|[^s]s)|mind|seen|heard|had|been|the|an?|in|so|i|you|we)\b", re.IGNORECASE)
_AT_HAND: Final = re.compile(
    r"\b(?:this(?! (?:repo|project|codebase))|these|it|them|above|below|for now|right now)\b", re.IGNORECASE
)
_ABOUT_USER: Final = re.compile(r"(?:i|my)\b", re.IGNORECASE)
_RULES: Final = re.compile(r"(?:always|never|don['’]t|do not)\b", re.IGNORECASE)
_URL: Final = re.compile(r"https?://\S", re.IGNORECASE)
_REASON: Final = re.compile(r",? because ", re.IGNORECASE)
_MIN_WORDS: Final = 3
_MAX_CHARS: Final = 600


@record
class SaveRequest:
    """A person's request to save ``text`` without its reason ``why``; ``cue`` is the opening word, normalised."""

    type: Kind
    text: str
    why: str
    cue: str


def request_in(sentence: str) -> SaveRequest | None:
    """Return the explicit request to save something that a sentence makes; None if it makes none."""
    said = sentence.strip()
    if len(said) > _MAX_CHARS or said.endswith("?"):
        return None
    opened = _OPENS.match(said.replace("’", "'"))
    if opened is None:
        return None
    text = said[opened.start("text") :].strip()
    reason = _REASON.search(text)
    text, why = (text[: reason.start()], text[reason.end() :]) if reason else (text, "")
    rule = (opened["rule"] or "").lower()
    if rule in ("always", "never"):
        if _STATES.match(text):
            return None
        text = f"{rule} {text}"
    if len(text.split()) < _MIN_WORDS or (_AT_HAND if rule else _RECALLS).search(text):
        return None
    return SaveRequest("feedback" if rule else _kind_of(text), text, why, rule or "remember")


def _kind_of(text: str) -> Kind:
    if _RULES.match(text):
        return "feedback"
    if _ABOUT_USER.match(text):
        return "user"
    return "reference" if _URL.search(text) else "project"
