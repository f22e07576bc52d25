"""What an extracting fork may do: look anywhere, run what only reads, and write memories through the store's door.

The tools stay as they were declared, since they are part of the cached prefix; what is not allowed is refused when it
is called. Nothing is written but by ``Memory``, with who wrote it, what it came from, and a trust the program decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from ....errors import InputError, StorageError
from ....events import Event, PermissionDecided
from ....layers.l5_extract import ExtractPolicy, Witnesses
from ....memories.store.index import INDEX
from ....memories.store.trust import Trust
from ....settings import PermissionRules
from ....tools.context import ToolContext
from ....tools.files.replacement import text_edit
from ....tools.files.workspace import with_grant
from ....tools.shell.read_only import is_read_only
from ....tools.tool import Output, Tool
from ...guard.permissions import PermissionScope, decide
from ...session.forks import DENIED, ForkState, ForkToolResult
from ...session.replies import Call
from ..results import Saved
from ..scopes import USERS_WORD

if TYPE_CHECKING:
    from ..memory import Memory

__all__ = ["AUTHOR", "FOR_USER", "ExtractTools"]

AUTHOR: Final = "extraction"
"""Who the journal names for what is written without the user."""
FOR_USER: Final = f"{AUTHOR}{USERS_WORD}"
"""Who the journal names where the user's own words were written down as they are."""
_LOOKS: Final = frozenset({"Read", "Grep", "Glob"})
_WRITES: Final = frozenset({"Write", "Edit"})
_INDEX_KEPT: Final = "The program keeps the index MEMORY.md by itself, from the files; it need not be written."


class ExtractTools:
    """Runs the calls of one extracting fork."""

    def __init__(
        self,
        memory: Memory,
        context: ToolContext,
        witnesses: Witnesses,
        *,
        session: str,
        policy: ExtractPolicy,
        rules: PermissionRules | None = None,
        sandboxed: bool = False,
        emit: Callable[[Event], None],
        saved: list[Saved] | None = None,
    ) -> None:
        """Run calls for a session; what is saved is added to ``saved``, whatever becomes of the fork."""
        self.saved: list[Saved] = saved if saved is not None else []
        self.refused: list[str] = []
        self._memory = memory
        self._context = context.forked(restricted=True)
        self._witnesses = witnesses
        self._session = session
        self._policy = policy
        self._rules = rules or PermissionRules()
        self._sandboxed = sandboxed
        self._emit = emit
        self._root = os.path.realpath(memory.path)
        self._tools: dict[str, Tool] = {}

    async def __call__(self, call: Call, state: ForkState) -> ForkToolResult:
        """Run one call, or refuse it."""
        if call.problem is not None:
            return ForkToolResult(f"The input does not fit the tool's schema: {call.problem}", is_error=True)
        if call.name in _WRITES:
            return await self._written(call)
        if call.name in _LOOKS:
            return await self._looked(call)
        if call.name == "Bash":
            return await self._ran(call)
        return self._denied(call, "it is not a tool of extraction")

    def _denied(self, call: Call, why: str) -> ForkToolResult:
        self._emit(PermissionDecided(self._session, call.name, False, AUTHOR, why))
        return ForkToolResult(f"{DENIED} ({why})", is_error=True, allowed=False)

    # -- looking

    async def _looked(self, call: Call) -> ForkToolResult:
        tool = self._tool(call.name)
        access = tool.access(call.input, self._context)
        scope = PermissionScope(self._context.cwd, sandboxed=self._sandboxed)
        verdict = decide(self._rules, "default", call.name, access, scope)
        if verdict.outcome == "deny":
            return self._denied(call, verdict.reason)
        return self._heard(await tool.run(call.input, with_grant(self._context, access.target)), access.target)

    async def _ran(self, call: Call) -> ForkToolResult:
        command = call.input.get("command")
        if not isinstance(command, str) or call.input.get("run_in_background"):
            return self._denied(call, "only a command that reads, in the foreground")
        judged = is_read_only(command)
        if not judged.allowed:
            return self._denied(call, judged.reason)
        if not self._sandboxed:
            return self._denied(call, "commands cannot be confined on this machine")
        tool = self._tool("Bash")
        access = tool.access(call.input, self._context)
        if decide(self._rules, "default", "Bash", access, PermissionScope(self._context.cwd)).outcome == "deny":
            return self._denied(call, "a rule denies it")
        return self._heard(await tool.run(call.input, self._context), "")

    def _heard(self, output: Output, target: str) -> ForkToolResult:
        """Answer with what was found; it counts from here on among what nobody vouches for."""
        text = output.content if isinstance(output.content, str) else "\n".join(_texts(output.content))
        file = self._file(target)
        try:
            trusted = file is not None and self._memory.get(file).trust != "unconfirmed"
        except (InputError, StorageError):
            trusted = False
        if trusted:
            self._witnesses.trust_text(text)
        else:
            self._witnesses.distrust(text)
        return ForkToolResult(output.content, output.is_error)

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            from ....tools import standard_tools

            self._tools = {tool.name: tool for tool in standard_tools(self._context.policy)}
        return self._tools[name]

    # -- writing

    def _file(self, target: str) -> str | None:
        """Return a path's name inside the memory directory, or None where it leads elsewhere."""
        if not target or "\0" in target:
            return None
        place = os.path.join(self._context.cwd, os.path.expanduser(target))
        whole = os.path.realpath(os.path.dirname(place)) + "/" + os.path.basename(place)
        return whole[len(self._root) + 1 :] if whole.startswith(self._root + "/") else None

    async def _written(self, call: Call) -> ForkToolResult:
        path = call.input.get("file_path")
        file = self._file(path) if isinstance(path, str) else None
        if file is None:
            return self._denied(call, "only files of the memory directory may be written")
        if file == INDEX:
            return ForkToolResult(_INDEX_KEPT)
        if len(self.saved) >= self._policy.max_memories:
            return self._refusal(f"one run writes {self._policy.max_memories} memories at most")
        try:
            content = await self._content(call, file)
            if len(content) > self._policy.max_chars:
                raise InputError(f"a memory has {self._policy.max_chars:,} characters at most; say it shorter")
            trust = self._witnesses.trust(content)
            saved = await to_thread.run_sync(lambda: self._save(file, content, trust))
        except (InputError, StorageError) as error:
            return self._refusal(str(error))
        self.saved.append(saved)
        warnings = "".join(f" But {one}." for one in saved.warnings)
        return ForkToolResult(f"{saved.file} was saved, and the index follows.{warnings}")

    def _refusal(self, why: str) -> ForkToolResult:
        self.refused.append(why)
        return ForkToolResult(f"Not saved: {why}", is_error=True)

    async def _content(self, call: Call, file: str) -> str:
        if call.name == "Write":
            return _text(call.input, "content")
        from ....tools.files.text_files import load

        self._memory.get(file)  # a name that is none, or leads elsewhere, is refused here
        target = os.path.join(self._root, file)
        try:
            before = await to_thread.run_sync(lambda: load(target, with_grant(self._context, target)).text)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from None
        old, new = _text(call.input, "old_string"), _text(call.input, "new_string")
        return text_edit(before, old, new, everywhere=bool(call.input.get("replace_all")), path=file).text

    def _save(self, file: str, content: str, trust: Trust) -> Saved:
        messages = self._witnesses.messages_of(content, 1)
        source = f"{self._session} {messages[0]}" if messages else self._session
        return self._memory.write(file, content, author=AUTHOR, source=source, trust=trust)


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str):
        raise InputError(f"{key} must be text")
    return value


def _texts(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(block.get("text") or "") for block in blocks]
