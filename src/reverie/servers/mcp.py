"""The MCP server: six tools over memories and past sessions, for any agent that speaks the protocol.

Calls run in worker threads and can be cancelled; long calls report their progress. An error is a result with advice,
so that a model can correct its call. Needs the extra ``reverie[mcp]``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
from anyio import from_thread, to_thread

from ..conversation.wire.schemas import input_problem
from ..errors import ReverieError
from .answers import Answer, Progress, ToolAnswers
from .mcp_tools import INSTRUCTIONS, ToolSpec, tool_specs
from .scope import ServedProject

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ListToolsResult,
        PaginatedRequestParams,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

    Context: TypeAlias = ServerRequestContext[Any, Any]

INDEX_URI: Final = "reverie://memory/index"
_THREADS: Final = 8
_PROGRESS_SECONDS: Final = 0.2
_ON_MEMORIES: Final = frozenset({"recall", "remember", "forget", "status"})


class McpServer:
    """The MCP tools over memories and past sessions; ``server`` makes an SDK server that offers them."""

    def __init__(self, answers: ToolAnswers, *, with_project: bool = False) -> None:
        """Offer these answers; ``with_project`` lets each call name its project, as several clients need it."""
        with_project = with_project or len(answers.projects.directories) > 1
        self.specs = tool_specs(with_project=with_project, all_projects=answers.all_projects)
        self._answers = answers
        self._checks = [{"name": spec.name, "input_schema": dict(spec.input_schema)} for spec in self.specs.values()]
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    def server(self) -> Server[Any]:
        """Return a new server of the official SDK that offers the tools and the memory index."""
        from importlib.metadata import version

        from mcp.server import Server

        logging.getLogger("mcp").setLevel(logging.ERROR)  # errors of clients go to the clients
        return Server(
            "reverie",
            version=version("reverie"),
            title="Reverie",
            description="Memory across sessions, and the sessions themselves",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    # -- handlers of the SDK server

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        spec = self.specs.get(name)
        return None if spec is None else spec.input_schema

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        from mcp_types import ListToolsResult

        return ListToolsResult(tools=[_tool(spec) for spec in self.specs.values()])

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, CallToolResult, TextContent

        spec = self.specs.get(params.name)
        if spec is None:
            raise MCPError(INVALID_PARAMS, f"there is no such tool; the tools are {', '.join(self.specs)}")
        try:
            answer = await self._answer(spec, dict(params.arguments or {}), ctx)
        except _CallRefused as refused:
            return CallToolResult(content=[TextContent(text=str(refused))], is_error=True)
        text = answer_text(spec.name, answer)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        from mcp_types import ListResourcesResult, Resource

        about = "One line for each memory of this project. The recall tool returns the same memories."
        index = Resource(
            uri=INDEX_URI, name="MEMORY.md", title="Memory index", description=about, mime_type="text/markdown"
        )
        return ListResourcesResult(resources=[index])

    async def _list_templates(self, ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        from mcp_types import ListResourceTemplatesResult

        return ListResourceTemplatesResult(resource_templates=[])

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, ReadResourceResult, TextResourceContents

        if params.uri != INDEX_URI:
            raise MCPError(INVALID_PARAMS, f"there is only {INDEX_URI}")
        try:
            project = self._answers.projects.find()
            text = await self._in_turn(project, lambda: self._answers.index_text(project))
        except (ReverieError, OSError) as error:
            raise MCPError(INVALID_PARAMS, _sound(str(error))) from None
        contents = TextResourceContents(uri=INDEX_URI, mime_type="text/markdown", text=_sound(text))
        return ReadResourceResult(contents=[contents])

    # -- one call

    async def _answer(self, spec: ToolSpec, given: dict[str, Any], ctx: Context) -> Answer:
        """Check a call's arguments, run it and return the answer; raise ``_CallRefused`` for every error."""
        problem = input_problem(self._checks, spec.name, given)
        if problem is not None:
            raise _CallRefused(f"{_sound(problem)[:500]}; {_expected(spec)}")
        if _sound(given) != given:
            raise _CallRefused("the arguments hold invalid characters (lone surrogates); leave them out")
        given = {**_defaults(spec), **given}
        try:
            return cast("Answer", _sound(await self._run(spec.name, given, ctx)))
        except (ReverieError, OSError) as error:
            raise _CallRefused(_sound(str(error)) or type(error).__name__) from None
        except Exception as error:
            print(f"reverie mcp: {spec.name} failed: {error!r}", file=sys.stderr, flush=True)
            raise _CallRefused(
                f"{spec.name} failed inside Reverie ({type(error).__name__}) and may not have been done; go on without "
                "it, and tell the user to run 'reverie doctor'"
            ) from None

    async def _run(self, name: str, given: dict[str, Any], ctx: Context) -> Answer:
        answers = self._answers
        project = await to_thread.run_sync(answers.projects.find, given.get("project"), limiter=self._threads)
        work = self._work(name, project, given, _client(ctx), _reporter(ctx))
        if name in _ON_MEMORIES:
            return await self._in_turn(project, work)
        return await to_thread.run_sync(work, limiter=self._threads)

    def _work(
        self, name: str, project: ServedProject, given: dict[str, Any], client: str, progress: Progress
    ) -> Callable[[], Answer]:
        answers = self._answers
        everywhere = bool(given.get("all_projects"))
        works: dict[str, Callable[[], Answer]] = {
            "recall": lambda: answers.recall(
                project,
                given["query"],
                given["limit"],
                everything=bool(given.get("everything")),
                offset=given["offset"],
            ),
            "remember": lambda: answers.remember(project, client, given),
            "forget": lambda: answers.forget(project, client, given),
            "search_sessions": lambda: answers.search_sessions(
                project, given["query"], given["limit"], everywhere, progress, given["offset"]
            ),
            "read_back": lambda: answers.read_back(project, given, progress),
            "status": lambda: answers.status(project),
        }
        return works[name]

    async def _in_turn(self, project: ServedProject, work: Callable[[], Any]) -> Any:
        """Run work on a project's memories in a thread, one call per project at a time, and return its result."""
        async with self._turns[project.slug]:
            return await to_thread.run_sync(work, limiter=self._threads)


