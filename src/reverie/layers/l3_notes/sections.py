"""The notes as a document of sections: parse, check, render, measure and shorten them. Pure.

A section is a level-1 heading, one italic line that describes it, and its content. Headings and italic lines belong to
the template; only content may change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ...conversation.tokens.estimate import estimate_text
from ...errors import InputError
from ...values import field, record

TITLE: Final = "Session Title"
CURRENT: Final = "Current State"
TASK: Final = "Task specification"
FILES: Final = "Files and Functions"
WORKFLOW: Final = "Workflow"
ERRORS: Final = "Errors & Corrections"
CODEBASE: Final = "Codebase and System Documentation"
LEARNINGS: Final = "Learnings"
RESULTS: Final = "Key results"
WORKLOG: Final = "Worklog"
HEADINGS: Final = (TITLE, CURRENT, TASK, FILES, WORKFLOW, ERRORS, CODEBASE, LEARNINGS, RESULTS, WORKLOG)

_HEADING: Final = re.compile(r"# +(\S.*?)\s*\Z")
_ITALIC: Final = re.compile(r"([_*])\S.*\1\s*\Z")
_GUARDED: Final = re.compile(r"\\+# ")
_UNGUARDED: Final = re.compile(r"\\*# ")


@record
class Section:
    """A section of the template: its heading and the italic line that describes its content."""

    heading: str
    about: str


@record
class Template:
    """The sections of a notes document, in order."""

    sections: tuple[Section, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of the sections, in order."""
        return tuple(section.heading for section in self.sections)


@record
class Notes:
    """The content of each section by heading; a missing section reads as an empty text."""

    sections: Mapping[str, str] = field(default_factory=lambda: {})

    @property
    def empty(self) -> bool:
        """Whether no section has content."""
        return not any(content.strip() for content in self.sections.values())

    def __getitem__(self, heading: str) -> str:
        return self.sections.get(heading, "")


@record
class BudgetExcess:
    """An exceeded token budget: the section (``all`` for the whole document), its tokens and its limit."""

    section: str
    tokens: int
    budget: int


ALL: Final = "all"


def parse_template(text: str) -> Template:
    """Parse a Markdown template; raise ``InputError`` unless each heading is unique and has an italic line."""
    found: list[Section] = []
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for at, line in enumerate(lines):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        about = lines[at + 1] if at + 1 < len(lines) else ""
        if not _ITALIC.match(about):
            raise InputError(f"the notes template says nothing under {line!r}: put one line in _italics_ there")
        found.append(Section(heading.group(1), about.strip()))
    names = [section.heading for section in found]
    if not found or len(set(names)) != len(names):
        raise InputError("the notes template needs at least one '# Heading', and each only once")
    return Template(tuple(found))


def problems(text: str, template: Template) -> list[str]:
    """Return a sentence for each template heading that is missing, moved, repeated or has another italic line."""
    found: list[str] = []
    lines = [line.rstrip() for line in text.splitlines()]
    at = -1
    for section in template.sections:
        places = [place for place, line in enumerate(lines) if _is_heading(line, section.heading)]
        if len(places) != 1:
            found.append(f"the heading '# {section.heading}' occurs {len(places)} times instead of once")
            continue
        if places[0] < at:
            found.append(f"the heading '# {section.heading}' is not in its place")
        at = max(at, places[0])
        after = next((line for line in lines[places[0] + 1 :] if line.strip()), "")
        if after.strip() != section.about:
            found.append(f"the italic line under '# {section.heading}' was changed")
    return found


def parse_notes(text: str, template: Template) -> Notes:
    """Parse a notes document; raise ``InputError`` if its headings or italic lines differ from the template's."""
    wrong = problems(text, template)
    if wrong:
        raise InputError("the notes are damaged: " + "; ".join(wrong))
    contents: dict[str, list[str]] = {}
    current: list[str] = []
    names = set(template.headings)
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading is not None and heading.group(1) in names:
            current = contents.setdefault(heading.group(1), [])
        else:
            current.append(line)
    abouts = {section.heading: section.about for section in template.sections}
    return Notes({name: body for name, lines in contents.items() if (body := _body(lines, abouts[name]))})


