"""Turn an edited working copy into a list of changes. Pure.

The changes are the differences. Fields that a text may not set itself (trust, source, creation time, scope) are set
here, and a link to a merged memory is pointed to its new file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final

from ...errors import InputError
from ...memories.recall.terms import tokens, without_noise
from ...memories.store.frontmatter import Value
from ...memories.store.names import is_memory
from ...memories.store.records import MemoryRecord, front_matter, read_record, revised_text
from ...memories.store.trust import TRUSTS, Trust, worst
from ...text.dates import absolute
from ...text.words import sentences
from ...values import field, record, replace
from .changes import DreamProposal, FileChange
from .links import relinked, without_links

_SUPPORTED: Final = 0.7
_MOST_CHARS: Final = 4_000_000
_SHOWN_CHARS: Final = 80


@record
class ModelStatements:
    """The statements of a model about its dream: the reason by file, and the target of each merged file."""

    why: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    into: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())


def records_of(files: Mapping[str, bytes], trusts: Mapping[str, Trust] | None = None) -> dict[str, MemoryRecord]:
    """Return every file parsed as a memory; ``trusts`` may lower the trust that a file claims."""
    known = trusts or {}
    found = {file: read_record(file, data) for file, data in files.items()}
    return {file: replace(one, trust=worst((one.trust, known.get(file, one.trust)))) for file, one in found.items()}


def lowered(dreamed: DreamProposal, old: Mapping[str, MemoryRecord]) -> DreamProposal:
    """Return the proposal with the trust of each text lowered to that of the texts in ``old`` it was made from."""
    changes: list[FileChange] = []
    for change in dreamed.changes:
        parts = [one.file for one in dreamed.changes if one.into == change.file and one.after is None]
        known: list[Trust] = [old[file].trust for file in (change.file, *parts) if file in old]
        changes.append(_lowered(change, worst(known)) if change.after is not None and known else change)
    return replace(dreamed, changes=tuple(changes))


def _lowered(change: FileChange, trust: Trust) -> FileChange:
    assert change.after is not None
    if worst((read_record(change.file, change.after).trust, trust)) == read_record(change.file, change.after).trust:
        return change
    try:
        return replace(change, after=revised_text(change.after.decode(), {"trust": trust}).encode())
    except (InputError, UnicodeDecodeError):
        return change


def whole_text(memory: MemoryRecord) -> str:
    """Return the name, description and body of a memory, each as a paragraph."""
    return f"{memory.name}\n\n{memory.description}\n\n{memory.body}"


def changes_between(
    before: Mapping[str, bytes],
    copy: Mapping[str, bytes],
    told: ModelStatements,
    local: DreamProposal,
    *,
    old: Mapping[str, MemoryRecord],
    now: str,
    support: Support | None = None,
) -> tuple[tuple[FileChange, ...], tuple[FileChange, ...]]:
    """Return the local dreamer's changes that the copy still has, and the changes that a model made after it.

    ``before`` and ``copy`` are the files before the dream and as edited; ``old`` are the parsed memories before;
    ``support`` holds other trusted text that the model read.
    """
    theirs = {change.file: change for change in local.changes}
    support = support or Support(old)
    gone = [file for file in before if file not in copy]
    into = _destinations(gone, before, copy, told, local)
    made: dict[str, FileChange] = {}
    for file in sorted(copy.keys() | set(gone)):
        data = copy.get(file)
        if file in theirs and theirs[file].after == data:
            continue
        why = told.why.get(file, "")
        if data is None:
            target = into.get(file, "")
            act = "merged" if target else "removed"
            why = why or (f"its content is in {target}" if target else "the model gave no reason")
            made[file] = FileChange(file, before[file], None, act, why, target)
        elif data != before.get(file) or file in theirs:
            merged = [one for one, target in into.items() if target == file]
            settled = _settled(file, data, old.get(file), [old[one] for one in merged], support, now)
            made[file] = FileChange(file, before.get(file), settled, "changed" if file in before else "added", why)
    for file in _need_sources(into, copy, made, old, theirs):
        merged = [old[one] for one, target in into.items() if target == file]
        data = _settled(file, copy[file], old[file], merged, support, now)
        why = f"takes in {', '.join(one.file for one in merged)}"
        made[file] = FileChange(file, before[file], data, "changed", why)
    _follow_links(before, copy, into, made)
    kept = tuple(one for one in local.changes if copy.get(one.file) == one.after and one.file not in made)
    return kept, tuple(change for change in made.values() if change.before != change.after)


def _destinations(
    gone: Iterable[str],
    before: Mapping[str, bytes],
    copy: Mapping[str, bytes],
    told: ModelStatements,
    local: DreamProposal,
) -> dict[str, str]:
    """Return, by removed file, the file that contains all its sentences, preferring the stated one."""
    theirs = {change.file: change for change in local.changes}
    texts = {file: whole_text(read_record(file, data)) for file, data in copy.items()}
    found: dict[str, str] = {}
    for file in gone:
        if file in theirs and theirs[file].after is None:
            if theirs[file].into:
                found[file] = theirs[file].into
            continue
        said = told.into.get(file, "")
        text = read_record(file, before[file]).body
        fresh = [one for one in texts if copy[one] != before.get(one)]
        for target in dict.fromkeys([said, *fresh] if text.strip() else []):
            if target in texts and not missing(text, texts[target], written_on=local.written_on.get(file)):
                found[file] = target
                break
    return found


def _need_sources(
    into: Mapping[str, str],
    copy: Mapping[str, bytes],
    made: Mapping[str, FileChange],
    old: Mapping[str, MemoryRecord],
    theirs: Mapping[str, FileChange],
) -> list[str]:
    """Return the unedited files into which a model merged others, whose source fields must still be extended."""
    new = (target for file, target in into.items() if file not in theirs)
    return [file for file in dict.fromkeys(new) if file not in made and file in copy and file in old]


def _settled(
    file: str, data: bytes, old: MemoryRecord | None, merged: list[MemoryRecord], support: Support, now: str
) -> bytes:
    """Return a file's bytes with trust, source, dates and scope set here; unreadable bytes stay as they are."""
    try:
        text = data.decode()
        matter = front_matter(text)
    except (UnicodeDecodeError, InputError):
        return data
    given = read_record(file, data)
    parts = [one for one in (old, *merged) if one is not None]
    said = whole_text(given)
    trust = support.trust(said, over=old)
    trust = worst((trust, *(one.trust for one in merged)))
    sources = list(dict.fromkeys(source for one in parts for source in one.source))
    same = old is not None and said == whole_text(old) and not merged
    fields: dict[str, Value | None] = {
        "type": given.type or (old.type if old else "") or "project",
        "source": sources[0] if len(sources) == 1 else sources or (None if old else "dream"),
        "trust": trust if old is None or trust != "agent" or "trust" in matter.fields else None,
        "expires": (old.expires if old else "") or None,
        "scope": None,
        "created": (old.created if old else now) or None,
        "modified": (old.modified if same and old else now) or None,
    }
    if old is not None:
        fields.update((key, value) for key, value in old.extra.items() if key not in given.extra)
    if not matter.fields and old is not None and not old.type:
        fields = {}  # a person's file without front matter stays without it
    try:
        return revised_text(text, fields).encode()
    except InputError:
        return data


