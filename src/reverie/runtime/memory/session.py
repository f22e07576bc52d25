"""The session of the public API: that of ``runtime.session``, with memory for the caller's own loop."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from ...arguments import check_parts, check_text, check_type
from ...errors import InputError, SessionError
from ...models import RetryingModel, open_model
from ...ports import Model, Storage
from ...settings import Settings
from ...tools.function_tool import FunctionTool
from ...tools.tool import Output, error_output
from ..places.projects import directory_of, inbox_key, project_slug
from ..places.storage import given_settings, storage_of
from ..session import session
from ..session.background import IndependentTaskGroup
from ..session.inbox import post
from ..session.parts import NoMemory
from ..session.replies import Call, output_or_error
from .session_memory import SessionMemory


class Session(session.Session):
    """An agent's conversation: kept whole in its log, and inside the window in its requests."""

    @staticmethod
    def post(
        name: str,
        text: str,
        *,
        cwd: str | Path = ".",
        storage: Storage | None = None,
        settings: Settings | None = None,
        sender: str = "",
    ) -> None:
        """Leave a message for the model in the inbox of a session, which may be open in another process.

        The next ``prepare`` of that session logs it. Raise ``InputError`` if the text is empty.
        """
        check_text("text", text)
        if not text.strip():
            raise InputError("the message is empty: pass some text")
        directory = directory_of(cwd)
        settings = given_settings(settings, directory, storage)
        store = storage or storage_of(settings)
        try:
            post(store, inbox_key(project_slug(directory), name), "note", {"text": text}, sender=sender)
        finally:
            if storage is None:
                store.close()

    async def run(self, call: Call, tools: Iterable[FunctionTool[..., Any]]) -> Output:
        """Run a tool call with the function of its name, log the result and return it; a failure is an error result."""
        check_type("call", call, Call, "a call that observe() returned")
        check_parts("tools", tools, ("__iter__",), "a list of tools")
        known = {tool.name: tool for tool in tools}
        tool = known.get(call.name)
        if tool is None:
            output = error_output(f"No tool is called {call.name!r}. There are: {', '.join(known)}.")
        elif call.problem is not None:
            output = error_output(f"The input does not fit the tool's schema: {call.problem}")
        else:
            output = await output_or_error(lambda: tool.run(call.input))
        limit = tool.max_chars if tool is not None else None
        await self.result(call.id, output.content, is_error=output.is_error, max_chars=limit, files=output.files)
        return output

    def _new_memory(self) -> NoMemory:
        return (
            LoopMemory(self, Path(self._options.cwd))
            if self.settings.switches.memory and self.log.mode == "write"
            else NoMemory()
        )

    def __enter__(self) -> NoReturn:
        raise SessionError(f"session {self.name} needs 'async with'; without asyncio: 'with SyncSession.open(...)'")

    def __exit__(self, *error: object) -> None: ...


class LoopMemory(NoMemory):
    """The memory of a caller's own loop: a query begins with ``say`` and ends with a reply without tool calls."""

    def __init__(self, session: Session, cwd: Path) -> None:
        self._session, self._cwd = session, cwd
        self._stack: AsyncExitStack | None = None
        self._memory: SessionMemory | None = None

    async def open(self) -> None:
        """Open the memories, and let requests say the index and recalled memories."""
        session = self._session
        async with AsyncExitStack() as stack:
            small = self._small_model()
            if small is not None:
                stack.push_async_callback(small.aclose)
            tasks = await stack.enter_async_context(IndependentTaskGroup())
            stack.callback(tasks.cancel_scope.cancel)
            memory = SessionMemory(session, self._cwd, session.settings, model=session.model, small=small, tasks=tasks)
            memory.context.add_to_session()
            self._memory, self._stack = memory, stack.pop_all()

    def _small_model(self) -> Model | None:
        """Return the model that selects memories: the alias ``small``, if the session has a model at all."""
        settings = self._session.settings
        named = settings.model_aliases.get("small")
        if self._session.model is None or not named:
            return None
        return RetryingModel(open_model(named, aliases=settings.model_aliases, corrections=settings.models))

    async def begin_query(self, prompt: str | list[dict[str, Any]]) -> None:
        """Say the index in an empty session, and search memories for the prompt."""
        if self._memory is not None:
            await self._memory.context.open_conversation()
            blocks = [{"text": prompt}] if isinstance(prompt, str) else prompt
            self._memory.context.begin_query("\n".join(str(block.get("text", "")) for block in blocks))

    async def before_request(self) -> None:
        """Log the memories that were found."""
        if self._memory is not None:
            await self._memory.recall.surface()

    async def end_query(self) -> None:
        """Extract memories in the background, by the session's model if it has one."""
        if self._memory is not None:
            self._memory.extractor.model = self._session.model
            await self._memory.end_query()

    async def close(self) -> None:
        """Wait for an extraction that is being written, and end everything else."""
        memory, stack, self._memory, self._stack = self._memory, self._stack, None, None
        if memory is not None and stack is not None:
            async with stack:
                await memory.close()
