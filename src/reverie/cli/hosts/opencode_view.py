"""``reverie hook --host opencode View``: print opencode's history as a session of ours shows it.

After any failure it prints ``{}``, and the plugin sends the history as it is.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio

from ...hosts.events import read_hook_event
from ...integrations.opencode import shortened
from ...runtime.memory.session import Session


def main() -> int:
    """Read the history from stdin, print the view, and always return 0."""
    answer: dict[str, Any] = {}
    try:
        given = json.loads(sys.stdin.buffer.read())
        event = read_hook_event("opencode", "View", given)
        if event.session and event.cwd:
            messages = anyio.run(_view, f"opencode-{event.session}", event.cwd, given["messages"])
            answer = {} if messages is None else {"messages": messages}
    except Exception as error:  # the user's request matters more than a shorter one
        sys.stderr.write(f"reverie hook: {type(error).__name__}: {error}\n")
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


async def _view(name: str, cwd: str, history: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    async with Session.open(name, cwd=cwd) as session:
        return await shortened(session, history)
