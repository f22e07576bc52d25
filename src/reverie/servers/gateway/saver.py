"""Saving: move big tool results that are new in a request to disk, by layer 1, and show them so for good.

Only bytes that were never sent are changed. The texts shown in their place are frozen in a log before the request
leaves, and every later request shows the same bytes, also after a restart; nothing else of a request is touched. A
refusal ends saving for its session: results whose place was accepted keep it, because the provider's cache knows them
so, and all others pass as they are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ...conversation.decisions import ResultOffloaded, body_of
from ...conversation.tokens.estimate import estimate_block
from ...conversation.view import View
from ...errors import ReverieError
from ...importers.foreign_values import as_list
from ...layers.l1_offload import OffloadPolicy, ResultStore, offload_result
from ...storage.files import FileStorage
from ...values import object_of, record, rows_of
from .content import SeenRequest, digest_of, request_session
from .conversations import name_of
from .exchange import Exchange
from .http1 import BrokenMessage, unframed

FOLDER: Final = "gateway"
_REFUSALS: Final = frozenset({400, 413, 422})
_CONTENT: Final = re.compile(rb'"content"\s*:\s*')


@record
class FrozenResult:
    """The text shown in place of a result for as long as its session lives, and the hash of the result's content."""

    id: str
    digest: str
    text: str
    tokens: int
    """The tokens that each request with the result is shorter."""


class SessionSavings:
    """The frozen results of one session, as its log has them."""

    def __init__(self) -> None:
        self.frozen: dict[str, FrozenResult] = {}
        self.kept = set[str]()
        """Results that were sent whole; they stay so."""
        self.off = ""
        """Why nothing more is saved; empty if saving is on."""

    def apply(self, row: Mapping[str, Any]) -> None:
        """Take a line of the log."""
        if fields := object_of(row.get("frozen")):
            self.frozen[fields["id"]] = FrozenResult(**fields)
        elif "refused" in row:
            self.off = str(row.get("reason"))
            for called in as_list(row["refused"]):
                self.frozen.pop(called, None)


class Saver:
    """Changes requests of the Messages API as layer 1 plans it; use it as the rewriter of a relay."""

    def __init__(self, home: Path, policy: OffloadPolicy | None = None) -> None:
        """Store results, and the log of each session's frozen texts, under ``home``."""
        self._home = home
        self._policy = policy or OffloadPolicy()
        self._storage = FileStorage(home)
        self._sessions: dict[str, SessionSavings] = {}
        self._fresh: dict[int, tuple[str, list[str]]] = {}
        self._decisions: dict[str, dict[str, Any]] = {}
        """Decisions about new results, until their request is sent."""
        self._lock = asyncio.Lock()

    async def request(self, exchange: Exchange) -> bytes | None:
        """Return the request with its big new results, and those frozen before, replaced; None if none is."""
        if exchange.api != "messages" or "content-encoding" in exchange.headers:
            return None
        async with self._lock:  # two requests of a session decide one after the other
            try:
                return await asyncio.to_thread(self._saved, exchange)
            except (ReverieError, OSError, BrokenMessage, msgspec.MsgspecError, ValueError, RecursionError):
                return None  # the request passes as it is

    def finished(self, exchange: Exchange) -> None:
        """End saving for the session of a request that was refused; results that were new in it pass whole."""
        session, fresh = self._fresh.pop(id(exchange), ("", []))
        if session and exchange.status in _REFUSALS:
            self._append(session, {"refused": fresh, "reason": f"a request was refused with {exchange.status}"})

    def _saved(self, exchange: Exchange) -> bytes | None:
        body = unframed(b"".join(exchange.request), chunked=exchange.is_chunked)
        asked = object_of(msgspec.json.decode(body))
        session = name_of(exchange.headers, SeenRequest("", None, [], (), {}, session=request_session(asked))).session
        if not session:
            return None  # without a name nothing can be frozen for good
        savings = self._savings(session)
        fresh: list[str] = []
        shown: dict[str, FrozenResult] = {}
        for block, tool, is_new in _results(asked):
            found = savings.frozen.get(block["tool_use_id"])
            if found is None and is_new and not savings.off and block["tool_use_id"] not in savings.kept:
                found = self._offloaded(session, block, tool)
                if found is not None:
                    fresh.append(found.id)
            if found is not None and found.digest == digest_of(block.get("content")):
                shown[found.id] = found
            else:
                savings.kept.add(block["tool_use_id"])
        if not shown:
            return None
        made = spliced(body, {one.id: one.text for one in shown.values()})
        self._fresh[id(exchange)] = session, fresh
        exchange.saved = {
            "tokens": sum(one.tokens for one in shown.values()),
            "new_tokens": sum(one.tokens for one in shown.values() if one.id in fresh),
            "results": len(shown),
            "decisions": [self._decisions.pop(one) for one in fresh if one in self._decisions],
        }
        return made

    def _offloaded(self, session: str, block: Mapping[str, Any], tool: str) -> FrozenResult | None:
        """Store a big result and freeze the text shown in its place; None if it stays whole."""
        called, content = str(block["tool_use_id"]), block.get("content")
        store = ResultStore(self._storage, f"{FOLDER}/{session}", str(self._home))
        done = offload_result(store, tool, called, content or "", self._policy, View())
        decision = next((one for one in done.before if isinstance(one, ResultOffloaded)), None)
        if decision is None or not isinstance(done.content, str):
            return None
        freed = estimate_block({"type": "tool_result", "content": content}) - estimate_block(
            {"type": "tool_result", "content": decision.text}
        )
        frozen = FrozenResult(called, digest_of(content), decision.text, max(0, round(freed)))
        self._append(session, {"frozen": msgspec.to_builtins(frozen)})
        self._decisions[called] = body_of(decision)
        return frozen

    # -- the log of a session

    def _key(self, session: str) -> str:
        return f"{FOLDER}/{session}.jsonl"

    def _savings(self, session: str) -> SessionSavings:
        if session not in self._sessions:
            made = self._sessions[session] = SessionSavings()
            for line in (self._storage.load(self._key(session)) or b"").splitlines():
                try:
                    made.apply(object_of(msgspec.json.decode(line)))
                except (msgspec.DecodeError, TypeError, KeyError):
                    continue  # a line that was cut off by a kill
        return self._sessions[session]

    def _append(self, session: str, row: dict[str, Any]) -> None:
        self._storage.append(self._key(session), msgspec.json.encode(row))
        self._savings(session).apply(row)