def _body(lines: list[str], about: str) -> str:
    """Return a section's content after its italic line, with escaped headings unescaped."""
    at = next(place for place, line in enumerate(lines) if line.strip() == about)
    return "\n".join(line[1:] if _GUARDED.match(line) else line for line in lines[at + 1 :]).strip("\n").rstrip()


def render_notes(notes: Notes, template: Template) -> str:
    """Return the notes as a Markdown document with all template sections; headings in content are escaped."""
    parts: list[str] = []
    for section in template.sections:
        content = clean_content(notes[section.heading])
        guarded = "\n".join(f"\\{line}" if _UNGUARDED.match(line) else line for line in content.split("\n"))
        parts.append(f"# {section.heading}\n{section.about}\n" + (f"\n{guarded}\n" if content else ""))
    return "\n".join(parts)


def clean_content(content: str) -> str:
    """Return content with plain newlines, without trailing white space and without empty lines at the start."""
    return "\n".join(line.rstrip() for line in content.splitlines()).strip("\n").rstrip()


def changed_sections(before: Notes, after: Notes, template: Template) -> dict[str, str]:
    """Return the new content, by heading, of every section that differs; empty for a removed section."""
    pairs = ((name, clean_content(after[name])) for name in template.headings)
    return {name: content for name, content in pairs if content != clean_content(before[name])}


def budget_excesses(notes: Notes, section_tokens: int, total_tokens: int) -> list[BudgetExcess]:
    """Return the sections over ``section_tokens`` and, last, the whole notes if over ``total_tokens``."""
    sizes = {name: estimate_text(content) for name, content in notes.sections.items()}
    found = [BudgetExcess(name, size, section_tokens) for name, size in sizes.items() if size > section_tokens]
    total = sum(sizes.values())
    return [*found, BudgetExcess(ALL, total, total_tokens)] if total > total_tokens else found


def condense_request(found: list[BudgetExcess]) -> str:
    """Return the part of a prompt that asks to condense these sections; empty if there are none."""
    lines = [
        f"- {'All sections together hold' if over.section == ALL else f'`{over.section}` holds'} about {over.tokens} "
        f"tokens, {over.tokens - over.budget} more than there is room for."
        for over in found
    ]
    return "" if not lines else "\n\nToo long, condense in this update:\n" + "\n".join(lines)


def fit_notes(notes: Notes, section_tokens: int, total_tokens: int) -> Notes:
    """Return the notes with long sections cut so that both budgets hold; each cut section says so."""
    sizes = {name: estimate_text(content) for name, content in notes.sections.items()}
    level = _level([min(size, section_tokens) for size in sizes.values()], total_tokens)
    level = min(level, section_tokens)
    out: dict[str, str] = {}
    for name, content in notes.sections.items():
        kept = content if sizes[name] <= level else cut_text(content, level, end=name == WORKLOG)
        if kept:
            out[name] = kept
    return Notes(out)


def _level(sizes: list[int], total: int) -> int:
    """Return the token count to which the larger sections must shrink so that all together fit ``total``."""
    left = total
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > left:
            return left // count
        left -= size
    return max(sizes, default=0)


def cut_text(text: str, tokens: int, *, end: bool = False) -> str:
    """Return a text that fits ``tokens``: unchanged, or cut at whole lines with a line that says so, or empty.

    ``end`` keeps the last lines instead of the first.
    """
    size = estimate_text(text)
    if size <= tokens:
        return text
    note = f"[shortened from about {size} tokens]"
    room = tokens - estimate_text(note) - 2
    if room < 4:
        return ""
    lines = text.split("\n")
    kept: list[str] = []
    for line in reversed(lines) if end else lines:
        cost = estimate_text(line) + 1
        if cost > room:
            if not kept:
                kept.append(line[: max(1, len(line) * room // (cost + 1))])
            break
        room -= cost
        kept.append(line)
    return "\n".join([note, *reversed(kept)] if end else [*kept, note])


def _is_heading(line: str, heading: str) -> bool:
    found = _HEADING.match(line)
    return found is not None and found.group(1) == heading
