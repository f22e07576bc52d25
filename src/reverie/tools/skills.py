"""Find, list and load skills: folders with a ``SKILL.md`` that holds instructions for a task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ..errors import ReverieError
from ..memories.store.frontmatter import FrontMatter, parse
from ..values import record
from .context import ToolContext
from .files.text_files import decoded_text
from .files.workspace import open_plain_file

SkillSource: TypeAlias = Literal["project", "user"]

MAX_SKILL_CHARS: Final = 50_000
_MAX_SKILLS: Final = 200
_MAX_BYTES: Final = 400_000
_MAX_NAME: Final = 64
_MAX_DESCRIPTION: Final = 300
_MAX_LISTING: Final = 8_000


@record
class Skill:
    """A skill: its name, when to use it (``description``), its folder, and whether project or user provides it."""

    name: str
    description: str
    folder: Path
    source: SkillSource


def skill_folders(cwd: Path, *, home: Path | None = None, user: Path | None = None) -> list[tuple[Path, SkillSource]]:
    """Return the folders to search for skills, each with its source, highest priority first; they may not exist.

    ``home`` is the user's Reverie directory, ``user`` their home directory; None leaves its folder out.
    """
    found: list[tuple[Path, SkillSource]] = [
        (cwd / ".reverie" / "skills", "project"),
        (cwd / ".claude" / "skills", "project"),
    ]
    if home is not None:
        found.append((home / "skills", "user"))
    if user is not None:
        found.append((user / ".claude" / "skills", "user"))
    return found


def find_skills(folders: Iterable[tuple[Path, SkillSource]]) -> list[Skill]:
    """Return the skills in these folders, about 200 at most, sorted by name; of two with one name the first wins.

    A skill that cannot be read or has no description is left out, because a model could not choose it.
    """
    found: dict[str, Skill] = {}
    for folder, source in folders:
        for skill in _in_folder(folder, source):
            found.setdefault(skill.name, skill)
            if len(found) >= _MAX_SKILLS:
                break
    return [found[name] for name in sorted(found)]


def brief_listing(skills: Sequence[Skill]) -> str:
    """Return one line per skill with name and description; past a size limit only names; empty without skills."""
    lines: list[str] = []
    size = 0
    for at, skill in enumerate(skills):
        line = f"- {skill.name}: {skill.description}"
        size += len(line) + 1
        if size > _MAX_LISTING:
            rest = ", ".join(one.name for one in skills[at:])
            lines.append(f"- and also: {rest[:1_000]}")
            break
        lines.append(line)
    return "\n".join(lines)


def load_skill(skill: Skill) -> str:
    """Return the instructions of a skill, cut at ``MAX_SKILL_CHARS``, after a line that names its folder."""
    body = _read(skill.folder).body.strip()
    if len(body) > MAX_SKILL_CHARS:
        body = f"{body[:MAX_SKILL_CHARS]}\n[cut here: Read {skill.folder / 'SKILL.md'} for the rest]"
    return f"Skill {skill.name}, in {skill.folder} (paths in it are relative to that directory):\n\n{body}"


def _in_folder(folder: Path, source: SkillSource) -> Iterator[Skill]:
    try:
        names = sorted(os.listdir(folder))[:_MAX_SKILLS]
    except OSError:
        return
    for name in names:
        if name.startswith("."):
            continue
        try:
            fields = _read(folder / name).fields
        except (OSError, ReverieError):
            continue
        called, says = fields.get("name") or name, fields.get("description")
        if isinstance(called, str) and isinstance(says, str) and says.strip() and len(called) <= _MAX_NAME:
            yield Skill(_line(called), _line(says)[:_MAX_DESCRIPTION], folder / name, source)


def _read(folder: Path) -> FrontMatter:
    """Return the parsed ``SKILL.md`` of a folder; refuse a link that leads out of the folder."""
    opened = open_plain_file("SKILL.md", ToolContext(cwd=folder))
    with open(opened.descriptor, "rb") as file:
        data = file.read(_MAX_BYTES)
    return parse(decoded_text(data, opened.target)[0])


def _line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
