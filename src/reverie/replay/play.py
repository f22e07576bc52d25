"""Play a recorded session through a live one: the same messages, a real log, a simulated provider's bill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, cast

from ..cache.simulator import CacheSimulator, Mark, SimBlock, messages_key
from ..cache.usage import Usage, reply_tokens, usage_fields
from ..conversation.decisions import Compacted, decision_of
from ..conversation.entries import ASSISTANT, ATTACHMENT, DECISION, USER, Entry, reply_id
from ..conversation.tokens.estimate import estimate_block
from ..conversation.wire.blocks import Block, as_blocks
from ..conversation.wire.canonical import canonical_block
from ..runtime.session.session import Session
from ..values import record, replace

_DIGEST: Final = 12


class PlayedClock:
    """A clock that returns ``now``, which ``play_session`` sets to the time of each entry."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@record
class PlayedRequest:
    """One request of the played session: its time, usage and tokens, and the first text of its reply."""

    number: int
    at: float
    usage: dict[str, Any]
    window: int
    said: str


async def play_session(
    entries: Sequence[Entry],
    session: Session,
    clock: PlayedClock,
    *,
    model: str,
    system: str,
    tools: list[dict[str, Any]],
    provider: SimulatedProvider | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
    on_said: Callable[[str], None] | None = None,
) -> AsyncIterator[PlayedRequest]:
    """Append the messages and compactions of recorded entries to a session; yield each request with its usage.

    ``clock`` is set to the time of each entry, ``check`` gets each request, and ``on_said`` the text of each user
    message.
    """
    provider = provider or SimulatedProvider()
    renamed: dict[str, str] = {}
    number = 0
    for group in _replies_together(entries):
        entry = group[0]
        clock.now = max(clock.now, entry.at)
        if entry.kind == ASSISTANT:
            request = await session.prepare(model=model, max_tokens=8_000, system=system, tools=tools)
            if check is not None:
                check(request)
            blocks = [block for piece in group for block in as_blocks(piece.message or {"content": []})]
            message = {"role": "assistant", "content": blocks}
            usage = provider.bill(request, clock.now, output=reply_tokens(group))
            await session.observe({"id": reply_id(entry), "model": model, "usage": usage, **message})
            number += 1
            yield PlayedRequest(number, clock.now, usage, provider.last.input, _first_text(blocks))
            said = session.view.last or ""
        elif entry.kind == DECISION:
            decision = decision_of(entry.body)
            if not isinstance(decision, Compacted):
                continue
            kept = renamed.get(decision.first_kept or "")
            said = (await session.log.decide(replace(decision, first_kept=kept))).uuid
        elif entry.kind in (USER, ATTACHMENT) and entry.message is not None:
            said = await _say(session, entry, on_said)
        else:
            continue
        renamed.update((piece.uuid, said) for piece in group)


def _replies_together(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the entries as groups: the pieces of one reply together, each other entry by itself."""
    out: list[list[Entry]] = []
    for entry in entries:
        last = out[-1][0] if out else None
        if last is not None and entry.kind == last.kind == ASSISTANT and reply_id(entry) == reply_id(last):
            out[-1].append(entry)
        else:
            out.append([entry])
    return out


async def _say(session: Session, entry: Entry, on_said: Callable[[str], None] | None) -> str:
    """Log results of known calls, then other content as a message or a note; return the last entry's uuid."""
    rest: list[Block] = []
    for block in as_blocks(entry.message or {"content": []}):
        known = block["type"] == "tool_result" and session.view.tool_call(block["tool_use_id"]) is not None
        if known:
            content = block.get("content") or ""
            await session.result(block["tool_use_id"], content, is_error=block.get("is_error") is True)
        elif block["type"] != "tool_result":
            rest.append(block)
    if rest:
        if on_said is not None and entry.kind == USER:
            on_said(_first_text(rest))
        await (session.say(rest) if entry.kind == USER else session.attach(rest, type="note"))
    return session.view.last or ""


def _first_text(blocks: list[Block]) -> str:
    return next((block["text"] for block in blocks if block["type"] == "text"), "")


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
