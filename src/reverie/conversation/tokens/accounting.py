"""Token usage of the window by category and tool, and files that were read more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from math import ceil
from typing import Any, Final, cast

from ...values import field, object_of, record
from ..view import View
from ..wire.blocks import as_blocks
from .estimate import estimate_block

LOCAL_COMMAND_TAG: Final = "local-command-stdout"
UNKNOWN: Final = "unknown"

# Tools that read a file, by their lower-case name, and the input that names the file.
READ_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("file_path", "path"),
    "read_file": ("path", "file_path"),
    "view": ("path", "file_path"),
    "open": ("path",),
}

Weigh = Callable[[Any], float]


@record
class DuplicateRead:
    """A file that was read more than once, and the tokens of all its reads."""

    path: str
    reads: int
    tokens: int

    @property
    def wasted_tokens(self) -> int:
        """The tokens of all reads but one, at the mean size of a read."""
        return self.tokens // self.reads * (self.reads - 1)


def _counts() -> dict[str, int]:
    return {}


@record
class Accounting:
    """The tokens of a request's messages by category, without the system prompt and the tool definitions.

    ``attachments`` is not a token count: it counts attachments by type.
    """

    tool_requests: Mapping[str, int] = field(default_factory=_counts)
    tool_results: Mapping[str, int] = field(default_factory=_counts)
    human: int = 0
    context: int = 0
    """Standing context and other text that a program added."""
    assistant: int = 0
    local_command: int = 0
    other: int = 0
    attachments: Mapping[str, int] = field(default_factory=_counts)
    duplicate_reads: tuple[DuplicateRead, ...] = ()

    @property
    def total(self) -> int:
        """The tokens of all categories together."""
        return sum(self.by_category().values())

    @property
    def duplicate_tokens(self) -> int:
        """The tokens spent on reading files again."""
        return sum(read.wasted_tokens for read in self.duplicate_reads)

    def by_category(self) -> dict[str, int]:
        """Return a dict with the tokens of each category, those of tools summed over all tools."""
        return {
            "human": self.human,
            "context": self.context,
            "assistant": self.assistant,
            "local_command": self.local_command,
            "tool_requests": sum(self.tool_requests.values()),
            "tool_results": sum(self.tool_results.values()),
            "other": self.other,
        }


class _Ledger:
    """The running sums of one accounting."""

    def __init__(
        self,
        weigh: Weigh,
        read_tools: Mapping[str, tuple[str, ...]],
        context: Container[str],
    ) -> None:
        self.weigh = weigh
        self.context = context
        self.read_tools = read_tools
        self.names: dict[str, str] = {}
        self.paths: dict[str, str] = {}
        self.requests: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.plain: Counter[str] = Counter()
        self.reads: dict[str, list[int]] = {}

    def message(self, message: Mapping[str, Any]) -> None:
        """Add a message, block by block."""
        content = message.get("content")
        mine = {"assistant": "assistant", "system": "context"}.get(str(message.get("role")), "human")
        if isinstance(content, str):
            self.text(content, content, mine)
        elif isinstance(content, list):
            for block in cast("list[Any]", content):
                self.block(block, mine)
        elif content is not None:
            self.plain["other"] += self._tokens(content)

    def text(self, text: str, block: Any, mine: str) -> None:
        """Add text to the category of its author: a person, the model, a local command or a program."""
        if mine == "human":
            mine = "context" if text.strip() in self.context else "local_command" if LOCAL_COMMAND_TAG in text else mine
        self.plain[mine] += self._tokens(block)

    def block(self, block: Any, mine: str) -> None:
        """Add one block to its category."""
        fields = object_of(block)
        kind, text = fields.get("type"), fields.get("text")
        if kind == "text" and isinstance(text, str):
            self.text(text, block, mine)
        elif isinstance(kind, str) and kind.endswith("tool_use"):
            self.use(fields)
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            self.result(fields)
        elif kind in ("thinking", "redacted_thinking"):
            self.plain[mine] += self._tokens(block)
        elif isinstance(block, str):
            self.text(block, block, mine)
        else:
            self.plain["other"] += self._tokens(block)

    def use(self, block: dict[str, Any]) -> None:
        """Add a tool request, and remember its tool and the file it reads."""
        name, id, given = block.get("name"), block.get("id"), block.get("input")
        name = name if isinstance(name, str) and name else UNKNOWN
        self.requests[name] += self._tokens(block)
        if not isinstance(id, str):
            return
        self.names[id] = name
        if isinstance(given, dict):
            inputs = cast("dict[str, Any]", given)
            paths = [inputs.get(key) for key in self.read_tools.get(name.lower(), ())]
            path = next((path for path in paths if isinstance(path, str) and path), None)
            if path is not None:
                self.paths[id] = path

    def result(self, block: dict[str, Any]) -> None:
        """Add a tool result to the tokens of its tool and of the file it read."""
        id, tokens = block.get("tool_use_id"), self._tokens(block)
        id = id if isinstance(id, str) else ""
        self.results[self.names.get(id, UNKNOWN)] += tokens
        path = self.paths.get(id)
        if path is not None:
            self.reads.setdefault(path, []).append(tokens)

    def _tokens(self, block: Any) -> int:
        return ceil(self.weigh(block))


def account(
    messages: Iterable[Mapping[str, Any]],
    attachments: Iterable[Mapping[str, Any]] = (),
    *,
    weigh: Weigh = estimate_block,
    read_tools: Mapping[str, tuple[str, ...]] = READ_TOOLS,
    context: Container[str] = frozenset(),
) -> Accounting:
    """Return the tokens by category of the messages of a flattened view, with its attachments counted by type.

    ``weigh`` returns a block's tokens, and ``read_tools`` maps lower-case names of reading tools to the inputs that
    name the file. ``context`` are texts in the user's role that a program added.
    """
    ledger = _Ledger(weigh, read_tools, context)
    for message in messages:
        ledger.message(message)
    kinds = Counter(_attachment_type(attachment) for attachment in attachments)
    duplicates = [DuplicateRead(path, len(sizes), sum(sizes)) for path, sizes in ledger.reads.items() if len(sizes) > 1]
    duplicates.sort(key=lambda read: (-read.wasted_tokens, read.path))
    return Accounting(
        tool_requests=dict(ledger.requests.most_common()),
        tool_results=dict(ledger.results.most_common()),
        human=ledger.plain["human"],
        context=ledger.plain["context"],
        assistant=ledger.plain["assistant"],
        local_command=ledger.plain["local_command"],
        other=ledger.plain["other"],
        attachments=dict(kinds.most_common()),
        duplicate_reads=tuple(duplicates),
    )


def attachments_in(view: View) -> list[Mapping[str, Any]]:
    """Return the bodies of the attachments that a view shows; those that a decision shows have its name as type."""
    shown = {piece.uuid for group in view.groups for piece in group.pieces if piece.attachment}
    found = (item.entry.body for item in view.items_in_view() if item.uuid in shown)
    return [{"type": body["decision"]} if "decision" in body else body for body in found]


def added_texts(view: View) -> frozenset[str]:
    """Return the texts in the user's role that a view shows and that a program added, such as standing context."""
    pieces = (piece for group in view.groups for piece in group.pieces if piece.attachment)
    blocks = (block for piece in pieces for block in as_blocks(piece.message))
    return frozenset(str(block["text"]).strip() for block in blocks if "text" in block)


