"""The local dreamer: tidy memories without a model. Pure and deterministic.

It makes only certain changes: it merges memories with equal words, makes English dates absolute, repairs links,
shortens descriptions and removes expired memories. It asks about similar memories, and about those whose last date has
passed. Relative dates in other languages stay. It repeats until nothing changes, so a second dream on its result
changes nothing.
"""

from __future__ import annotations

import re
from calendar import month_abbr, month_name, monthrange
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final

from ...errors import InputError
from ...memories.rules.taxonomy import description_for
from ...memories.store.frontmatter import Value
from ...memories.store.index import LINE_CHARS
from ...memories.store.records import MemoryRecord, revised_text
from ...memories.store.trust import worst
from ...text.counts import counted
from ...text.dates import absolute, iso_day, without_quotes
from ...text.words import has_run, words
from .changes import DreamFacts, DreamProposal, Question
from .comparison import adds_words, equal_groups, similar_groups, similarity_question
from .links import relinked
from .plan import missing
from .policy import DreamPolicy
from .working_copy import WorkingCopy, day_of

__all__ = ["DreamFacts", "dream"]

_ROUNDS: Final = 12
_MIN_CHARS: Final = 60
_BREAK: Final = re.compile(r"(?<=[.;!?])\s|,\s|\s[—–-]\s|:\s|\s\(")
_GERMAN: Final = {"januar": 1, "februar": 2, "märz": 3, "mai": 5, "juni": 6, "juli": 7, "oktober": 10, "dezember": 12}
_NAMES: Final = _GERMAN | {
    name.lower(): number for names in (month_name, month_abbr) for number, name in enumerate(names) if name
}
_MONTH: Final = "|".join(sorted(_NAMES, key=len, reverse=True))
_END: Final = "(?:st|nd|rd|th|\\.)?"
_DATE: Final = re.compile(
    rf"""(?<![\w.-])(?:
      (?P<y1>\d{{4}})-(?P<m1>\d\d)(?:-(?P<d1>\d\d))?(?![\w-])
    | (?P<d2>\d{{1,2}})\.[ ]?(?P<m2>\d{{1,2}})\.[ ]?(?P<y2>\d{{4}})(?!\d)
    | (?:(?P<d3>\d{{1,2}}){_END}[ ])?(?P<m3>{_MONTH})\.?[ ](?:(?P<d4>\d{{1,2}}){_END},?[ ])?(?P<y3>\d{{4}})(?!\d)
    )|(?P<y5>\d{{4}})年(?P<m5>\d{{1,2}})月(?:(?P<d5>\d{{1,2}})日)?""",
    re.IGNORECASE | re.VERBOSE,
)


def dream(
    files: Mapping[str, bytes], *, now: datetime, policy: DreamPolicy, facts: DreamFacts | None = None
) -> DreamProposal:
    """Return the changes that these memory files need, and the questions for a person.

    ``files`` are the private memories by their path beneath the directory. The time is only compared with expiry dates;
    relative dates count from the date of the file. Deletions never exceed the caps of the policy.
    """
    known = facts or DreamFacts()
    copy = WorkingCopy(files, known)
    questions = [
        Question("unreadable", (file,), f"{file} cannot be read: {problem}. It is left as it is; mend it by hand.")
        for file, problem in copy.unreadable.items()
    ]
    questions += _remove_expired(copy, now, policy)
    days = {file: day for file, memory in copy.ours.items() if (day := day_of(memory))}
    for _ in range(_ROUNDS):
        before = dict(copy.files)
        there = frozenset(copy.files) | known.known_paths
        for file in copy.ours:
            _tidy(copy, file, policy, known, there)
        _merge(copy, policy)
        if copy.files == before:
            break
    groups = similar_groups(copy.ours, policy.similar, known.alike)
    questions += [similarity_question([copy.record(file) for file in group]) for group in groups]
    questions += _undated(copy)
    questions += _ended(copy, now.date())
    return DreamProposal(copy.changes(), tuple(questions), written_on=days)


# -- one file at a time


