"""What does saving in the gateway cost or save on recorded sessions, and does it ever move a prefix?

    python benchmarks/gateway_saving.py DIRECTORY [--check]

Every session of another agent below the directory is sent as its client would: append-only, one request before each
reply, the last block marked for the cache. Each request goes through saving as `reverie gateway --save` does it, and
both forms are billed by the simulator of the provider's cache. A prefix moves if a request whose client kept its past
does not begin with the messages of the one before; a request is refused if our validator refuses it, and only so.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from reverie.cache.prices import prices_for
from reverie.conversation.entries import ASSISTANT
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.importers import find_sessions, read_session
from reverie.importers.import_result import ImportedSession
from reverie.layers.l1_offload import OffloadPolicy
from reverie.replay.play import SimulatedProvider
from reverie.servers.gateway.exchange import Exchange
from reverie.servers.gateway.http1 import Head
from reverie.servers.gateway.saver import Saver

MODEL = "claude-sonnet-4-5"


def requests_of(session: ImportedSession) -> list[tuple[float, dict[str, Any]]]:
    """Return the requests of a session as its client sent them, each with its time."""
    view, found, last = View(), list[tuple[float, dict[str, Any]]](), ""
    for entry in session.entries:
        if entry.kind == ASSISTANT and str(entry.reply.get("id") or entry.uuid) != last:
            last = str(entry.reply.get("id") or entry.uuid)
            if view.messages():
                request = build_request(view)
                body = {"model": MODEL, "max_tokens": 8_000, "system": "You help.", "messages": request["messages"]}
                found.append((entry.at, body))
        view = view.fold(entry)
    return found


def marked(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request with a cache mark on its last block, as the clients set it."""
    *before, last = body["messages"]
    content = last["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
    return {**body, "messages": [*before, {**last, "content": blocks}]}


async def saved(saver: Saver, name: str, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a request as saving sends it, and whether it changed."""
    data = msgspec.json.encode(body)
    head = Head(b"POST /v1/messages HTTP/1.1", (b"x-session-id: " + name.encode(),), 0)
    exchange = Exchange("messages", head, chunked=False)
    exchange.request.append(data)
    made = await saver.request(exchange)
    exchange.status = 200
    saver.finished(exchange)
    return msgspec.json.decode(made or data), made is not None


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--limit-chars", type=int, help="one limit for all tools in place of those of layer 1")
    parser.add_argument("--check", action="store_true", help="exit 1 after a refused request or a moved prefix")
    given = parser.parse_args()
    prices = prices_for(MODEL)
    assert prices is not None
    sums = dict.fromkeys(("sessions", "requests", "changed", "refused", "moved"), 0)
    usd = {"observe": 0.0, "save": 0.0}
    with tempfile.TemporaryDirectory() as home:
        limit = given.limit_chars
        policy = OffloadPolicy(default_limit_chars=limit, never=frozenset()) if limit else OffloadPolicy()
        saver = Saver(Path(home), policy)
        for number, path in enumerate(sorted(find_sessions(given.directory))):
            for session in read_session(path):
                bills = {"observe": SimulatedProvider(), "save": SimulatedProvider()}
                last: list[Any] = []
                for at, body in requests_of(session):
                    made, changed = asyncio.run(saved(saver, f"{number}-{session.session_id}", body))
                    for name, sent in (("observe", body), ("save", made)):
                        bills[name].bill(marked(sent), at)
                        usd[name] += prices.cost_of(bills[name].last)
                    before = problems(body)
                    sums["refused"] += bool(problems(made)) and not before
                    was = body["messages"][: len(last)]
                    sums["moved"] += (
                        made["messages"][: len(last)] != last
                        and [m["role"] for m in was] == [m["role"] for m in last]
                        and _original(was, last)
                    )
                    last = made["messages"]
                    sums["requests"] += 1
                    sums["changed"] += changed
                sums["sessions"] += 1
    print("  ".join(f"{name} {value}" for name, value in sums.items()))
    print(f"observe ${usd['observe']:.4f}  save ${usd['save']:.4f}  {usd['save'] / max(usd['observe'], 1e-9) - 1:+.2%}")
    return 1 if given.check and (sums["refused"] or sums["moved"]) else 0


def _original(was: list[Any], last: list[Any]) -> bool:
    """Return whether the client itself kept its beginning, so that a difference is ours."""

    def plain(messages: list[Any]) -> list[Any]:
        return [
            [
                message["role"],
                [block if block.get("type") != "tool_result" else block["tool_use_id"] for block in message["content"]]
                if isinstance(message["content"], list)
                else message["content"],
            ]
            for message in messages
        ]

    return plain(was) == plain(last)


if __name__ == "__main__":
    sys.exit(main())
