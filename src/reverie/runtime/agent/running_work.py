"""Standing context about work that goes on beside the conversation: running agents, and commands in the background.

A start or an end that the model sees as the result of a tool or as a message is not said again until a cut, or the
clearing of a result, has removed it from the view.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from ...conversation.cuts import Item
from ...conversation.entries import ASSISTANT, Message
from ...conversation.standing_context import StandingItem, digest_of
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...tools.shell.shells import Shells
from ..session.standing_context import ContextSource
from .team.spawner import letter_id

AGENTS: Final = "agents"
SHELLS: Final = "shells"
_NO_AGENTS: Final = "None of the agents that you started in the background runs any more."
_NO_SHELLS: Final = "No command runs in the background any more."
_COMMAND_CHARS: Final = 200
_STARTED: Final = re.compile(r"Running in the background as shell_(\d+)\.")
_LOST: Final = "ended with the process that ran it"
_ENDED: Final = re.compile(
    r"\[(?P<read>shell_\d+): (?!still running)|(?P<stopped>shell_\d+) (?:was stopped|has ended already)"
    rf"|^- (?P<told>shell_\d+): .*: {_LOST}$",
    re.MULTILINE,
)

Sign = tuple[str, ...]
"""Texts by which the model knows a state of an agent or a command; one of them is enough."""


class RunningAgents(ContextSource):
    """The agents that this agent started in the background and that still run."""

    name = AGENTS

    def __init__(self) -> None:
        self._signs = _VisibleSigns()

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the list of running agents as one item; none if no agent runs and the view shows no older list."""
        facts, listed = view.facts, _visible_value(view, AGENTS)
        waited = {id: one for id, one in facts.agents.items() if one.is_background}
        running = {id: one for id, one in waited.items() if one.finished is None}
        ended = [id for id in waited if id not in running and f"- {id} (" in listed]
        if not running and not listed:
            return []
        signs: list[Sign] = [(f"Agent {id} works in the background",) for id in running if f"- {id} (" not in listed]
        signs += [(f'id="{id}"',) for id in ended]
        is_told = all(letter_id(id) in facts.queued for id in ended)
        lines = [f"- {id} ({one.kind}): {' '.join(one.description.split())}: running" for id, one in running.items()]
        value = "\n".join(["Agents that you started in the background; each result comes by itself:", *lines])
        value, name = value if lines else _NO_AGENTS, "the list of running agents"
        return [self._signs.item(view, AGENTS, name, value, signs if is_told else None)]