def _tidy(copy: WorkingCopy, file: str, policy: DreamPolicy, facts: DreamFacts, there: frozenset[str]) -> None:
    """Make a memory's dates absolute, repair its links and shorten its description, all in the working copy."""
    memory = copy.record(file)
    day = day_of(memory)
    name, hook, body = (absolute(text, day) for text in (memory.name, memory.description, memory.body))
    links = relinked(file, body.text, there=there, moved=copy.moved, gone=facts.missing_paths)
    has_front_matter = copy.files[file].startswith(b"---")
    description, text = shortened(hook.text or (_described(links.text) if has_front_matter else ""), links.text)
    why: list[str] = []
    if replaced := (*name.replaced, *hook.replaced, *body.replaced):
        shown = ", ".join(dict.fromkeys(f"'{old}' is {new}" for old, new in replaced[:5]))
        why.append(f"dates made absolute by the day it was written, {day}: {shown}")
    if links.dead:
        why.append(f"links to {', '.join(dict.fromkeys(links.dead))} led nowhere and are plain text")
    if links.led_on:
        why.append(f"links to {', '.join(dict.fromkeys(links.led_on))} lead to where these were merged into")
    if description != hook.text:
        why.append("the description fits a line of the index" if hook.text else "a description, taken from its text")
    fields: dict[str, Value | None] = {}
    if name.replaced:
        fields["name"] = name.text
    if description != memory.description:
        fields["description"] = description
    if fields or text != memory.body:
        _write(copy, memory, fields, text, "; ".join(why), policy)


def _described(body: str) -> str:
    return shortened(description_for(body.split("\n\n", 1)[0]), body)[0]


def _write(
    copy: WorkingCopy,
    memory: MemoryRecord,
    fields: Mapping[str, Value | None],
    body: str,
    why: str,
    policy: DreamPolicy,
) -> None:
    old = copy.text(memory.file)
    try:
        text = revised_text(old, fields, None if body == memory.body else body)
    except InputError:
        return
    size = len(text.encode())
    if text != old and (size <= policy.max_file_bytes or size <= len(old.encode())):
        copy.write(memory.file, text, why)


def _undated(copy: WorkingCopy) -> list[Question]:
    """Return a question for each project memory that has a relative date and no known date of writing."""
    found: list[Question] = []
    for file, memory in copy.ours.items():
        if memory.type == "project" and day_of(memory) is None:
            for phrase in absolute(memory.body, None).unknown[:1]:
                text = f"{file} says “{phrase}” and not when it was written. Write the date that is meant."
                found.append(Question("vague", (file,), text))
    return found


def _ended(copy: WorkingCopy, today: date) -> list[Question]:
    """Return a question for each memory whose last date was ahead when it was written, and has passed."""
    found: list[Question] = []
    for file, memory in copy.ours.items():
        last, written = last_day(memory.body), day_of(memory)
        if last and written and written < last < today and not copy.why[file]:
            text = f"{file} names {last}, which has passed since it was written. Does it still hold? If not, forget it."
            found.append(Question("ended", (file,), text))
    return found


# -- several files


def _remove_expired(copy: WorkingCopy, now: datetime, policy: DreamPolicy) -> list[Question]:
    """Remove expired memories from the copy if all fit the caps; else set them aside and return questions.

    All or none: removing some each day would only slow a mass deletion down.
    """
    today = now.date()
    expired = [one for one in copy.ours.values() if (day := iso_day(one.expires)) and day < today]
    most = min(policy.max_deleted_files, int(policy.max_deleted_share * len(copy.before)))
    if len(expired) <= most:
        for memory in expired:
            copy.remove(memory.file, f"expired on {memory.expires[:10]}")
        return []
    copy.aside |= {memory.file for memory in expired}
    return [
        Question(
            "expired",
            (memory.file,),
            f"{memory.file} expired on {memory.expires[:10]}. Expired: {counted(len(expired), 'memory')}; a dream "
            f"may delete {most}. Forget it, or give it another date.",
        )
        for memory in expired
    ]


