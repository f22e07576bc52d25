"""Rules for memories: four types, refused texts with reasons, and descriptions that search can find."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from ...arguments import check_text
from ...text.directives import binding_part
from ...text.words import sentences
from ..recall.terms import tokens, without_noise
from ..store.names import title_for
from ..store.records import MemoryRecord, Scope
from .types import TYPES
from .types import MemoryType as MemoryType

DESCRIPTION_CHARS: Final = 200
_MIN_DESCRIPTION_WORDS: Final = 3
_PART: Final = re.compile(r"\*\*(?:Why|How to apply)(?::\*\*|\*\*:)")
_LINE_MARK: Final = re.compile(r"^[ \t]*(?:#{1,6}|[*+>-])[ \t]+", re.MULTILINE)
_EMPHASIS: Final = re.compile(r"(?<![\w*/])(\*{1,3})(?=\S)([^*\n]+)(?<=\S)\1(?![\w*])")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def route(type_name: str, wanted: Scope | None, *, team: bool) -> Scope:
    """Return the scope for a memory: ``wanted`` or the type's own; ``user`` memories are always private.

    ``team`` says whether the project has team memories; without them every memory is private.
    """
    if not team or type_name == "user":
        return "private"
    if wanted is not None:
        return wanted
    return "team" if type_name in ("project", "reference") else "private"


def body_for(text: str, why: str = "", how: str = "") -> str:
    """Return the body of a memory: the text, then lines with its reason and its use unless it contains them."""
    parts = [text.strip()]
    if why.strip() and "**Why" not in text:
        parts.append(f"**Why:** {why.strip()}")
    if how.strip() and "**How to apply" not in text:
        parts.append(f"**How to apply:** {how.strip()}")
    return "\n\n".join(parts) + "\n"


def log_text(text: str, type_name: str = "", why: str = "") -> str:
    """Return a memory as the text of one line of a daily log: its type, the rule or fact, and its reason."""
    kind = f"{type_name}: " if type_name else ""
    return kind + " ".join(body_for(text, why).split())


def claim_of(body: str) -> str:
    """Return the body of a memory without the lines of its reason and use, which other memories may share."""
    return _PART.split(body, maxsplit=1)[0].strip()


def description_for(text: str) -> str:
    """Return a description of at most 200 characters from the first words of a text, without Markdown signs."""
    prose = _LINE_MARK.sub("", claim_of(text))
    plain = " ".join(_EMPHASIS.sub(r"\2", prose).replace("`", "").split()).strip(" -")
    if len(plain) <= DESCRIPTION_CHARS:
        return plain
    return plain[: DESCRIPTION_CHARS - 1].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"


def revised_fields(old: MemoryRecord, text: str | None, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the fields of a memory that change: those given, and a name or description that was made of its text."""
    made: dict[str, str] = {}
    if text is not None and old.name == title_for(old.body):
        made["name"] = title_for(text)
    if text is not None and old.description == description_for(old.body):
        made["description"] = description_for(text)
    return made | {key: " ".join(value.split()) for key, value in given.items() if value is not None}


# -- texts that are never saved