class _CallRefused(Exception):
    """The reason why a call was not done."""


async def serve_stdio(mcp: McpServer) -> None:
    """Serve the process that started this one over stdin and stdout, until it closes the pipe."""
    from mcp.server.stdio import stdio_server

    server = mcp.server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _tool(spec: ToolSpec) -> Any:
    from mcp_types import Tool, ToolAnnotations

    return Tool(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        input_schema=dict(spec.input_schema),
        output_schema=dict(spec.output_schema),
        annotations=ToolAnnotations(
            title=spec.title,
            read_only_hint=spec.reads_only,
            destructive_hint=spec.destroys,
            idempotent_hint=spec.same_when_repeated,
            open_world_hint=False,
        ),
    )


def _client(ctx: Context) -> str:
    params = ctx.session.client_params
    return "" if params is None else params.client_info.name


def _reporter(ctx: Context) -> Progress:
    """Return a function for worker threads that reports progress to the client and stops a cancelled call."""
    last = 0.0

    def report(done: int, total: int, message: str) -> None:
        nonlocal last
        from_thread.check_cancelled()
        now = time.monotonic()
        if done == 0 or now - last >= _PROGRESS_SECONDS:
            last = now
            from_thread.run(ctx.session.report_progress, float(done), float(total), message)

    return report


def _defaults(spec: ToolSpec) -> dict[str, Any]:
    properties: Mapping[str, Mapping[str, Any]] = spec.input_schema["properties"]
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def _expected(spec: ToolSpec) -> str:
    required: list[str] = spec.input_schema["required"]
    optional = [name for name in spec.input_schema["properties"] if name not in required]
    needs = f"needs {', '.join(required)}" if required else "needs nothing"
    return f"{spec.name} {needs}" + (f" and takes {', '.join(optional)}" if optional else "")