def _results(asked: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, bool]]:
    """Yield each tool result of a request with the name of its tool, and whether it comes after the last reply."""
    messages = rows_of(asked.get("messages"))
    last = max((at for at, one in enumerate(messages) if one.get("role") == "assistant"), default=-1)
    tools: dict[str, str] = {}
    for at, message in enumerate(messages):
        for block in rows_of(message.get("content")):
            if block.get("type") == "tool_use":
                tools[str(block.get("id"))] = str(block.get("name") or "")
            elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
                yield block, tools.get(block["tool_use_id"], ""), at > last


def spliced(body: bytes, texts: Mapping[str, str]) -> bytes:
    """Return a request's bytes with only the content of these results replaced; raise ``ValueError`` if that fails."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    old = bytes(fields["messages"])
    at, pieces = 0, list[bytes]()
    for raw in msgspec.json.decode(old, type=list[msgspec.Raw]):
        start = old.index(bytes(raw), at)
        pieces += [old[at:start], _message(bytes(raw), texts)]
        at = start + len(bytes(raw))
    new = b"".join([*pieces, old[at:]])
    made = body.replace(old, new, 1)
    wanted = msgspec.json.decode(body)
    for block, _, _ in _results(wanted):
        if block["tool_use_id"] in texts:
            block["content"] = texts[block["tool_use_id"]]
    if msgspec.json.decode(made) != wanted:
        raise ValueError("the request cannot be changed at this place alone")
    return made


def _message(raw: bytes, texts: Mapping[str, str]) -> bytes:
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    old = bytes(fields.get("content", b""))
    if not old.startswith(b"[") or b"tool_result" not in old:
        return raw
    at, pieces = 0, list[bytes]()
    for block in msgspec.json.decode(old, type=list[msgspec.Raw]):
        data = bytes(block)
        start = old.index(data, at)
        pieces += [old[at:start], _block(data, texts)]
        at = start + len(data)
    return raw.replace(old, b"".join([*pieces, old[at:]]), 1)


def _block(raw: bytes, texts: Mapping[str, str]) -> bytes:
    said = object_of(msgspec.json.decode(raw))
    if said.get("type") != "tool_result" or said.get("tool_use_id") not in texts:
        return raw
    value = bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])["content"])
    for found in _CONTENT.finditer(raw):
        if raw.startswith(value, found.end()):
            text = msgspec.json.encode(texts[said["tool_use_id"]])
            return raw[: found.end()] + text + raw[found.end() + len(value) :]
    raise ValueError("no content in a result")
