"""A provider that bills requests by the documented cache rules and never answers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, cast

from ..cache.simulator import CacheSimulator, Mark, SimBlock, messages_key
from ..cache.usage import Usage, usage_fields
from ..conversation.tokens.estimate import estimate_block
from ..conversation.wire.canonical import canonical_block

_DIGEST: Final = 12


class SimulatedProvider:
    """Bills requests as a provider with a prompt cache would."""

    def __init__(self) -> None:
        self._cache = CacheSimulator()
        self._known: dict[bytes, SimBlock] = {}
        self.last = Usage()

    def bill(self, request: Mapping[str, Any], now: float, *, output: int = 0) -> dict[str, Any]:
        """Send a request to the simulated cache and return its usage in the provider's own fields.

        The usage is also kept as ``last``.
        """
        blocks: list[SimBlock] = []
        marks: list[Mark] = []
        salt = messages_key(request)
        for role, block in _walk(request):
            control: Any = block.get("cache_control")
            if isinstance(control, dict):
                marks.append(Mark(len(blocks), str(cast("dict[str, Any]", control).get("ttl", "5m"))))
            first = salt and role not in ("tool", "system")
            blocks.append(self._block(role, block, salt if first else b""))
            salt = b"" if first else salt
        used = self.last = self._cache.request(blocks, marks, model=str(request["model"]), now=now)
        return usage_fields(used, output)

    def _block(self, role: str, block: dict[str, Any], salt: bytes) -> SimBlock:
        digest = blake2b(canonical_block(block, role) + salt, digest_size=_DIGEST).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = SimBlock(digest, estimate_block(block), str(block.get("type", "")))
        return found


def _walk(request: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the blocks of a request with their roles, in the provider's order: tools, system prompt, messages."""
    tools: list[dict[str, Any]] = request.get("tools") or []
    out: list[tuple[str, dict[str, Any]]] = [("tool", tool) for tool in tools]
    system: Any = request.get("system")
    if isinstance(system, str):
        out.append(("system", {"type": "text", "text": system}))
    elif system:
        out += [("system", block) for block in system]
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        out += [(message["role"], block) for block in blocks]
    return out
