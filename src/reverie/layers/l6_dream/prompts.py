"""Read the prompt files of a dream and fill in their placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...memories.rules.taxonomy import TYPES

_HERE: Final = Path(__file__).parent


@lru_cache(maxsize=2)
def _prompt(name: str) -> str:
    return (_HERE / "prompts" / f"{name}.md").read_text("utf-8")


def system_prompt(turns: int) -> str:
    """Return the system prompt for the model that dreams, with its limit of turns and the memory types."""
    kinds = "\n".join(f"- {kind.name}: {kind.what} Shape: {kind.shape}" for kind in TYPES.values())
    return _prompt("dream").format(turns=turns, types=kinds)


def task_prompt(*, today: str, many: int, shown: str, manifest: str, logs: Sequence[str], tag: str) -> str:
    """Return the task prompt with the memories to tidy; the tag fences untrusted text."""
    listed = "\nDaily logs: " + ", ".join(logs) + "\n" if logs else ""
    return _prompt("task").format(
        today=today, many=many, shown=shown, manifest=manifest or "(none)", logs=listed, tag=tag
    )