def _follow_links(
    before: Mapping[str, bytes], copy: Mapping[str, bytes], into: Mapping[str, str], made: dict[str, FileChange]
) -> None:
    """Add changes to ``made`` that point links to merged memories to their new file and alter nothing else."""
    there = frozenset(copy)
    for file in sorted(before) if into else ():
        now = made[file].after if file in made else copy.get(file)
        if now is None or not is_memory(file):
            continue
        links = relinked(file, now.decode("utf-8", "surrogateescape"), there=there, moved=into, gone=None)
        if links.led_on:
            why = made[file].why if file in made else "a link follows the memory it named"
            data = links.text.encode("utf-8", "surrogateescape")
            made[file] = FileChange(file, before[file], data, "changed", why)


class Support:
    """The sentences of the memories with their trust, and the words of trusted text, to judge a model's text."""

    def __init__(self, memories: Mapping[str, MemoryRecord]) -> None:
        """Index these memories, as they were before the dream."""
        self._trust: dict[tuple[str, ...], Trust] = {}
        self._vouched: set[str] = set()
        self._left = _MOST_CHARS
        for memory in memories.values():
            text = f"{memory.name}\n\n{memory.description}\n\n{memory.body}"
            for sentence in sentences(text):
                known: Trust = self._trust.get(sentence, "unconfirmed")
                self._trust[sentence] = memory.trust if _is_better(memory.trust, known) else known
            if memory.trust != "unconfirmed":
                self.vouch(text)

    def vouch(self, text: str) -> None:
        """Add the words of a text that deserves agent trust, such as a line of a daily log."""
        self._vouched.update(without_noise(tokens(text[: self._left])))
        self._left = max(0, self._left - len(text))

    def trust(self, text: str, *, over: MemoryRecord | None = None) -> Trust:
        """Return the trust of a model's text: the lowest of its sentences, and of ``over``, which it replaces.

        A new text, or one that leaves out a sentence of ``over``, gets agent trust at best.
        """
        said = sentences(text)
        own = [one for one in said if one not in self._trust]
        found: list[Trust] = [self._trust[one] for one in said if one in self._trust]
        if own:
            found.append(self._supported("\n".join(map(" ".join, own))))
        if over is not None:
            found.append(over.trust)
        if over is None or any(one not in said for one in sentences(over.body)):
            found.append("agent")  # leaving a sentence out can reverse the meaning of the rest
        return worst(found)

    def _supported(self, text: str) -> Trust:
        words = set(without_noise(tokens(text)))
        if not words or len(words & self._vouched) < _SUPPORTED * len(words):
            return "unconfirmed"
        return "agent"


def _is_better(one: Trust, other: Trust) -> bool:
    return TRUSTS.index(one) < TRUSTS.index(other)


def missing(old: str, new: str, *, written_on: date | None = None) -> list[str]:
    """Return the sentences of ``old`` that ``new`` lacks, normalised and cut to 80 characters.

    ``written_on`` is the date from which relative dates of ``old`` may have become absolute in ``new``.
    """
    there = set(sentences(without_links(new)))
    plain = without_links(old)
    lost = [one for one in sentences(plain) if one not in there]
    if lost and written_on is not None:
        dated = absolute(plain, written_on).text
        lost = [one for one in sentences(dated) if one not in there]
    return [" ".join(one)[:_SHOWN_CHARS] for one in lost]