def _attachment_type(attachment: Mapping[str, Any]) -> str:
    inner = attachment.get("attachment")
    fields = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else attachment
    kind = fields.get("type")
    return kind if isinstance(kind, str) and kind else UNKNOWN


def metrics(accounting: Accounting) -> dict[str, Any]:
    """Return a dict of totals, tokens per tool, duplicate reads and percentages; an error becomes a ``note``."""
    found: dict[str, Any] = {}
    try:
        categories = accounting.by_category()
        total = accounting.total
        found["total_tokens"] = total
        found.update({f"{name}_tokens": tokens for name, tokens in categories.items()})
        found["tool_request_tokens_by_tool"] = dict(accounting.tool_requests)
        found["tool_result_tokens_by_tool"] = dict(accounting.tool_results)
        found["attachments"] = dict(accounting.attachments)
        found["duplicate_read_tokens"] = accounting.duplicate_tokens
        found["duplicate_read_files"] = len(accounting.duplicate_reads)
        if total > 0:
            shares = {name: categories[name] for name in categories if name != "other"}
            shares["duplicate_read"] = accounting.duplicate_tokens
            found.update({f"{name}_percent": round(tokens / total * 100) for name, tokens in shares.items()})
    except Exception as error:
        found["note"] = f"metrics are incomplete: {type(error).__name__}: {error}"
    return found
