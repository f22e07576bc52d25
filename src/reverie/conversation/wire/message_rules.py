"""The provider's rules between the messages and blocks of a request: order, pairs, places and totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .block_rules import EXTRA, block_fault, is_list, is_object, text_fault
from .documents import document_pages, has_pages, pdf_problem
from .images import image_problem
from .management_rules import CompactionBlock, placement_problems
from .option_rules import thinking_is_on
from .problem import Problem, RequestRules
from .system_rules import is_turn_scoped, place_faults, system_faults
from .thinking_rules import round_fault
from .tool_rules import strict_tool_faults, too_many_tools, tool_fault_list, tool_faults, tool_kind

_MESSAGE_KEYS: Final = frozenset(("role", "content"))
_SERVER_USES: Final = ("server_tool_use", "mcp_tool_use")


class RequestWalk:
    """One pass over a request that collects problems, images, breakpoints, tools and tool-call ids."""

    __slots__ = (
        *(
            "added",
            "cites",
            "compactions",
            "documents",
            "found",
            "ids",
            "images",
            "marks",
            "names",
            "references",
            "request",
        ),
        *("rules", "servers", "tool_blocks"),
    )

    def __init__(self, request: Mapping[str, Any], rules: RequestRules, found: list[Problem]) -> None:
        self.request = request
        self.rules = rules
        self.found = found
        self.images: list[tuple[str, dict[str, Any]]] = []
        self.documents: list[tuple[str, dict[str, Any]]] = []
        self.marks: list[tuple[str, Any]] = []
        self.ids: set[str] = set()
        self.names: dict[str, Any] = {}
        self.servers: set[Any] = set()
        self.references: list[tuple[str, str]] = []
        self.compactions: list[CompactionBlock] = []
        self.added: list[dict[str, Any]] = []
        self.tool_blocks = self.cites = False

    def add(self, path: str, message: str, code: str = "") -> None:
        """Record a problem."""
        self.found.append(Problem(path, message, code=code))

    def tools(self, tools: Any) -> None:
        """Check the declared tools and collect their names and breakpoints."""
        for path, message in tool_faults(tools, self.request.get("model"), self.rules):
            self.add(path, message)
        for index, tool in enumerate(tools if is_list(tools) else ()):
            if is_object(tool):
                self.declare(tool)
                self.mark(tool, f"tools.{index}")
        servers = self.request.get("mcp_servers")
        self.servers.update(str(item.get("name")) for item in (servers if is_list(servers) else ()) if is_object(item))

    def declare(self, tool: Mapping[str, Any]) -> None:
        """Remember a tool, or the MCP server of a toolset."""
        if tool.get("type") == "mcp_toolset":
            self.servers.add(str(tool.get("mcp_server_name")))
        elif isinstance(tool.get("name"), str):
            self.names[tool["name"]] = tool_kind(tool)

    def mark(self, block: Mapping[str, Any], path: str) -> None:
        """Remember the breakpoint of a block, if it has one."""
        if block.get("cache_control") is not None:
            self.marks.append((path, block["cache_control"]))

    def system(self, system: Any) -> None:
        """Check the top-level system prompt."""
        if isinstance(system, str):
            message = text_fault(system)
            if message is not None:
                self.add("system", message)
        elif not is_list(system):
            self.add("system", "Input should be a valid string or list")
        else:
            self.blocks(system, "system", "system")

    def blocks(self, content: list[Any], role: str, path: str) -> list[dict[str, Any]]:
        """Check each block by itself, collect images and breakpoints, and return the blocks that are objects."""
        cache_edits, sound = self.rules.limits.cache_edits, True
        for index, block in enumerate(content):
            fault = block_fault(block, role, cache_edits)
            if fault is not None:
                self.add(f"{path}.{index}.{fault[0]}" if fault[0] else f"{path}.{index}", fault[1])
                sound = sound and is_object(block)
                continue
            if "cache_control" in block:
                self.mark(block, f"{path}.{index}")
            if block["type"] != "text" or role == "user":
                self.block(block, role, f"{path}.{index}")
        return content if sound else [block for block in content if is_object(block)]

    def block(self, block: dict[str, Any], role: str, path: str) -> None:
        """Collect the parts of a valid block that count for the whole request, and check them by version."""
        kind = block["type"]
        if kind == "text":
            if block.get("citations") and self.rules.is_latest:
                self.add(f"{path}.text.citations", "citations are not permitted on text blocks of user messages")
        elif kind == "image":
            self.images.append((path, block))
        elif kind == "tool_result":
            if is_list(block.get("content")):
                self.inside(block["content"], f"{path}.tool_result.content")
        elif kind in ("document", "search_result"):
            self.document(block, path)
        elif kind in ("tool_addition", "tool_removal"):
            self.tool_change(block, path)

    def document(self, block: dict[str, Any], path: str) -> None:
        """Collect a document or search result, and check the citations in it."""
        if has_pages(block):
            self.documents.append((path, block))
        for index, part in enumerate(block["content"] if block["type"] == "search_result" else ()):
            if part.get("citations") and self.rules.is_latest:
                where = f"{path}.search_result.content.{index}.citations"
                self.add(where, "citations are not permitted on text blocks of user messages")
        citations = block.get("citations")
        self.cites = self.cites or (is_object(citations) and citations.get("enabled") is True)

    def inside(self, content: list[Any], path: str) -> None:
        """Collect images, breakpoints and references inside a tool result."""
        for index, block in enumerate(content):
            self.mark(block, f"{path}.{index}")
            if block["type"] == "tool_reference":
                self.references.append((f"{path}.{index}", str(block.get("tool_name"))))
            elif block["type"] != "text":
                self.block(block, "tool_result", f"{path}.{index}")

    def tool_change(self, block: dict[str, Any], path: str) -> None:
        """Check a tool that a system message adds or removes; the shape of the block is valid."""
        tool, kind = block["tool"], block["tool"]["type"]
        if not self.rules.facts.tool_changes:
            self.add(path, f"{block['type']} is not supported on this model")
        if kind == "tool_definition":
            self.definition(block, tool["definition"], path)
        elif kind == "tool_reference":
            if tool["name"] not in self.names:
                said = f"the tool '{tool['name']}' is not defined at this position"
                self.add(f"{path}.{block['type']}.tool", said, "tool_reference_unresolved")
        elif tool["server_name"] not in self.servers:
            said = f"the MCP server '{tool['server_name']}' is not defined at this position"
            self.add(f"{path}.{block['type']}.tool", said, "tool_reference_unresolved")

    def definition(self, block: dict[str, Any], definition: dict[str, Any], path: str) -> None:
        """Check a tool that a system message adds by its definition."""
        self.added.append(definition)
        inner = f"{path}.{block['type']}.tool.definition"
        for where, message in tool_fault_list(definition, inner):
            self.add(where, message)
        name = definition.get("name")
        if isinstance(name, str) and self.names.get(name, tool_kind(definition)) != tool_kind(definition):
            self.add(inner, f"the name '{name}' belongs to a tool of another kind", "tool_name_conflict")
        self.declare(definition)
        self.mark(definition, inner)
        if definition.get("cache_control") is not None and block.get("cache_control") is not None:
            self.add(path, "cache_control may be set on a tool_addition or on its definition, not on both")

    def messages(self, messages: list[Any]) -> None:
        """Check every message, and the order of roles, calls and results."""
        before, pending, follows = "", list[str](), False
        last = max((at for at, message in enumerate(messages) if not _is_system(message)), default=-1)
        for index, message in enumerate(messages):
            if not is_object(message):
                self.add(f"messages.{index}", "Input should be a valid dictionary")
                before, pending = "", []
                continue
            role = message.get("role")
            blocks = self.message(message, role, index)
            if role == "system":
                continue
            if role != ("assistant" if before == "user" else "user"):
                self.role(role, before, index, opens_with_summary=follows or (not before and _is_summary(blocks[:1])))
            if role == "assistant":
                if pending:
                    self.results([], pending, index)
                pending = self.uses(blocks, index, index == last)
            else:
                self.results(blocks, pending, index)
                pending = []
            before, follows = role, not index and _is_summary(blocks)
        self.ending(messages, last, pending)
        fault = round_fault(self.request)
        for path, message in (*place_faults(messages), *([fault] if fault else ())):
            self.add(path, message)
        self.found.extend(placement_problems(self.request, self.compactions))

    def message(self, message: dict[str, Any], role: Any, index: int) -> list[dict[str, Any]]:
        """Check the fields and blocks of one message and return its blocks."""
        path = f"messages.{index}"
        if role == "system":
            faults = system_faults(message, path, self.request, self.rules)
        elif len(message) > 2 and not message.keys() <= _MESSAGE_KEYS:
            faults = _extra_fields(message, path)
        else:
            faults = ()
        for where, said in faults:
            self.add(where, said)
        blocks = self.content(message, role, path)
        for position, block in enumerate(blocks):
            if block.get("type") == "compaction":
                self.compactions.append((index, position, str(role), block))
        return blocks

    def role(self, role: Any, before: Any, index: int, *, opens_with_summary: bool) -> None:
        """Record a role that is unknown or out of order; a reply may follow a summary, or begin with one."""
        if role not in ("user", "assistant"):
            self.add(f"messages.{index}.role", f"Unexpected role {role!r}: use 'user' or 'assistant'")
        elif opens_with_summary:
            return
        elif not before:
            self.add("messages", 'first message must use the "user" role')
        elif role == before:
            self.add(
                "messages",
                'roles must alternate between "user" and "assistant", '
                f'but found multiple "{role}" roles in a row (at messages.{index})',
            )

    def content(self, message: dict[str, Any], role: Any, path: str) -> list[dict[str, Any]]:
        """Check a message's content and return its blocks; an empty list if the content is a string or invalid."""
        content = message.get("content")
        if is_list(content) and content:
            place = {"assistant": "assistant", "system": "system_message"}.get(str(role), "user")
            if role == "system" and is_turn_scoped(message):
                # The rules of turn-scoped messages name other blocks and breakpoints already.
                content = [block for block in content if is_object(block) and set(block) == {"type", "text"}]
            return self.blocks(content, place, f"{path}.content")
        if isinstance(content, str) and content:
            if content.isspace():
                self.add("messages", f"text content blocks must contain non-whitespace text (at {path})")
        elif role == "system":
            pass
        elif content in ("", []):
            self.add(path, "all messages must have non-empty content")
        else:
            self.add(f"{path}.content", "Field required" if content is None else "Input should be a valid list")
        return []

    def results(self, blocks: list[dict[str, Any]], pending: list[str], index: int) -> None:
        """Check that a message's results come first and answer exactly the calls of ``pending``, each once."""
        seen: set[str] = set()
        late = other = False
        for position, block in enumerate(blocks):
            if block.get("type") != "tool_result":
                other = True
                continue
            self.tool_blocks = True
            late = late or other
            found = str(block.get("tool_use_id"))
            if found in seen:
                self.add(
                    f"messages.{index}.content",
                    f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {found}",
                )
            elif found not in pending:
                self.add(
                    f"messages.{index}.content.{position}",
                    f"unexpected `tool_use_id` found in `tool_result` blocks: {found}. Each `tool_result` block must "
                    "have a corresponding `tool_use` block in the previous message.",
                )
            seen.add(found)
        missing = [found for found in pending if found not in seen]
        if missing or (late and pending):
            self.add(
                f"messages.{index - 1}",
                "`tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing or pending)}. Each `tool_use` block must have a corresponding `tool_result` block "
                "in the next message.",
            )

    def uses(self, blocks: list[dict[str, Any]], index: int, is_last: bool) -> list[str]:
        """Check ids and server tool pairs; return the ids of the calls that need a result next."""
        pending: list[str] = []
        open_server: dict[str, int] = {}
        for position, block in enumerate(blocks):
            kind = block.get("type")
            if kind == "text" or not isinstance(kind, str):
                continue
            if kind in ("tool_use", *_SERVER_USES):
                self.tool_blocks = self.tool_blocks or kind == "tool_use"
                found = str(block.get("id"))
                if found in self.ids:
                    self.add(f"messages.{index}.content.{position}", f"`{kind}` ids must be unique: {found}")
                self.ids.add(found)
                if kind == "tool_use":
                    pending.append(found)
                else:
                    open_server[found] = position
            elif kind.endswith("_tool_result") and open_server.pop(str(block.get("tool_use_id")), None) is None:
                self.add(
                    f"messages.{index}.content.{position}",
                    f"unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}",
                )
        for found, position in open_server.items():
            if not (is_last and position == len(blocks) - 1):
                self.add(f"messages.{index}.content.{position}", f"`server_tool_use` without its result: {found}")
        return pending

    def ending(self, messages: list[Any], last: int, pending: list[str]) -> None:
        """Check the end of the conversation: open calls, and a reply that the model should continue."""
        final = messages[last] if last >= 0 else None
        compacts = self.request.get("compaction") is not None
        if compacts and last < 0:
            self.add("messages", "there is nothing to summarize", "compaction_nothing_to_summarize")
        ending = _ending(final)
        kind = ending.get("type") if is_object(ending) else "text"
        if compacts and (pending or kind in _SERVER_USES):
            said = "a compaction request cannot end on an assistant message that is not finished"
            self.add(f"messages.{last}", said, "compaction_incomplete_turn")
        elif pending:
            self.results([], pending, last + 1)
        elif last == len(messages) - 1 and not compacts and is_object(final) and final.get("role") == "assistant":
            paused = isinstance(kind, str) and (kind in _SERVER_USES or kind.endswith("_tool_result"))
            if not paused and not (kind == "compaction" and not ending.get("signature")):
                self.prefill(ending)

    def prefill(self, ending: Any) -> None:
        """Check a reply at the end, which the model should continue; ``ending`` is its last block or its text."""
        if not self.rules.facts.prefill:
            said = (
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
            self.add("", said)
        elif thinking_is_on(self.request, self.rules):
            self.add("", "Assistant message prefill is not supported while thinking is on: end with a user message.")
        text = ending.get("text") if is_object(ending) else ending
        if isinstance(text, str) and text != text.rstrip():
            self.add("messages", "final assistant content cannot end with trailing whitespace")

    def totals(self) -> None:
        """Check the limits of the whole request: declared tools, references, images and breakpoints."""
        if self.tool_blocks and not self.request.get("tools") and not self.added:
            self.add("", "Requests which include `tool_use` or `tool_result` blocks must define tools")
        for path, name in self.references:
            if name not in self.names:
                self.add(path, f"Tool reference '{name}' has no corresponding tool definition")
        for path, message in strict_tool_faults(self.request, self.cites):
            self.add(path, message)
        said = too_many_tools(self.request.get("tools"), self.added)
        if said is not None:
            self.add("", said, "available_tools_limit_exceeded")
        self.media()
        self.breakpoints()

    def media(self) -> None:
        """Check each image and document, and how many images and pages there are."""
        facts, most = self.rules.facts, self.rules.limits.max_images
        most = facts.max_images if most is None else most
        pages = sum(document_pages(block) for _, block in self.documents)
        if len(self.images) + pages > most:
            counted = " and ".join([f"{len(self.images)} images", *([f"{pages} PDF pages"] if pages else [])])
            self.add("messages", f"Too much media: {counted} > {most}")
        many = len(self.images) + (len(self.documents) if facts.documents_are_images else 0) > facts.many_images
        for path, block in self.images:
            said = image_problem(block, facts, many=many)
            if said is not None:
                self.add(f"{path}.image.source.base64.data", said)
        for path, block in self.documents:
            said = pdf_problem(block)
            if said is not None:
                self.add(f"{path}.document.source.base64.data", said)

    def breakpoints(self) -> None:
        """Check the number, the form and the order of the breakpoints."""
        automatic = self.request.get("cache_control")
        if automatic is not None:
            self.automatic(automatic)
        if len(self.marks) > self.rules.limits.max_breakpoints:
            maximum = self.rules.limits.max_breakpoints
            self.add("", f"A maximum of {maximum} blocks with cache_control may be provided. Found {len(self.marks)}.")
        short = False
        for path, mark in self.marks:
            ttl = mark.get("ttl") or "5m" if is_object(mark) else None
            if not is_object(mark) or mark.get("type") != "ephemeral" or not mark.keys() <= {"type", "ttl"}:
                self.add(f"{path}.cache_control", "Input should be {'type': 'ephemeral', 'ttl': '5m' or '1h'}")
            elif ttl not in ("5m", "1h"):
                self.add(f"{path}.cache_control.ephemeral.ttl", "Input should be '5m' or '1h'")
            elif ttl == "1h" and short:
                self.add(
                    f"{path}.cache_control.ttl",
                    "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that "
                    "blocks are processed in the following order: `tools`, `system`, `messages`.",
                )
            short = short or ttl == "5m"

    def automatic(self, mark: Any) -> None:
        """Count the automatic breakpoint unless the last block has the same one; another lifetime is a problem."""
        messages = self.request.get("messages")
        last = _ending(messages[-1]) if is_list(messages) and messages else None
        explicit = last.get("cache_control") if is_object(last) else None
        if explicit is None or len(self.marks) >= self.rules.limits.max_breakpoints:
            self.marks.append(("cache_control", mark))
        elif is_object(explicit) and is_object(mark) and (explicit.get("ttl") or "5m") != (mark.get("ttl") or "5m"):
            self.add("cache_control", "the last block has a cache_control with another ttl")


def _is_system(message: Any) -> bool:
    return is_object(message) and message.get("role") == "system"


def _is_summary(blocks: list[dict[str, Any]]) -> bool:
    return bool(blocks) and blocks[0].get("type") == "compaction" and bool(blocks[0].get("content"))


def _ending(message: Any) -> Any:
    content = message.get("content") if is_object(message) else None
    return content[-1] if is_list(content) and content else content


def _extra_fields(message: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name in sorted(map(str, message.keys() - _MESSAGE_KEYS)):
        said = "clear_at is only permitted on role 'system' messages" if name == "clear_at" else EXTRA
        yield f"{path}.{name}", said