def _merge(copy: WorkingCopy, policy: DreamPolicy) -> None:
    """Merge memories with equal words and trust in the working copy; an existing file stays rather than a draft.

    Of different trust, the merged one would have the lower: a copy by a program would lower the trust of the user's.
    """
    for group in equal_groups(copy.ours):
        kept, *others = sorted(group, key=lambda file: (file in copy.drafts, -adds_words(copy.record(file)), file))
        for gone in others:
            text = merged_text(copy.record(kept), copy.text(kept), copy.record(gone))
            adds = adds_words(copy.record(gone), copy.record(kept))
            is_less = copy.record(gone).trust != copy.record(kept).trust
            if text is None or adds or is_less or len(text.encode()) > policy.max_file_bytes:
                continue
            if text != copy.text(kept):
                copy.write(kept, text, f"also holds the text of {gone}")
            copy.merge(gone, kept)


def merged_text(kept: MemoryRecord, text: str, gone: MemoryRecord) -> str | None:
    """Return ``text``, the file of ``kept``, with the sources of both; None if that loses a sentence of ``gone``.

    Trust is the lower of both, the creation date the earlier one, the modification date the later one.
    """
    if missing(gone.body, kept.body):
        return None
    try:
        return revised_text(text, _fields(kept, gone))
    except InputError:
        return None


def _fields(kept: MemoryRecord, gone: MemoryRecord) -> dict[str, Value | None]:
    """Return the front matter fields of ``kept`` that change in the merge; None deletes a field."""
    fields: dict[str, Value | None] = {}
    sources = list(dict.fromkeys((*kept.source, *gone.source)))
    if tuple(sources) != kept.source:
        fields["source"] = sources[0] if len(sources) == 1 else sources
    trust = worst((kept.trust, gone.trust))
    if trust != kept.trust:
        fields["trust"] = trust
    created = min((one for one in (kept.created, gone.created) if one), default="")
    modified = max(kept.modified, gone.modified)
    # A missing date means no expiry; the later date never removes a memory sooner.
    expires = max(kept.expires, gone.expires) if kept.expires and gone.expires else ""
    fields |= {
        key: new or None
        for key, old, new in (
            ("created", kept.created, created),
            ("modified", kept.modified, modified),
            ("expires", kept.expires, expires),
            ("description", kept.description, kept.description or gone.description),
        )
        if new != old
    }
    return fields | {key: value for key, value in gone.extra.items() if key not in kept.extra}


# -- the index


def shortened(description: str, body: str) -> tuple[str, str]:
    """Return a description cut to one index line, and a body that holds all words of a cut description."""
    plain = " ".join(description.split())
    if len(plain) <= LINE_CHARS:
        return description, body
    breaks = [found.start() for found in _BREAK.finditer(plain[: LINE_CHARS + 1]) if found.start() >= _MIN_CHARS]
    if breaks:
        short = plain[: breaks[-1]].rstrip(" ,;:—–-(")
    else:
        cut = plain[: LINE_CHARS - 1]
        short = (cut.rsplit(" ", 1)[0] if " " in cut[_MIN_CHARS:] else cut).rstrip(" ,;:—–-(") + "…"
    if has_run(words(body), words(plain)):
        return short, body
    text = plain if plain[-1] in ".!?…" else f"{plain}."
    return short, f"{body.rstrip()}\n\n{text}\n" if body.strip() else f"{text}\n"


def last_day(text: str) -> date | None:
    """Return the latest day that a text names in figures outside quotes; a month without a day means its last one."""
    return max((day for found in _DATE.finditer(without_quotes(text)) if (day := _day(found))), default=None)


def _day(found: re.Match[str]) -> date | None:
    year, month = (next(found[f"{part}{at}"] for at in (1, 2, 3, 5) if found[f"{part}{at}"]) for part in "ym")
    number = _NAMES.get(month.lower()) or int(month)
    day = next((found[f"d{at}"] for at in range(1, 6) if found[f"d{at}"]), None)
    try:
        return date(int(year), number, int(day) if day else monthrange(int(year), number)[1])
    except ValueError:
        return None
