"""Build the extraction prompt, and parse a model's answer into memories, each checked separately."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from ...errors import InputError
from ...memories.rules.taxonomy import TYPES, MemoryType
from ...values import record
from .policy import ExtractPolicy

Form: TypeAlias = Literal["tools", "structured"]

_HERE: Final = Path(__file__).parent
_FIELDS: Final = ("type", "text", "why", "how", "name", "description", "updates", "scope")
_SHORT: Final = {"name": 120, "description": 400, "why": 2_000, "how": 2_000, "updates": 200, "type": 20, "scope": 20}
_TEAM: Final[Mapping[str, str]] = {
    "tools": "Everybody in the project reads the memories in {path}/team/; write one there only where the type's scope "
    "says so, and never anything about the user or anything secret.\n\n",
    "structured": 'Everybody in the project reads memories with "scope": "team"; "private" is the other scope. Give a '
    "scope only where it differs from the type's, and never share anything about the user.\n\n",
}


@record
class MemoryProposal:
    """One well-formed memory from a model's answer; ``updates`` is the file it changes, empty for a new one."""

    type: MemoryType
    text: str
    why: str = ""
    how: str = ""
    name: str = ""
    description: str = ""
    updates: str = ""
    scope: str = ""


@lru_cache(maxsize=8)
def _prompt(name: str) -> str:
    return (_HERE / "prompts" / f"{name}.md").read_text("utf-8")


@record
class ReferenceSentences:
    """Sentences that tell a standing wish from talk about a task: kinds of wishes in some wordings each, and tasks."""

    wishes: tuple[tuple[str, ...], ...]
    tasks: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All the sentences, each once."""
        return tuple(dict.fromkeys((*(text for kind in self.wishes for text in kind), *self.tasks)))


@lru_cache(maxsize=1)
def reference_sentences() -> ReferenceSentences:
    """Return the reference sentences of the package."""
    text = (_HERE / "prompts" / "reference_sentences.txt").read_text("utf-8")
    wishes, tasks = text.strip().split("\n\n")
    kinds = tuple(tuple(line.split(" | ")) for line in wishes.split("\n"))
    return ReferenceSentences(kinds, tuple(tasks.replace(" | ", "\n").split("\n")))


def directive(
    form: Form,
    *,
    manifest: str,
    messages: int,
    path: str,
    tag: str,
    unseen: str = "",
    repeated: str = "",
    policy: ExtractPolicy,
    team: bool = False,
) -> str:
    """Return the prompt that asks a model to extract memories, for a model with tools or for a structured answer.

    ``unseen`` is text since the last run that is out of view, ``repeated`` are quotes of wishes that the user repeats;
    ``tag`` fences both as data; ``team`` adds the scopes.
    """
    kinds = "\n".join(
        f"- {kind.name}{f' (scope: {kind.scope})' if team else ''}: {kind.what} Save when: {kind.when} "
        f"Shape: {kind.shape}"
        for kind in TYPES.values()
    )
    values = {
        "types": kinds,
        "manifest": manifest or "(none yet)",
        "messages": str(messages),
        "path": path,
        "tag": tag,
        "turns": str(policy.max_turns),
        "unseen": f"\n<unseen-{tag}>\n{unseen}\n</unseen-{tag}>\n" if unseen else "",
        "repeated": _filled(_prompt("repeated"), {"tag": tag, "repeated": repeated}) if repeated else "",
        "form": (_TEAM[form].format(path=path) if team else "") + _prompt(form),
    }
    text = _filled(_prompt("extract"), {"form": values.pop("form")})
    return _filled(text, values)


def _filled(prompt: str, values: Mapping[str, str]) -> str:
    """Return a prompt with each ``{{name}}`` replaced by its value; unknown names, and those in values, stay."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values.get(place.group(1), place.group(0)), prompt)


def proposals_in(answer: str, policy: ExtractPolicy) -> tuple[list[MemoryProposal], list[str]]:
    """Return the well-formed memories in a model's answer, and the reason for each refused one.

    Raise ``InputError`` if the answer is not a list of memories.
    """
    rows = _rows(answer)
    found: list[MemoryProposal] = []
    refused: list[str] = []
    for row in rows:
        if len(found) >= policy.max_memories:
            refused.append(f"more than {policy.max_memories} memories in one answer")
            break
        made = _asked(row, policy)
        if isinstance(made, MemoryProposal):
            found.append(made)
        else:
            refused.append(made)
    return found, refused


def _rows(answer: str) -> list[Any]:
    """Return the first JSON list in an answer, also under "memories"; raise ``InputError`` if there is none."""
    decoder = json.JSONDecoder()
    for at in [found.start() for found in re.finditer(r"[\[{]", answer)][:50]:
        try:
            value, _ = decoder.raw_decode(answer, at)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get("memories")
        if isinstance(value, list):
            return cast("list[Any]", value)
    raise InputError("the answer holds no list of memories")


def _asked(row: Any, policy: ExtractPolicy) -> MemoryProposal | str:
    if not isinstance(row, dict):
        return f"a memory is an object, not {type(row).__name__}"
    fields = cast("dict[str, Any]", row)
    values: dict[str, str] = {}
    for name in _FIELDS:
        value = fields.get(name, "")
        if value is None:
            value = ""
        if not isinstance(value, str):
            return f"the field {name} is {type(value).__name__}, not text"
        if len(value) > _SHORT.get(name, policy.max_chars):
            return f"the field {name} has {len(value):,} characters, more than {_SHORT.get(name, policy.max_chars):,}"
        values[name] = value.strip()
    if values["type"] not in TYPES:
        return f"{values['type'][:40]!r} is no type of memory"
    if values["scope"] not in ("", "private", "team"):
        return f"{values['scope']!r} is no scope of a memory"
    if not values["text"]:
        return "a memory without text"
    return MemoryProposal(cast("MemoryType", values.pop("type")), **values)