class RunningShells(ContextSource):
    """The commands of this agent in the background: those that run, and those whose end it has not seen."""

    name = SHELLS

    def __init__(self, shells: Shells) -> None:
        """List these commands; number new ones after those of the log, so that no id means two commands."""
        self._shells = shells
        self._signs = _VisibleSigns()
        self._lost: dict[str, str] | None = None
        self._mark: tuple[Any, ...] = ()

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the list of commands as one item; none if there is no command and the view shows no older list."""
        self._find_lost(view)
        listed, lost = _visible_value(view, SHELLS), self._lost or {}
        lines = [f"- {name}: {_shown(command)}: {_LOST}" for name, command in lost.items()]
        signs: list[Sign] = []
        is_told = all(line in listed for line in lines)
        for name, shell in self._shells:
            is_listed = f"- {name}: " in listed
            if shell.running:
                lines.append(f"- {name}: {_shown(shell.command)}: running")
                signs += [] if is_listed else [(f"as {name}.", f"[{name}: still running]")]
            elif not shell.is_end_told:
                lines.append(f"- {name}: {_shown(shell.command)}: {shell.end_text}; its last output is not read yet")
                is_told = is_told and lines[-1] in listed
            elif is_listed:
                signs.append((f"[{name}: {shell.end_text}]", f"{name} was stopped", f"{name} has ended already"))
        if not lines and not listed:
            return []
        head = "Commands that you started in the background (BashOutput reads the output, KillShell stops one):"
        value, name = "\n".join([head, *lines]) if lines else _NO_SHELLS, "the list of commands in the background"
        return [self._signs.item(view, SHELLS, name, value, signs if is_told else None)]

    def _find_lost(self, view: View) -> None:
        """Find the commands whose process is gone after a resume and whose end the model does not know.

        The log has their start and no end, or the view shows their start and no longer their end.
        """
        if self._lost is None or (self._lost and _has_lost_content(self._mark, view)):
            ever, self._mark = dict(_started_commands(view, _logged_texts(view))), _mark(view)
            if self._lost is None:
                numbers = [
                    int(found[1]) for text, call in _logged_texts(view) if call and (found := _STARTED.match(text))
                ]
                self._shells.number_after(max(numbers, default=0))
            started = {**ever, **dict(_started_commands(view, _texts(view)))}
            self._lost = {name: command for name, command in started.items() if self._shells.get(name) is None}


class _VisibleSigns:
    """Finds texts in the results and messages of a view; reads the whole view only after something left it."""

    def __init__(self) -> None:
        self._mark: tuple[Any, ...] = ()
        self._asked: frozenset[Sign] = frozenset()
        self._shown: frozenset[Sign] = frozenset()

    def item(self, view: View, key: str, name: str, value: str, signs: Collection[Sign] | None) -> StandingItem:
        """Return an item with this value, which these signs show by themselves; None if no signs show it."""
        stands = signs is not None and self.all_visible(view, signs)
        shown_by = () if stands or signs is None else _shown_by(view, signs)
        digest = digest_of(value)
        return StandingItem(key, key, name, value, digest, native=digest if stands else "", shown_by=shown_by)

    def all_visible(self, view: View, signs: Collection[Sign]) -> bool:
        """Return whether the view shows all signs; one that is new since the last reading is at its end."""
        if not signs:
            return True
        if _has_lost_content(self._mark, view):
            texts = [text for text, _ in _texts(view)]
            self._mark, self._asked = _mark(view), frozenset(signs)
            self._shown = frozenset(sign for sign in signs if any(one in text for one in sign for text in texts))
        return all(sign in self._shown or sign not in self._asked for sign in signs)


def _mark(view: View) -> tuple[Any, ...]:
    """Return objects that change when content leaves a view."""
    return (view.cuts, view.overrides, view.facts.clearing)


def _has_lost_content(mark: tuple[Any, ...], view: View) -> bool:
    """Return whether content left a view since it had this mark; True for the empty mark."""
    return not mark or any(one is not two for one, two in zip(mark, _mark(view), strict=True))


def _visible_value(view: View, key: str) -> str:
    row = view.facts.standing.get(key)
    return row.item.value if row is not None and row.item.state == "said" and key not in view.facts.fallen else ""


def _shown_by(view: View, signs: Collection[Sign]) -> tuple[str, ...]:
    """Return the calls and log entries that showed these signs; nothing if one of them was never shown."""
    found: dict[Sign, str] = {}
    for item in view.each():
        for text, call in _texts_in([item.message]) if isinstance(item, Item) else ():
            found.update((sign, call or item.uuid) for sign in signs if any(one in text for one in sign))
    return tuple(dict.fromkeys(found.values())) if len(found) == len(set(signs)) else ()


def _texts(view: View) -> Iterator[tuple[str, str]]:
    for text, call in _texts_in(view.messages()):
        if call not in view.facts.cleared_by_provider:
            yield text, call


def _logged_texts(view: View) -> Iterator[tuple[str, str]]:
    yield from _texts_in(item.message for item in view.each() if isinstance(item, Item))


def _texts_in(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    for message in messages:
        for block in as_blocks(message) if message["role"] == "user" else ():
            if block.get("type") == "text":
                yield str(block["text"]), ""
            elif block.get("type") == "tool_result":
                yield _result_text(block.get("content")), str(block["tool_use_id"])


def _result_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = cast("list[Mapping[str, Any]]", content) if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks)


def _started_commands(view: View, texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield id and command line of each background command that these texts show as started and not as ended."""
    found: dict[str, str] = {}
    for text, call in texts:
        for match in _ENDED.finditer(text):
            found.pop(match[match.lastgroup or 0], None)
        start = _STARTED.match(text) if call else None
        if start is not None:
            found[f"shell_{start[1]}"] = call
    calls = set(found.values())
    commands = {
        str(block["id"]): str(block["input"].get("command") or "")
        for item in (view.each() if found else ())
        if isinstance(item, Item) and item.kind == ASSISTANT
        for block in as_blocks(item.message)
        if block.get("type") == "tool_use" and block["id"] in calls
    }
    yield from ((name, commands.get(call, "")) for name, call in found.items())


def _shown(command: str) -> str:
    line = " ".join(command.split())
    return f"`{line if len(line) <= _COMMAND_CHARS else line[: _COMMAND_CHARS - 1] + '…'}`"
