"""Files that a prompt names with ``@``: their content is attached before the prompt."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent

_MOST_FILES: Final = 20
_NAMED: Final = re.compile(r"(?:^|(?<=\s))@((?:\\.|\S)+)")
_END: Final = ".,;:!?)]}\"'"


def named_files(prompt: str, cwd: Path) -> list[str]:
    """Return the existing files that a prompt names, each once; other words with ``@`` are words."""
    found: dict[str, None] = {}
    for name in _NAMED.findall(prompt):
        plain = re.sub(r"\\(.)", r"\1", name)
        for path in dict.fromkeys((plain, plain.rstrip(_END))):
            if path and os.path.isfile(os.path.join(cwd, os.path.expanduser(path))):
                found[path] = None
                break
    return list(found)[:_MOST_FILES]


async def attach_files(agent: Agent, prompt: str, note: Callable[[str, bool], None]) -> None:
    """Attach the files that a prompt names; report each with a line, and whether it is a problem."""
    for path in named_files(prompt, agent.cwd):
        problem = await agent.attach_file(path)
        note(f"{path} was not attached: {problem}" if problem else f"attached {path}", bool(problem))
