"""Rank the sentences that a person typed by how likely they bind later work, by grammar and without a model.

A sentence binds if it tells the reader to do something, or to leave it, at any time: it opens with no subject of its
own or addresses the reader, asks nothing, and has words of obligation, negation, generality, exclusion, condition or
duration. Only closed classes of function words are listed, which a grammar of the language lists in full; a
language without lists is ranked by structure alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

from .sentences import ends_in_abbreviation, without_pasted

_MARKS: Final = {  # by kind: English, then German
    "obligation": "must should shall ought supposed allowed"
    " muss musst müssen müsst soll sollst sollen sollt darf darfst dürfen dürft",
    "negation": "not no never none nothing nobody neither nor without cannot"
    " nicht nichts nie niemals niemand kein keine keinen keinem keiner keines ohne weder",
    "generality": "always every each all any everything anything everyone anyone ever"
    " immer stets jede jeder jedes jeden jedem alle alles allen aller",
    "exclusion": "only except instead rather nur außer statt sondern",
    "condition": "until till unless before when whenever if once while wherever"
    " bis bevor wenn falls sobald solange sofern",
    "duration": "anymore henceforth throughout fortan künftig weiterhin",
}
_OTHERS: Final = {
    "joining": "and but or so then also though because since please kindly just und aber oder also dann bitte",
    "narrating": "i'm i've i'll i'd we're we've we'll we'd let's am was were had did been"
    " habe hatte hatten bin war waren",
    "first person": "i we ich wir",
    "reader": "you your you're you'll yours yourself du dir dich dein deine deinen deiner ihr euch",
    "asking": "what what's which who whom whose why how where is are does did can could would will may might"
    " wer was wie wo warum wann welche welcher welches ist sind kann kannst können könnte könntest würde würdest",
    "subject": "he she it they this that these those there the a an my our his her its their it's that's there's"
    " they're he's she's er sie es der die das den dem ein eine einen dieser diese dieses mein meine unser unsere",
}
_KIND: Final = {word: kind for kind, words in _MARKS.items() for word in words.split()}
_CLASS: Final = {name: frozenset(words.split()) for name, words in (_MARKS | _OTHERS).items()}
_LISTED: Final = frozenset[str]().union(*_CLASS.values())
_PHRASES: Final = (
    ("obligation", re.compile(r"\b(?:ha(?:s|ve)|needs?) to\b|\b(?:can|may) not\b|\b(?:ca|must|should|sha|need)n't\b")),
    ("negation", re.compile(r"n't\b")),
    ("duration", re.compile(r"\bfrom (?:now|here) on|\bab (?:jetzt|sofort)\b|\bvon (?:jetzt|nun) an\b")),
)
_CJK_KINDS: Final = tuple(
    re.compile(words)
    for words in (
        "必须|必須|应该|應該|应当|應當|务必|務必|需要|要|得",
        "不|别|別|没|沒|勿|禁止|无|無",
        "所有|每|任何|总|總|始终|始終|一律|都|永|凡|全部",
        "只|仅|僅|除非|除了|而不是",
        "之前|以前|先|直到|如果|时候|時候|当|當|一旦|才",
        "以后|以後|今后|今後|从现在|從現在|从此|從此",
    )
)
_WORD: Final = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_CLAUSE: Final = re.compile(r"(?<=[,;:])\s+|(?<=[，；：])|\s+[–—-]+\s+")
_SENTENCE: Final = re.compile(r"(?<=[.!?…])[\"')\]”]*\s+|(?<=[。！？])[”」』]*\s*|\n+(?![a-zà-ÿ])")
_PARAGRAPH: Final = re.compile(r"\n+(?![a-zà-ÿ])")
_BULLET: Final = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+")
_LEAST_WORDS: Final = 3
_SHORT: Final = 12
_SHORT_BONUS: Final = 0.5
_LONG: Final = 200
_MOST_CHARS: Final = 20_000


def typed_sentences(text: str) -> list[str]:
    """Return the sentences of a message exactly as typed, without fenced, tagged and printed text."""
    typed = without_pasted(text[:_MOST_CHARS])
    ends = [one for one in _SENTENCE.finditer(typed) if not ends_in_abbreviation(typed[: one.start()][-_SHORT:])]
    starts = [0, *(one.end() for one in ends)]
    found = (_BULLET.sub("", typed[a:b]).strip() for a, b in zip(starts, [*starts[1:], len(typed)], strict=True))
    return [one for one in dict.fromkeys(found) if _WORD.search(one)]


def is_question(sentence: str) -> bool:
    """Say whether a sentence ends in a question mark."""
    return sentence.rstrip("\"')”」 ").endswith(("?", "？"))


def is_rule(sentence: str) -> bool:
    """Say whether a sentence binds by its grammar, and a clause with a word of obligation or the like is no report."""
    if binding_part(sentence)[0] < 1.0:
        return False
    clauses = [_plain(sentence[start:end]) for start, end in _clauses(sentence)]
    return any((kinds := _kinds(one)) and (_CJK.search(one) or _mood(_words(one), kinds) > 0) for one in clauses)


def has_known_words(text: str) -> bool:
    """Say whether a text is in a language whose function words are listed here, as far as its words tell."""
    return bool(_CJK.search(text)) or any(one in _LISTED for one in _WORD.findall(_plain(text)))


def binding_passages(text: str) -> tuple[tuple[float, str], ...]:
    """Return the passages of a message, each with how likely it binds later work.

    A short message is one passage, since a rule may stretch over its sentences; else a short paragraph is, and of
    other paragraphs each sentence.
    """
    typed = without_pasted(text[:_MOST_CHARS]).strip()
    if len(typed) <= _LONG:
        parts = [binding_part(one) for one in typed_sentences(text)]
        asks = any(is_question(one) or score < 0 for score, one in parts)
        best = max((score for score, _ in parts), default=0.0)
        return ((best + (0.0 if asks else _SHORT_BONUS), typed),) if parts else ()
    found: dict[str, float] = {}
    for paragraph in _PARAGRAPH.split(typed):
        parts = [binding_part(one) for one in typed_sentences(paragraph)]
        if len(paragraph) <= _LONG and parts:
            parts = [(max(score for score, _ in parts), _BULLET.sub("", paragraph).strip())]
        found.update((part, score) for score, part in parts)
    return tuple((score, part) for part, score in found.items())


@lru_cache(maxsize=1_024)
def binding_part(sentence: str) -> tuple[float, str]:
    """Return how likely a sentence binds later work, and the sentence, or of a long one the clauses that bind most.

    The first is below 1 if the grammar of the sentence does not say that it binds.
    """
    spans = _clauses(sentence)
    plain = _plain(sentence)
    if not spans or (len(_words(plain)) < _LEAST_WORDS and not _kinds(plain)):
        return 0.0, sentence
    asks = is_question(plain)
    scores = [_clause_score(_plain(sentence[start:end])) for start, end in spans]
    first = _plain(sentence[slice(*spans[0])])
    if len(spans) > 1 and not _CJK.search(first) and _words(first)[0] in _CLASS["condition"]:
        scores[0] = scores[1] + 1.0
    inner = 1.5 if scores[0] < 0 else 0.5
    ranked = [scores[0] + 0.5 * len(_kinds(plain) - _kinds(first)) - (3.0 if asks else 0.0)]
    last_asks = asks and scores[0] >= 0  # else the question mark belongs to an earlier clause: "can you ..., ...?"
    ranked += [score - inner for score in scores[1:]]
    if last_asks and len(ranked) > 1:
        ranked[-1] -= 3.0
    best = max(range(len(ranked)), key=ranked.__getitem__)
    return ranked[best] - min(1.0, len(sentence) / _LONG / 2), _around(sentence, spans, best)


def _clauses(sentence: str) -> list[tuple[int, int]]:
    """Return the places of the clauses in a sentence that have a word, without a single word that opens it."""
    cuts = [0, *(one.end() for one in _CLAUSE.finditer(sentence)), len(sentence)]
    spans = [(a, b) for a, b in pairwise(cuts) if _WORD.search(sentence, a, b)]
    opens_by_itself = len(spans) > 1 and sentence[slice(*spans[0])].split()[1:] == [] and not _CJK.match(sentence)
    return spans[1:] if opens_by_itself else spans


def _around(sentence: str, spans: list[tuple[int, int]], best: int) -> str:
    """Return the sentence if it is short, else a clause with as many of those before and after it as fit."""
    first, last = (0, len(spans) - 1) if len(sentence) <= _LONG else (best, best)
    while len(sentence) > _LONG:
        wider = [(first, last + 1)] if last + 1 < len(spans) else []
        wider += [(first - 1, last)] if first else []
        fits = [(a, b) for a, b in wider if spans[b][1] - spans[a][0] <= _LONG]
        if not fits:
            break
        first, last = fits[0]
    return sentence[spans[first][0] : spans[last][1]].strip()


def _clause_score(clause: str) -> float:
    if _CJK.search(clause):
        mood = 0.0 if clause.startswith("我") else 2.0
        return mood + len(_kinds(clause)) - (3.0 if re.search("[吗嗎呢]", clause) else 0.0)
    marks = sum(one in _KIND for one in _words(clause))
    kinds = _kinds(clause)
    return len(kinds) + 0.5 * max(0, marks - len(kinds)) + _mood(_words(clause), kinds)


def _kinds(text: str) -> set[str]:
    if _CJK.search(text):
        return {mark.pattern for mark in _CJK_KINDS if mark.search(text)}
    return {_KIND[one] for one in _words(text) if one in _KIND} | {kind for kind, one in _PHRASES if one.search(text)}


def _plain(text: str) -> str:
    return text.casefold().replace("’", "'")


def _mood(words: list[str], kinds: set[str]) -> float:
    """Return 2 for a clause that tells its reader something, less for a statement, below 0 for talk or a question."""
    first = words[0]
    if _CLASS["narrating"].intersection(words[:3]):
        return -2.0
    if first in _CLASS["asking"] or (first in ("do", "have", "hast") and _CLASS["reader"].intersection(words[1:2])):
        return -2.0
    if first in _CLASS["first person"]:  # the simple present states a habit, unless it is an intention: "I need to"
        return 0.0 if "to" in words[2:3] else 1.0
    if first in _CLASS["reader"] or first in _KIND:
        return 1.5
    has_subject = first in _CLASS["subject"] or first.endswith(("ing", "ed", "'s")) or re.search("[^s]s$", first)
    return (1.0 if "obligation" in kinds else 0.0) if has_subject else 2.0


def _words(clause: str) -> list[str]:
    words = _WORD.findall(clause)
    start = next((at for at, one in enumerate(words) if one not in _CLASS["joining"]), 0)
    return words[start:]
