"""Turn a session into a skill: a SKILL.md in the Agent Skills format, from notes and user messages. Pure.

A model writes it from ``skill_prompt``, and ``skill_from_answer`` checks the answer. Without a model
``skill_skeleton`` sorts the notes into a file with TODO lines for the missing parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from ...conversation.authorship import own_words
from ...conversation.cuts import LoggedCut
from ...conversation.decisions import Compacted
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...errors import InputError
from ...memories.rules.secrets import find_secrets, without_secrets
from ...memories.store.frontmatter import FrontMatter, parse, render
from ...values import record
from .local import take_notes
from .policy import NotesPolicy
from .prompts import fill_prompt, prompt_of
from .sections import (
    CODEBASE,
    CURRENT,
    ERRORS,
    FILES,
    HEADINGS,
    LEARNINGS,
    RESULTS,
    TASK,
    TITLE,
    WORKFLOW,
    WORKLOG,
    Notes,
    cut_text,
)
from .tool_effects import one_line

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_NAME_CHARS: Final = 64
_DESCRIPTION_CHARS: Final = 1_024
_BODY_LINES: Final = 500
_MIN_BODY_CHARS: Final = 40
"""The fewest letters and digits, outside headings, of instructions that say something."""
_MIN_TASK_CHARS: Final = 24
"""The fewest letters of user messages that make a skill if the notes have no work; "hello" is no task."""
_LINES: Final = 24
_RESULT_LINES: Final = 8
_SECTION_TOKENS: Final = 700
_MESSAGE_TOKENS: Final = 1_500
_NOTES_SHARE: Final = 0.6
_FENCED: Final = re.compile(r"```\w*[ \t]*\n(?=---)(.*)\n```", re.DOTALL)
_OPENING: Final = re.compile(r"^---[ \t]*$", re.MULTILINE)
_TAG: Final = re.compile(r"</?\w[\w-]*>")
_HEADING: Final = re.compile(r"^#.*$", re.MULTILINE)


@record
class Skill:
    """A skill: its name, its description (with when to use it) and its instructions."""

    name: str
    description: str
    body: str


@record
class SkillMaterial:
    """The parts of a session that a skill is made of, without secrets: notes, and user messages, oldest first."""

    notes: Notes
    words: tuple[str, ...]


def skill_material(view: View) -> SkillMaterial:
    """Return the notes of a view, taken now if it has none, and its user messages since the last compaction.

    Raise ``InputError`` if they hold too little to make a skill of.
    """
    kept = Notes(dict(view.facts.notes))
    taken = take_notes(view) if kept.empty else kept
    notes = Notes({heading: _visible(without_secrets(text)) for heading, text in taken.sections.items()})
    words = tuple(_visible(without_secrets(said)) for said in words_since_compaction(view))
    if not _has_content(notes, words):
        raise InputError(
            "there is nothing to make a skill of: the session has no task with work in its notes or in messages of "
            "the user since the last compaction"
        )
    return SkillMaterial(notes, words)


def words_since_compaction(view: View) -> list[str]:
    """Return the texts of the user messages since the last compaction that was not undone, oldest first."""
    said: list[str] = []
    for one in view.each():
        if isinstance(one, LoggedCut):
            if isinstance(one.cut, Compacted) and one.uuid not in view.facts.undone:
                said = []
        elif words := own_words(one.entry):
            said.append(words)
    return said


def skill_name(text: str) -> str:
    """Return a valid skill name from the first words of a text; ``session-skill`` if it has none."""
    plain = unicodedata.normalize("NFKD", text.lower().replace("ß", "ss"))
    words = re.findall(r"[a-z0-9]+", "".join(letter for letter in plain if not unicodedata.combining(letter)))
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word
        if len(longer) > _NAME_CHARS:
            break
        name = longer
    return name or "session-skill"


def checked_name(name: str) -> str:
    """Return a skill's name unchanged; raise ``InputError`` if the format does not allow it."""
    if len(name) > _NAME_CHARS or not _NAME.match(name):
        raise InputError(
            f"{name[:80]!r} cannot name a skill: lower-case letters, digits and single hyphens, at most 64"
        )
    return name


# -- with a model


def skill_prompt(material: SkillMaterial, *, tag: str, tokens: int) -> str:
    """Return the prompt that asks a model for a SKILL.md, with about ``tokens`` of notes and messages.

    ``tag`` is a random word in the tags around both, so that no text inside can close them.
    """
    sections = [f"# {name}\n{text}" for name, text in material.notes.sections.items() if text.strip()]
    notes = cut_text("\n\n".join(sections), int(tokens * _NOTES_SHARE))
    messages = _fitting_messages(material.words, tokens - estimate_text(notes))
    return fill_prompt(prompt_of(NotesPolicy(), "skill"), {"tag": tag, "notes": notes, "messages": messages})


def skill_from_answer(answer: str, *, name: str = "") -> Skill:
    """Return the skill in a model's answer, called ``name`` if given; raise ``InputError`` with all that is wrong."""
    found = parse(_file_in(answer))
    called, description = found.fields.get("name", ""), found.fields.get("description", "")
    if not isinstance(called, str) or not isinstance(description, str):
        raise InputError("name and description must each be one line of text")
    skill = Skill(name or called.strip(), _one_line_of(description), _visible(found.body).strip())
    if problems := _problems(skill):
        raise InputError("; ".join(problems))
    return skill


def render_skill(skill: Skill) -> str:
    """Return the text of the SKILL.md file of a skill."""
    return render(FrontMatter({"name": skill.name, "description": skill.description}, f"\n{skill.body.strip()}\n"))


# -- without a model