_PASSING: Final = re.compile(
    r"\b(?:(?:i am|i'm|we are|we're|you are) (?:currently|now|in the middle of|just about to|about to)\b"
    r"|(?:currently|right now|at (?:the|this)(?: very)? moment|for now),? "
    r"(?:i am|i'm|we are|we're|working on|editing|running|debugging)"
    r"|(?:the )?(?:current|next|remaining) (?:step|subtask|todo)s? (?:is|are)\b"
    r"|(?:todo|next)(?: for (?:this|the) (?:session|task|turn))?:\s"
    r"|in this (?:session|conversation|turn),? (?:i|we|you)\b"
    r"|(?:i|we) (?:just|have just) (?:ran|run|edited|created|fixed|finished|added|committed)\b)",
    re.IGNORECASE,
)
_HISTORY: Final = re.compile(
    r"(?<![\w-])(?-i:(?=[0-9]*[a-f])(?![a-f]+[0-9]*\b)(?:[0-9a-f]{40}|[0-9a-f]{7,12}))\b(?!-)"  # not Ed25519, a name
    r"|\b(?:(?:pr|pull request|merge request|mr) #?\d+ (?:was |has been )?"
    r"(?:merged|closed|opened|changed|adds?|added|fixe[sd])"
    r"|(?:merged|closed|opened|reverted) (?:pr|pull request|merge request|mr) #?\d+"
    r"|(?:was|were) (?:committed|merged|reverted|pushed) (?:by|in|on|to|yesterday|today)\b"
    r"|(?:recent|latest|last) (?:commits?|changes?|merges?)(?: (?:are|were|include)\b|:)"
    r"|git (?:log|blame|history) (?:shows|says)\b)",
    re.IGNORECASE,
)
_RECIPE: Final = re.compile(
    r"\b(?:(?:the )?(?:bug|error|issue|failure|crash|exception|test failure)s? (?:was|were|is) "
    r"(?:caused|fixed|solved|resolved) by\b"
    r"|(?:the )?fix (?:was|is) to\b"
    r"|(?:fixed|solved|resolved) (?:it|this|the (?:bug|error|issue|crash|failure)) by\b"
    r"|to (?:fix|solve|debug|reproduce) (?:this|the|that) (?:bug|error|issue|crash|failure|exception)\b"
    r"|root cause(?: was| is|:))",
    re.IGNORECASE,
)
_FENCED: Final = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL)
_TRACE: Final = re.compile(
    r"^Traceback \(|^\s*File \"[^\"\n]+\", line \d+|^\s+at [\w.$<>]+\([^()\n]*:\d+\)|^panic: "
    r"|^thread '[^'\n]*' panicked"
    r"|\b\w+(?:Error|Exception): \S",
    re.MULTILINE,
)
_SOURCE_FILE: Final = re.compile(
    r"[\w./-]+\.(?:py|js|jsx|ts|tsx|go|rs|java|kt|c|cc|cpp|h|hpp|cs|rb|php|swift|scala|sql|sh)\b(?!/)"
    r"|\b\w+\(\)|(?<![\w/])(?:\w+::)+\w+"
)
_CODE_SHARE: Final = 0.6
_SAID_STEMS: Final = 3
_SAID_SHARE: Final = 0.6
_NUMBER: Final = re.compile(r"\d+")

_REASONS: Final = (
    (_PASSING, "it is a passing detail of the task at hand; it will be stale in the next session (use a todo list)"),
    (_HISTORY, "the version history shows it; 'git log' stays right where a copy goes stale"),
    (_TRACE, "it is the output of a failure; the fix is in the code and its reason in the commit message"),
    (_RECIPE, "it is a debugging recipe; the fix is in the code and its reason in the commit message"),
)
_CODE_SHOWS: Final = "the code shows it; reading the code stays right where a copy goes stale"


def refusal(text: str, type_name: str, *, instructions: Sequence[str] = (), reason_given: bool = False) -> str:
    """Return why a text must not be saved as a memory of this type, even on request; empty if it may be.

    ``instructions`` are the texts of instruction files, which every session reads anyway. A statement about a source
    file, and one that shares much with a sentence of an instruction file, is refused unless ``reason_given`` says that
    there is a reason beside it.
    """
    if type_name not in TYPES:
        return f"{type_name!r} is no type of memory; the types are {', '.join(TYPES)}"
    check_text("text", text)
    if not text.strip():
        return "there is no text; say which fact to remember"
    prose = claim_of(text)
    fenced = sum(len(found.group()) for found in _FENCED.finditer(prose))
    has_reason = reason_given or "**Why" in text
    reason = ""
    if fenced > len(prose) * _CODE_SHARE:
        reason = "it is mostly code; the code itself stays right where a copy goes stale"
    elif said := _said(prose, instructions, has_reason):
        reason = f"an instruction file speaks of it ({said!r}); every session reads that, so change it there if need be"
    elif type_name != "reference":  # a reference may name a commit or a file
        reason = next((why for pattern, why in _REASONS if pattern.search(prose)), "")
        if not reason and _SOURCE_FILE.search(prose) and not (has_reason or _is_rule(prose, type_name)):
            reason = _CODE_SHOWS
    if not reason:
        return ""
    return f"not saved: {reason}. Save a surprise or a decision with its reason instead, if there is one"


def _said(text: str, instructions: Sequence[str], has_reason: bool) -> str:
    """Return the sentence of an instruction file with three fifths of a text's stems and all its numbers, if any.

    A text with a reason and a word of its own may add to the sentence or contradict it, so it counts as not said.
    """
    words, numbers = set(tokens(text)), set(_NUMBER.findall(text))
    stems = set(without_noise(words))
    for line in (line for one in instructions for line in sentences(one)):
        said = " ".join(line)
        there = set(tokens(said))
        if has_reason and words - there:
            continue
        if len(stems & there) >= max(_SAID_STEMS, _SAID_SHARE * len(stems)) and numbers <= set(_NUMBER.findall(said)):
            return said
    return ""


