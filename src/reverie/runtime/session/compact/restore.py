"""Content shown again after a compaction: files as they are now, skills, the plan, listings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ....conversation.tokens.estimate import estimate_text
from ....conversation.wire.blocks import text_block
from ....layers.l4_compact import CompactPolicy
from ....values import field, record

__all__ = ["OpenContent", "RestorableText", "Restorer", "restored_blocks"]

_SHORTENED = "\n[shortened: read the file again for the rest]"


@record
class RestorableText:
    """A text that can be shown again, with its name, such as a path."""

    name: str
    text: str


@record
class OpenContent:
    """The content an agent had open: files, skills, plan and listings; files and skills most recent first."""

    files: tuple[RestorableText, ...] = ()
    """Files read lately, as they are on disk; without the plan and instruction files."""
    skills: tuple[RestorableText, ...] = ()
    plan: str = ""
    rest: tuple[str, ...] = field(default_factory=lambda: ())
    """To-do list, running agents, listings of deferred tools, agents and servers: whole or not at all."""


class Restorer(Protocol):
    """The source of the content an agent had open."""

    async def restorable(self) -> OpenContent:
        """Return the content that could be shown again now."""
        ...


def restored_blocks(
    found: OpenContent,
    policy: CompactPolicy,
    *,
    tokens: int,
    effective: int,
    shown: Sequence[str] = (),
    plan_only: bool,
) -> list[dict[str, Any]]:
    """Return the blocks to show again within a token budget; ``shown`` names files that the kept part still shows.

    The plan comes first, then listings, then skills, then files: files shrink first because they can be read
    again. ``plan_only`` leaves out all but the plan; ``effective`` is the size of the window in tokens.
    """
    left = tokens
    out: list[str] = []

    def put(text: str) -> None:
        nonlocal left
        cost = estimate_text(text) + 8
        if text.strip() and cost <= left:
            left -= cost
            out.append(text)

    if found.plan:
        put(f"The plan in force:\n\n{found.plan}")
    if not plan_only:
        for text in found.rest:
            put(text)
        skills = min(policy.restore_skills_tokens, int(effective * 0.14), left)
        for one in _fitting(found.skills, policy.restore_skill_tokens, skills, len(found.skills)):
            put(f"Skill in use: {one.name}\n\n{one.text}")
        files = [one for one in found.files if one.name not in shown]
        room = min(policy.restore_files_tokens, int(effective * 0.28), left)
        for one in _fitting(files, policy.restore_file_tokens, room, policy.restore_files):
            put(f"{one.name}, as it is on disk now:\n\n{one.text}")
    return [text_block(text) for text in out]


def _fitting(found: Sequence[RestorableText], each: int, tokens: int, count: int) -> list[RestorableText]:
    """Return the first texts, at most ``count``, each cut to ``each`` tokens, while all fit ``tokens``."""
    out: list[RestorableText] = []
    left = tokens
    for one in found[:count]:
        room = min(each, left) - estimate_text(one.name) - 16
        if room < 32:
            break
        text = one.text
        size = estimate_text(text)
        if size > room:
            text = text[: len(text) * max(1, room - 16) // max(1, size)].rpartition("\n")[0] + _SHORTENED
        left -= estimate_text(text) + estimate_text(one.name) + 16
        out.append(RestorableText(one.name, text))
    return out