def _sound(value: Any) -> Any:
    """Return the value with every string valid as UTF-8; lone surrogates become question marks."""
    match value:
        case str():
            return value if value.isascii() else value.encode("utf-8", "replace").decode()
        case dict():
            found = cast("dict[str, Any]", value)
            return {key: _sound(one) for key, one in found.items()}
        case list():
            return [_sound(one) for one in cast("list[Any]", value)]
        case _:
            return value


def answer_text(tool: str, answer: Answer) -> str:
    """Return the answer of the named tool as text for a model."""
    return _WORDS[tool](answer)


def _recall(answer: Answer) -> str:
    texts = [memory["text"] for memory in answer["memories"]]
    return "\n\n".join([*texts, *_more(answer)]) or "Nothing is remembered about this."


def _remember(answer: Answer) -> str:
    if not answer["changed"]:
        return f"{answer['file']} already says this; nothing was changed."
    waits = " It waits for the user's approval." if answer["waits_for_review"] else ""
    notes = "".join(f" Note: {one}." for one in answer["warnings"])
    return f"Saved as {answer['file']} (change {answer['change']}; '{answer['undo']}' undoes it).{waits}{notes}"


def _forget(answer: Answer) -> str:
    files, restored = answer["files"], answer["restored"]
    if not files and not restored:
        return "There is nothing to forget."
    verb = "Would forget" if answer["dry_run"] else "Forgot"
    parts = [f"{verb} {', '.join(files)}."] if files else []
    if restored:
        parts.append(
            f"{'Would bring' if answer['dry_run'] else 'Brought'} back the earlier version: {', '.join(restored)}."
        )
    if answer["undo"]:
        parts.append(f"'{answer['undo']}' undoes it.")
    if answer["links"]:
        parts.append(f"These still point to it: {', '.join(answer['links'])}.")
    if answer["copies_in_sessions"]:
        parts.append(f"Copies are in the logs of {', '.join(answer['copies_in_sessions'])}.")
    return " ".join(parts)


def _search(answer: Answer) -> str:
    if not answer["messages"]:
        return f"Nothing found in {answer['scope']}. Try other words: names, identifiers, parts of a path."
    lines = [answer["note"]]
    for one in answer["messages"]:
        who = one["speaker"] or one["kind"]
        lines.append(f"\n{one['project']}/{one['session']}  {one['time'][:16]}  {who}  handle {one['handle']}")
        lines.append(one["snippet"])
    return "\n".join([*lines, *_more(answer)])


def _read_back(answer: Answer) -> str:
    head = (
        f"{answer['note']} Session {answer['session']}, {answer['handle']}: {answer['total_chars']} characters, "
        f"{answer['total_lines']} lines."
    )
    more = "".join(f"\n{line}" for line in _more(answer))
    if answer["matches"]:
        return "\n".join([head, *(f"{one['line']}: {one['text']}" for one in answer["matches"])]) + more
    if not answer["text"]:
        return f"{head} Nothing there from {answer['offset']} on."
    return f"{head} From {answer['offset']}:\n{answer['text']}{more}"


def _more(answer: Answer) -> list[str]:
    return [f"[More: call again with offset {answer['next_offset']}]"] if "next_offset" in answer else []


def _status(answer: Answer) -> str:
    off = [name for name, on in answer["switches"].items() if not on]
    today = answer["today"]
    lines = [
        f"Project {answer['project']} ({answer['directory']})",
        f"Memories: {answer['memories']} in {answer['memory_directory']}, index lines: {answer['index_lines']}, "
        f"waiting for review: {answer['pending_reviews']}"
        if answer["memory_on"]
        else "Memories are switched off.",
        f"Last dream: {answer['last_dream'] or 'never'}",
        f"Sessions: {answer['sessions']}, last touched: {answer['last_session'] or 'never'}",
        f"Today ({today['day']}, all projects): {today['calls']} calls, ${today['usd']:.4f}",
        f"Switched off: {', '.join(off) or 'nothing'}",
    ]
    return "\n".join([*lines, *([answer["index_warning"]] if answer["index_warning"] else [])])


_WORDS: Final[Mapping[str, Callable[[Answer], str]]] = {
    "recall": _recall,
    "remember": _remember,
    "forget": _forget,
    "search_sessions": _search,
    "read_back": _read_back,
    "status": _status,
}