def _is_rule(text: str, type_name: str) -> bool:
    """Say whether a text tells its reader to do or to leave something; a project memory mostly states a fact."""
    score, _ = binding_part(" ".join(text.split()))
    return score > (2.0 if type_name == "project" else 1.0)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


# -- descriptions that can be found

_VAGUE: Final = frozenset(
    re.findall(
        r"\w+",
        """
        a about all an and any are as at be been by can data description detail details everything file for from general
        had has have helpful how i in info information important is it its item items know knowledge learned me memory
        memories misc miscellaneous my new note notes of on or other our preference preferences project random reference
        remember saved should some something stuff summary that the their them these they thing things this those to
        todo tips update updates use used useful user users various was we were what when where which who with work you
        your feedback context session conversation
        """,
    )
)
_RELATIVE: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight"
    r"|(?:next|last|this|coming) (?:week|month|quarter|year|sprint|mon|tues|wednes|thurs|fri|satur|sun)\w*"
    r"|in \w+ (?:days|weeks|months)|\w+ (?:days|weeks|months) ago)\b",
    re.IGNORECASE,
)
_WEEKDAY: Final = re.compile(
    r"\b(?:by|until|before|after) (?:mon|tues|wednes|thurs|fri|satur|sun)day\b(?! \d{4}-)", re.IGNORECASE
)


def vagueness(description: str, name: str = "") -> str:
    """Return why a memory's description is useless for search; empty if it is fine."""
    words = _words(_UNSPACED.sub(r" \g<0> ", description))  # a character of a script without spaces counts as a word
    telling = [word for word in words if word not in _VAGUE]
    if not words:
        return "has no description; recall reads nothing else"
    if len(words) < _MIN_DESCRIPTION_WORDS or len(telling) < 2:
        return "has a vague description; name the thing, the place, the person or the rule"
    if name and words == _words(name) and len(telling) < _MIN_DESCRIPTION_WORDS:
        return "has a description that only repeats its name; describe its content"
    if len(description) > DESCRIPTION_CHARS + 100:
        return f"has a description of {len(description)} characters; keep it to one line of about 150"
    return ""


def lint_memory(memory: MemoryRecord, *, today: str = "") -> list[str]:
    """Return the faults of a memory with loaded body and notes on its form, a phrase each.

    Expiry is checked if ``today`` is given.
    """
    return [*(reason for _, reason in faults_of(memory, today=today)), *_notes_on(memory)]


def faults_of(memory: MemoryRecord, *, today: str = "") -> list[tuple[Literal["wrong", "stale"], str]]:
    """Return why a memory with loaded body is wrong or stale, a phrase each; notes on its form are left out."""
    if memory.problem:
        return [("wrong", f"cannot be read: {memory.problem}")]
    if memory.superseded_by:
        return []
    found: list[tuple[Literal["wrong", "stale"], str]] = []
    if vague := vagueness(memory.description, memory.name):
        found.append(("wrong", vague))
    if memory.type not in TYPES:
        found.append(("wrong", f"has the type {memory.type!r}; the types are {', '.join(TYPES)}"))
    if memory.name.endswith("(conflict)"):
        reason = "is a second version of a memory that two people changed; remove one and rename the other"
        found.append(("wrong", reason))
    if memory.type == "project" and (relative := _RELATIVE.search(memory.body)):
        found.append(("stale", _date_wanted(relative)))
    if memory.has_expired(today):
        found.append(("stale", f"expired on {memory.expires[:10]}; update or forget it"))
    return found


def _notes_on(memory: MemoryRecord) -> list[str]:
    """Return notes on a missing reason and on weekdays without a date; the memory may be right all the same."""
    if memory.problem or memory.superseded_by:
        return []
    found: list[str] = []
    if memory.type in ("feedback", "project") and "**Why" not in memory.body:
        found.append("has no line '**Why:** ...', where later readers look for its reason; --why TEXT adds one")
    if memory.type == "project" and (weekday := _WEEKDAY.search(memory.body)):
        found.append(_date_wanted(weekday))  # the day may recur
    return found


def _date_wanted(phrase: re.Match[str]) -> str:
    return f"says {phrase.group()!r}; if that is one day, write its date"
