"""The content before each thinking block, as digests: a chain over system, tools and messages.

Two requests have the same digest at a place if the same content was sent before it. ``cache_control``, thinking, key
order, null fields and the borders between messages of one role do not count; a string counts as one text block. A
deferred tool counts from the first block that refers to it. After a compaction block the chain starts at that block;
further chains continue those of the messages that a signed one replaces. Content before one that was made at a
threshold does not count.
Pages: build-with-claude/preserved-thinking/prefix-checks, build-with-claude/compaction-thinking-blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias, cast

import msgspec

from ...values import record

Chains: TypeAlias = "tuple[str, ...]"
Block: TypeAlias = "Mapping[str, Any]"
_encode = msgspec.json.Encoder(order="deterministic").encode


@record
class Origin:
    """The messages that a compaction block replaces: their chains, their system and tools, and the last role."""

    signature: str
    chains: Chains
    opening: str
    last_role: str


@record
class Place:
    """A thinking block of a request, and the chains before it; the first chain is the request's own."""

    message: int
    position: int
    block: Block
    chains: Chains

    @property
    def path(self) -> str:
        """The block's place in the provider's notation."""
        return f"messages.{self.message}.content.{self.position}"


@record
class Prefix:
    """A request as chains of digests: its thinking blocks, the chains at its end, its opening and its last role."""

    places: tuple[Place, ...]
    chains: Chains
    opening: str
    last_role: str


def prefix_of(request: Mapping[str, Any], origin: Origin | None) -> Prefix:
    """Return the chains of a request; ``origin`` belongs to the compaction block at its front, if there is one."""
    tools = {str(tool.get("name")): tool for tool in request.get("tools") or () if tool.get("defer_loading")}
    opening = _opening(request)
    messages = request["messages"]
    chains = _start(opening, origin, messages)
    places: list[Place] = []
    for index, message in enumerate(messages):
        chains = _turned(chains, message)
        for position, block in enumerate(content_blocks(message["content"])):
            if is_thinking(block):
                places.append(Place(index, position, block, chains))
            elif is_threshold_summary(block):
                places, chains = [], restarted(opening, block)
            else:
                chains = extended(chains, message["role"], block, tools)
    return Prefix(tuple(places), chains, opening, messages[-1]["role"] if messages else "")


def extended(chains: Chains, role: str, block: Block, tools: Mapping[str, Any]) -> Chains:
    """Return the chains after one more block; thinking, and a compaction block, leave them as they are."""
    if is_thinking(block) or block.get("type") == "compaction":
        return chains
    definitions = [_bare(tools[name]) for name in referenced_tools(block) if name in tools]
    return _linked(chains, [role, _bare(block), *definitions])


def restarted(opening: str, block: Block) -> Chains:
    """Return the chain that starts at a summary made at a threshold."""
    return _linked((opening,), ["compaction", block["content"]])


def visible_tools(request: Mapping[str, Any]) -> list[Any]:
    """Return the tools that the model sees from the start: those that are not deferred."""
    return [tool for tool in request.get("tools") or () if not tool.get("defer_loading")]


def referenced_tools(block: Any) -> Iterator[str]:
    """Yield the names in the tool references inside a block."""
    if isinstance(block, dict):
        fields = cast("dict[str, Any]", block)
        if fields.get("type") == "tool_reference":
            yield str(fields.get("tool_name", fields.get("name")))
        for name in ("tool", "content", "tool_references"):
            yield from referenced_tools(fields.get(name))
    elif isinstance(block, list):
        for item in cast("list[Any]", block):
            yield from referenced_tools(item)


def is_thinking(block: Block) -> bool:
    """Return whether a block is thinking, readable or redacted."""
    return block.get("type") in ("thinking", "redacted_thinking")


def is_threshold_summary(block: Block) -> bool:
    """Return whether a block is a summary made at a threshold: it has no signature, and the API reads on from it."""
    return block.get("type") == "compaction" and bool(block.get("content")) and not block.get("signature")


def _start(opening: str, origin: Origin | None, messages: list[Any]) -> Chains:
    if origin is None:
        return (opening,)
    own = _linked((opening,), ["compaction", origin.signature])
    first = next((message["role"] for message in messages if _kept(message)), "")
    follows = opening == origin.opening and first not in (origin.last_role, "system")
    return own + origin.chains if follows else own


def _kept(message: Mapping[str, Any]) -> bool:
    content = content_blocks(message["content"])
    return not content or any(block.get("type") != "compaction" for block in content)


def _opening(request: Mapping[str, Any]) -> str:
    system = [_bare(block) for block in content_blocks(request.get("system") or ())]
    tools = [_bare(tool) for tool in visible_tools(request)]
    return _linked(("",), [system, tools])[0]


def _turned(chains: Chains, message: Mapping[str, Any]) -> Chains:
    """Return the chains after the fields of a message beside its content."""
    fields = {key: value for key, value in message.items() if key not in ("role", "content") and value is not None}
    if fields.get("clear_at") == "never":
        del fields["clear_at"]
    return _linked(chains, [message["role"], fields]) if fields else chains


def _linked(chains: Iterable[str], said: Any) -> Chains:
    digest = blake2b(_encode(said), digest_size=16).digest()
    return tuple(blake2b(chain.encode() + digest, digest_size=12).hexdigest() for chain in chains)


def _bare(block: Any) -> Any:
    """Return a block without ``cache_control`` and null fields, its own and those of the blocks inside it."""
    fields = {key: value for key, value in block.items() if key != "cache_control" and value is not None}
    inner = fields.get("content")
    if isinstance(inner, list):
        fields["content"] = [_bare(item) if isinstance(item, dict) else item for item in cast("list[Any]", inner)]
    return fields


def content_blocks(content: Any) -> list[Any]:
    """Return content as a list of blocks."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