def skill_skeleton(material: SkillMaterial, *, name: str = "") -> Skill:
    """Build a skill without a model: the notes, sorted, with a line that begins with TODO for each missing part.

    Raise ``InputError`` if ``name`` is not a valid skill name.
    """
    notes, words = material.notes, material.words
    title = one_line(notes[TITLE] or (words[0] if words else _first_line(notes)), 120)
    asked = one_line(_TAG.sub(" ", notes[TASK] or (words[0] if words else title)), 400)
    parts = [
        f"# {title}",
        "",
        "This skeleton was made without a model. Replace each line that begins with TODO, check the others, and "
        "delete this line.",
    ]
    parts += _part("When to use it", [asked, "", "TODO: describe the kind of task in general, without this one case."])
    parts += _part("Rules of the user", _bullets(words[1:]))
    parts += _part("Steps", _lines(notes[WORKFLOW]) or ["TODO: list the steps in order, with the exact commands."])
    shown = [f"> {line}" for line in _lines(notes[RESULTS])[:_RESULT_LINES]]
    check = "TODO: name a check for each step."
    parts += _part("How to tell that it worked", [*shown, "", check] if shown else [check])
    parts += _part("Problems and their fixes", _lines(notes[ERRORS]))
    parts += _part("Where things are", [*_lines(notes[FILES])[: _LINES // 2], *_lines(notes[CODEBASE])[:3]])
    parts += _part("Lessons", _lines(notes[LEARNINGS]))
    for heading in notes.sections:
        if heading not in HEADINGS:  # a section of the user's own template
            parts += _part(heading, _lines(notes[heading]))
    description = _one_line_of(f"{title.rstrip('.')}. Use it for tasks like this one: {asked}")
    called = checked_name(name) if name else skill_name(title)
    skill = Skill(called, description[:_DESCRIPTION_CHARS], "\n".join(parts))
    if problems := _problems(skill):
        raise InputError(f"no skill can be made of this session: {'; '.join(problems)}")
    return skill


# -- inside


def _has_content(notes: Notes, words: Sequence[str]) -> bool:
    """Say whether notes or messages have a task, and work on it or enough words about it."""
    about = " ".join([notes[TITLE], notes[TASK], *words])
    no_work = (TITLE, TASK, CURRENT, WORKLOG, RESULTS)  # a greeting is answered too
    work = [text for heading, text in notes.sections.items() if heading not in no_work]
    letters = sum(letter.isalnum() for letter in about)
    return letters >= _MIN_TASK_CHARS or (letters > 0 and any(text.strip() for text in work))


def _problems(skill: Skill) -> list[str]:
    """Return a sentence for each rule of the format, and of ours, that a skill breaks."""
    found: list[str] = []
    try:
        checked_name(skill.name)
    except InputError as error:
        found.append(str(error))
    if not skill.description:
        found.append("the description is missing")
    if len(skill.description) > _DESCRIPTION_CHARS:
        found.append(f"the description has {len(skill.description):,} characters, and {_DESCRIPTION_CHARS:,} is most")
    if sum(letter.isalnum() for letter in _HEADING.sub("", skill.body)) < _MIN_BODY_CHARS:
        found.append("the instructions below the front matter are missing")
    if (lines := skill.body.count("\n") + 1) > _BODY_LINES:
        found.append(f"the instructions have {lines:,} lines, and {_BODY_LINES} is most")
    for kind in dict.fromkeys(one.rule for one in find_secrets(f"{skill.description}\n{skill.body}")):
        found.append(f"it contains a secret ({kind}): name where the secret is kept instead")
    return found


def _file_in(answer: str) -> str:
    """Return the part of an answer from its front matter on, without a code fence around it."""
    fenced = _FENCED.search(answer)
    text = fenced.group(1) if fenced else answer
    opening = _OPENING.search(text)
    if opening is None:
        raise InputError("the front matter is missing: begin with a line '---', then name and description, then '---'")
    return text[opening.start() :]


def _fitting_messages(words: Sequence[str], tokens: int) -> str:
    """Return the user's messages as text within ``tokens``: the first, then the newest; long ones are cut."""
    shown = {at: cut_text(said, _MESSAGE_TOKENS) for at, said in enumerate(words)}
    room = tokens
    kept: list[int] = []
    for at in dict.fromkeys([0, *range(len(words) - 1, 0, -1)] if words else []):
        room -= estimate_text(shown[at]) + 8
        if room < 0 and kept:
            break
        kept.append(at)
    left = len(words) - len(kept)
    lines = [f"{at + 1}. {shown[at]}" for at in sorted(kept)]
    return "\n\n".join([*lines[:1], *([f"[{left} messages left out]"] if left else []), *lines[1:]])


def _one_line_of(text: str) -> str:
    """Return a text as one line that every parser of front matter reads: three hyphens would end it for some."""
    return re.sub(r"-{3,}", "--", " ".join(_visible(text).split()))


def _visible(text: str) -> str:
    """Return a text without characters that a terminal or a reader does not show."""
    hidden = {letter for letter in set(text) if not (letter.isprintable() or letter in "\n\t")}
    return text.translate({ord(letter): " " if letter.isspace() else "" for letter in hidden})


def _first_line(notes: Notes) -> str:
    return next((line.strip() for text in notes.sections.values() for line in text.split("\n") if line.strip()), "")


def _part(title: str, lines: Iterable[str]) -> list[str]:
    kept = list(lines)
    return ["", f"## {title}", "", *kept] if any(line.strip() for line in kept) else []


def _lines(content: str) -> list[str]:
    return [line for line in cut_text(content, _SECTION_TOKENS).split("\n") if line.strip()][:_LINES]


def _bullets(words: Sequence[str]) -> list[str]:
    return [f"- {one_line(text, 300)}" for text in words if len(text) >= 16][:_LINES]
