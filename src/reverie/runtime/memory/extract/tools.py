"""The tools of an extracting fork: read the project and the memory directory, and write memories through ``Memory``.

The declared tools stay unchanged because they are part of the cached prefix; a call that is not allowed is refused.
Only ``Memory`` writes, with an author, a source and a trust that the program computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
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
from ....tools.tool import Access, Output, Tool
from ....values import field, record, replace
from ...guard.permissions import PermissionScope, Verdict, decide, denied_reads
from ...session.forks import DENIED, ForkState, ForkToolResult
from ...session.replies import Call
from ..results import SavedMemory
from ..scopes import FOR_USER_SUFFIX

if TYPE_CHECKING:
    from ..memory import Memory

AUTHOR: Final = "extraction"
"""The author in the journal for memories written without the user."""
FOR_USER: Final = f"{AUTHOR}{FOR_USER_SUFFIX}"
"""The author in the journal for memories that quote the user's own words."""
_LOOKS: Final = frozenset({"Read", "Grep", "Glob"})
_WRITES: Final = frozenset({"Write", "Edit"})
INDEX_NOTE: Final = "The program writes the index MEMORY.md from the files; do not write it."


@record
class ToolAccess:
    """The tools of an agent that its extracting fork may use, with the rules for them."""

    context: ToolContext
    rules: PermissionRules = field(default_factory=PermissionRules)
    sandboxed: bool = False
    """Whether commands run in a sandbox; without one, Bash is refused."""


class ExtractTools:
    """Runs the tool calls of one extracting fork."""

    def __init__(
        self,
        memory: Memory,
        access: ToolAccess,
        witnesses: Witnesses,
        *,
        session: str,
        policy: ExtractPolicy,
        emit: Callable[[Event], None],
        saved: list[SavedMemory] | None = None,
    ) -> None:
        """Run calls for a session; each saved memory is added to ``saved``, even if the fork fails later."""
        self.saved: list[SavedMemory] = saved if saved is not None else []
        self.refused: list[str] = []
        self._memory = memory
        self._root = os.path.realpath(memory.path)
        self._rules = replace(access.rules, allow=(), directories=())
        self._context = access.context.forked(
            directories=(Path(self._root),),
            granted=set(),
            restricted=True,
            reads_inside=True,
            denied=denied_reads(access.rules),
        )
        self._witnesses = witnesses
        self._session = session
        self._policy = policy
        self._sandboxed = access.sandboxed
        self._emit = emit
        self._tools: dict[str, Tool] = {}

    async def __call__(self, call: Call, state: ForkState) -> ForkToolResult:
        """Run one tool call and return its result, or return a refusal."""
        if call.problem is not None:
            return ForkToolResult(f"The input does not match the tool's schema: {call.problem}", is_error=True)
        if call.name in _WRITES:
            return await self._write(call)
        if call.name in _LOOKS:
            return await self._read(call)
        if call.name == "Bash":
            return await self._run_command(call)
        return self._denied(call, "extraction may not use this tool")

    def _denied(self, call: Call, why: str) -> ForkToolResult:
        self._emit(PermissionDecided(self._session, call.name, False, AUTHOR, why))
        return ForkToolResult(f"{DENIED} ({why})", is_error=True, allowed=False)

    # -- reading

    async def _read(self, call: Call) -> ForkToolResult:
        tool = self._tool(call.name)
        access = tool.access(call.input, self._context)
        verdict = self._verdict(call.name, access)
        if verdict.outcome != "allow":
            return self._denied(call, verdict.reason)
        return self._result(await tool.run(call.input, self._context), access.target)

    def _verdict(self, tool: str, access: Access) -> Verdict:
        scope = PermissionScope(self._context.cwd, directories=self._context.directories, sandboxed=self._sandboxed)
        return decide(self._rules, "default", tool, access, scope)

    async def _run_command(self, call: Call) -> ForkToolResult:
        command = call.input.get("command")
        if not isinstance(command, str) or call.input.get("run_in_background"):
            return self._denied(call, "only read-only commands in the foreground are allowed")
        tool = self._tool("Bash")
        verdict = self._verdict("Bash", tool.access(call.input, self._context))
        if verdict.outcome != "allow":
            return self._denied(call, verdict.reason)
        return self._result(await tool.run(call.input, self._context), "")

    def _result(self, output: Output, target: str) -> ForkToolResult:
        """Return a tool's output, and count its text as untrusted unless it is that of a trusted memory."""
        file = self._file(target)
        try:
            trusted = file is not None and self._memory.get(file).trust != "unconfirmed"
        except (InputError, StorageError):
            trusted = False
        if trusted:
            self._witnesses.trust_text(output.text)
        else:
            self._witnesses.distrust(output.text)
        return ForkToolResult(output.content, output.is_error)

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            from ....tools import standard_tools

            self._tools = {tool.name: tool for tool in standard_tools(self._context.policy)}
        return self._tools[name]

    # -- writing

    def _file(self, target: str) -> str | None:
        """Return a path relative to the memory directory, or None if it is outside."""
        if not target or "\0" in target:
            return None
        place = os.path.join(self._context.cwd, os.path.expanduser(target))
        whole = os.path.realpath(os.path.dirname(place)) + "/" + os.path.basename(place)
        return whole[len(self._root) + 1 :] if whole.startswith(self._root + "/") else None

    async def _write(self, call: Call) -> ForkToolResult:
        path = call.input.get("file_path")
        file = self._file(path) if isinstance(path, str) else None
        if file is None:
            return self._denied(call, "only files of the memory directory may be written")
        if file == INDEX:
            return ForkToolResult(INDEX_NOTE)
        if len(self.saved) >= self._policy.max_memories:
            return self._refusal(f"one run may write at most {self._policy.max_memories} memories")
        try:
            content = await self._content(call, file)
            if len(content) > self._policy.max_chars:
                raise InputError(f"a memory may have at most {self._policy.max_chars:,} characters; shorten it")
            trust = self._witnesses.trust(content)
            saved = await to_thread.run_sync(lambda: self._save(file, content, trust))
        except (InputError, StorageError) as error:
            return self._refusal(str(error))
        if not saved.changed:
            return ForkToolResult(f"{saved.file} says that already; nothing was changed.")
        self.saved.append(saved)
        warnings = "".join(f" But {one}." for one in saved.warnings)
        return ForkToolResult(f"{saved.file} was saved and the index was updated.{warnings}")

    def _refusal(self, why: str) -> ForkToolResult:
        self.refused.append(why)
        return ForkToolResult(f"Not saved: {why}", is_error=True)

    async def _content(self, call: Call, file: str) -> str:
        if call.name == "Write":
            return _text(call.input, "content")
        from ....tools.files.text_files import load

        self._memory.get(file)  # raises an error for an invalid or unsafe name
        target = os.path.join(self._root, file)
        try:
            before = await to_thread.run_sync(lambda: load(target, with_grant(self._context, target)).text)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from None
        old, new = _text(call.input, "old_string"), _text(call.input, "new_string")
        return text_edit(before, old, new, everywhere=bool(call.input.get("replace_all")), path=file).text

    def _save(self, file: str, content: str, trust: Trust) -> SavedMemory:
        messages = self._witnesses.messages_of(content, 1)
        source = f"{self._session} {messages[0]}" if messages else self._session
        return self._memory.write(file, content, author=AUTHOR, source=source, trust=trust)


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    if not isinstance(value, str):
        raise InputError(f"{key} must be text")
    return value
