"""Read the template and prompt files of the notes, and apply a model's answer to the notes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...errors import InputError, SettingsError
from .plan import NotesLimits
from .policy import NotesPolicy
from .sections import (
    Notes,
    Template,
    budget_excesses,
    clean_content,
    condense_request,
    cut_text,
    parse_template,
    render_notes,
)

_SECTION: Final = re.compile(r"<section\s+name=\"([^\"\n]+)\"\s*>[ \t]*\n?(.*?)</section>", re.DOTALL)
_FENCE: Final = re.compile(r"```\w*\n(.*)\n```\s*\Z", re.DOTALL)
_FAR: Final = 2
"""A section longer than this many budgets is cut at once; below that, the next prompt asks to condense it."""
_HERE: Final = Path(__file__).parent


@lru_cache(maxsize=16)
def template_of(policy: NotesPolicy) -> Template:
    """Return the template of the notes from the policy's file, or ours; raise if it is unreadable or no template."""
    return parse_template(_text(policy.template_file, "template.md"))


@lru_cache(maxsize=16)
def prompt_of(policy: NotesPolicy, name: str = "update") -> str:
    """Return the prompt with this name, or the policy's file for ``update``; raise ``SettingsError`` if unreadable."""
    return _text(policy.prompt_file if name == "update" else "", f"prompts/{name}.md")


def _text(given: str, own: str) -> str:
    try:
        return Path(given).expanduser().read_text("utf-8") if given else (_HERE / own).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{given} cannot be read ({error}): correct the notes settings, or leave it out") from None


def fill_prompt(prompt: str, values: Mapping[str, str]) -> str:
    """Return a prompt with each ``{{name}}`` replaced by its value; unknown names, and those in values, stay."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values.get(place.group(1), place.group(0)), prompt)


def directive(notes: Notes, template: Template, policy: NotesPolicy, limits: NotesLimits, *, path: str) -> str:
    """Return the prompt that asks a model to update the notes and to condense sections over their limits."""
    over = condense_request(budget_excesses(notes, limits.section, limits.total))
    values = {
        "path": path,
        "notes": render_notes(notes, template),
        "section_tokens": str(limits.section),
        "total_tokens": str(limits.total),
        "over": over,
    }
    return fill_prompt(prompt_of(policy), values)


def notes_from_answer(notes: Notes, answer: str, template: Template, limits: NotesLimits) -> Notes:
    """Return new notes in which the sections of a model's answer replace the old ones.

    Raise ``InputError`` if the answer has no section, one that the template lacks, or headings inside a section.
    """
    found = _SECTION.findall(answer)
    if not found:
        raise InputError("the answer holds no section")
    out = dict(notes.sections)
    for name, content in found:
        if name not in template.headings:
            raise InputError(f"the answer has a section {name[:60]!r} that the notes do not have")
        out[name] = cut_text(_sound(content, template), _FAR * limits.section)
    return Notes({name: content for name, content in out.items() if content})


def _sound(content: str, template: Template) -> str:
    """Return a section's content without its code fence; raise if it has a heading or italic line of the notes."""
    fenced = _FENCE.match(content.strip())
    content = clean_content(fenced.group(1) if fenced else content)
    lines = {line.strip() for line in content.split("\n")}
    for section in template.sections:
        if f"# {section.heading}" in lines or section.about in lines:
            raise InputError(f"the answer writes the heading or the italic line of {section.heading!r} into a section")
    return content


def projection_of(document: str) -> str:
    """Return the first 16 hex digits of a notes document's SHA-256 hash, to recognise it later."""
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()[:16]
