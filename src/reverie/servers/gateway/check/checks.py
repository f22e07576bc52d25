"""The statements about a proxy: each sends requests through it and compares the bytes on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ....models.messages_stream import MessageAssembly
from ....models.wire import EventDecoder
from ....values import object_of, record, rows_of
from ..upstreams import Upstream
from .client import Connection, Message
from .scripted_server import (
    CALLS,
    LONG,
    REDACTED,
    SEARCH,
    TEXT,
    THINKING,
    USAGE,
    ScriptedServer,
    events_for,
)

_CANCEL_SECONDS: Final = 5.0
_SHOWN_CHARS: Final = 160
_MARK: Final = {"type": "ephemeral", "ttl": "1h"}
_BETAS: Final = "context-1m-2025-08-07,interleaved-thinking-2025-05-14,of-next-year-2027-01-01"


class CheckFailed(Exception):
    """A statement that does not hold, with the evidence."""


@record
class CheckResult:
    """The outcome of one check."""

    name: str
    passed: bool
    evidence: str


class Bench:
    """A proxy, the scripted server behind it, and the credentials to use."""

    def __init__(self, proxy: Upstream, server: ScriptedServer, *, model: str, key: str) -> None:
        self.proxy = proxy
        self.server = server
        self.model = model
        self.key = key

    def body(self, case: str, **more: Any) -> bytes:
        """Return the body of a request; ``more`` replaces fields of it."""
        said = [{"role": "user", "content": [{"type": "text", "text": f"case-{case} grüße 世界"}]}]
        return msgspec.json.encode({"model": self.model, "max_tokens": 1_000, "messages": said, **more})

    async def ask(
        self, case: str, body: bytes | None = None, path: str = "/v1/messages", stop: int | None = None, **headers: str
    ) -> Message:
        """Send a request and return its reply."""
        given = {"x-api-key": self.key, "anthropic-version": "2023-06-01"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with Connection(self.proxy) as connection:
            return await connection.ask(path, body or self.body(case), given, stop_after=stop)

    def last(self, case: str) -> Message:
        """Return the last request of a case that reached the server."""
        found = self.server.received(case)
        if not found:
            raise CheckFailed("the request did not reach the server")
        return found[-1]


Check = Callable[[Bench], Awaitable[str]]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Add a function to the list of checks."""

    def add(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return add


async def run_checks(bench: Bench) -> list[CheckResult]:
    """Run every check, one after the other."""
    results: list[CheckResult] = []
    for name, function in CHECKS.items():
        try:
            result = CheckResult(name, True, await function(bench))
        except CheckFailed as failed:
            result = CheckResult(name, False, str(failed))
        except (OSError, TimeoutError) as error:
            result = CheckResult(name, False, f"{type(error).__name__}: {error}".rstrip(": "))
        except Exception as error:
            result = CheckResult(name, False, f"the reply cannot be read: {type(error).__name__}: {error}")
        results.append(result)
    return results


def _same(name: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise CheckFailed(f"{name}: sent {_shown(wanted)}, arrived {_shown(got)}")


def _shown(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _blocks(received: Message, at: int) -> list[dict[str, Any]]:
    messages = rows_of(received.json.get("messages"))
    return rows_of(messages[at].get("content")) if at < len(messages) else []


def _streamed(reply: Message) -> list[dict[str, Any]]:
    """Return the blocks that the events of a stream make up."""
    assembly = MessageAssembly("the proxy")
    for event in EventDecoder().feed(reply.body):
        for _ in assembly.feed(event):
            pass
    return assembly.reply().body["content"]


def _history(bench: Bench, case: str, *blocks: Mapping[str, Any], **more: Any) -> bytes:
    """Return a request whose history has a reply with these blocks."""
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
    said = [
        {"role": "user", "content": [{"type": "text", "text": f"case-{case}"}]},
        {"role": "assistant", "content": list(blocks)},
        {"role": "user", "content": results or [{"type": "text", "text": "go on"}]},
    ]
    return bench.body(case, messages=said, **more)


# -- requests


@check("request body unchanged, byte for byte")
async def _(bench: Bench) -> str:
    body = bench.body("plain").replace(b'"max_tokens":1000', b'"max_tokens" : 1000,  "temperature":1.0')
    await bench.ask("plain", body)
    got = bench.last("plain").body
    if got != body:
        at = next((at for at, (a, b) in enumerate(zip(got, body, strict=False)) if a != b), min(len(got), len(body)))
        raise CheckFailed(
            f"{len(body)} bytes sent, {len(got)} arrived; they differ from byte {at}: {_shown(got[at : at + 60])}"
        )
    return f"{len(body)} bytes"


@check("cache marks kept")
async def _(bench: Bench) -> str:
    system = [{"type": "text", "text": "You help."}, {"type": "text", "text": "Rules.", "cache_control": _MARK}]
    tools = [{"name": "read", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}]
    said = [{"role": "user", "content": [{"type": "text", "text": "case-marks", "cache_control": _MARK}]}]
    await bench.ask("marks", bench.body("marks", system=system, tools=tools, messages=said))
    got = bench.last("marks").json
    _same("system", got.get("system"), system)
    _same("mark of the tool", (rows_of(got.get("tools")) or [{}])[0].get("cache_control"), tools[0]["cache_control"])
    _same("mark of the message", _blocks(bench.last("marks"), 0)[0].get("cache_control"), _MARK)
    return "3 marks, both lifetimes"


@check("thinking and its signature in the history")
async def _(bench: Bench) -> str:
    await bench.ask("thinkinghistory", _history(bench, "thinkinghistory", THINKING, TEXT))
    _same("block", (_blocks(bench.last("thinkinghistory"), 1) or [None])[0], THINKING)
    return "thinking and signature equal"


@check("redacted thinking in the history")
async def _(bench: Bench) -> str:
    await bench.ask("redactedhistory", _history(bench, "redactedhistory", REDACTED, TEXT))
    _same("block", (_blocks(bench.last("redactedhistory"), 1) or [None])[0], REDACTED)
    return "data equal"


@check("server tool blocks in the history")
async def _(bench: Bench) -> str:
    await bench.ask("serverhistory", _history(bench, "serverhistory", *SEARCH, TEXT))
    _same("blocks", _blocks(bench.last("serverhistory"), 1)[:2], list(SEARCH))
    return "call and result equal"


@check("order of tools and of parallel calls")
async def _(bench: Bench) -> str:
    tools = [{"name": call["name"], "input_schema": {"type": "object", "required": ["z", "a"]}} for call in CALLS]
    reply = await bench.ask("toolorder", _history(bench, "toolorder", *CALLS, tools=tools))
    got = bench.last("toolorder")
    _same("tools", [tool.get("name") for tool in rows_of(got.json.get("tools"))], [call["name"] for call in CALLS])
    _same("calls", [block.get("id") for block in _blocks(got, 1)], [call["id"] for call in CALLS])
    _same("reply", reply.json.get("content"), list(CALLS))
    return "3 tools, 3 calls, the reply's inputs too"


@check("unknown fields pass")
async def _(bench: Bench) -> str:
    said = [{"role": "user", "content": [{"type": "text", "text": "case-fields", "of_next_year": {"a": [1]}}]}]
    await bench.ask("fields", bench.body("fields", messages=said, of_next_year={"b": None}))
    got = bench.last("fields")
    _same("field of the request", got.json.get("of_next_year", "nothing"), {"b": None})
    _same("field of a block", _blocks(got, 0)[0].get("of_next_year", "nothing"), {"a": [1]})
    return "one in the request, one in a block"


@check("beta headers pass")
async def _(bench: Bench) -> str:
    await bench.ask("betas", anthropic_beta=_BETAS)
    got = {one.strip() for one in bench.last("betas").header("anthropic-beta").split(",")}
    if missing := set(_BETAS.split(",")) - got:
        raise CheckFailed(f"missing: {', '.join(sorted(missing))}")
    return "3 values"


@check("x-api-key passes")
async def _(bench: Bench) -> str:
    await bench.ask("key")
    _same("header", bench.last("key").header("x-api-key"), bench.key)
    return "equal"


@check("Authorization: Bearer passes")
async def _(bench: Bench) -> str:
    given = {"authorization": f"Bearer {bench.key}", "anthropic-version": "2023-06-01"}
    async with Connection(bench.proxy) as connection:
        await connection.ask("/v1/messages", bench.body("bearer"), given)
    _same("header", bench.last("bearer").header("authorization"), f"Bearer {bench.key}")
    return "equal"


@check("2 MB request")
async def _(bench: Bench) -> str:
    said = [{"role": "user", "content": "case-big " + "a long text é " * 140_000}]
    reply = await bench.ask("big", bench.body("big", messages=said))
    _same("status", reply.head.status, 200)
    _same("text", rows_of(bench.last("big").json.get("messages"))[0].get("content") == said[0]["content"], True)
    return f"{len(bench.last('big').body):,} bytes"


@check("count_tokens")
async def _(bench: Bench) -> str:
    reply = await bench.ask("count", path="/v1/messages/count_tokens")
    _same("answer", reply.json.get("input_tokens"), 4_321)
    return "the server's number"


@check("a repeated request is the same bytes")
async def _(bench: Bench) -> str:
    body = _history(bench, "retry", *CALLS, tools=[{"name": "read", "input_schema": {"type": "object"}}])
    first = await bench.ask("retry", body)
    for _ in range(2):
        await bench.ask("retry", body)
    bodies = {one.body for one in bench.server.received("retry")}
    if len(bodies) != 1:
        raise CheckFailed(f"{len(bodies)} different bodies for one request")
    return f"{len(bench.server.received('retry'))} times, the first answered {first.head.status}"


# -- replies


@check("usage of a reply")
async def _(bench: Bench) -> str:
    reply = await bench.ask("usage")
    got = object_of(reply.json.get("usage"))
    _same("usage", {name: got.get(name) for name in USAGE}, dict(USAGE))
    return "5 fields"


@check("usage of a stream")
async def _(bench: Bench) -> str:
    reply = await bench.ask("usagestream", bench.body("usagestream", stream=True))
    found: dict[str, Any] = {}
    for event in reply.events:
        found |= object_of(object_of(event.get("message")).get("usage")) | object_of(event.get("usage"))
    _same("usage", {name: found.get(name) for name in USAGE}, dict(USAGE))
    return "5 fields"


@check("thinking, redacted thinking and server tools in streams")
async def _(bench: Bench) -> str:
    for case, blocks in (
        ("thinking", [THINKING, TEXT]),
        ("redacted", [REDACTED, TEXT]),
        ("servertools", [*SEARCH, TEXT]),
    ):
        reply = await bench.ask(case, bench.body(case, stream=True))
        _same(case, _streamed(reply), blocks)
    return "signature, data, call and result equal"


@check("a stream passes byte for byte, with pings and unknown events")
async def _(bench: Bench) -> str:
    reply = await bench.ask("unknown", bench.body("unknown", stream=True))
    wanted = b"".join(events_for("unknown", bench.model))
    kinds = {str(event.get("type")) for event in reply.events}
    if missing := {"ping", "of_next_year"} - kinds:
        raise CheckFailed(f"missing events: {', '.join(sorted(missing))}")
    _same("bytes", reply.body, wanted)
    return f"{len(wanted)} bytes"


@check("chunks that end inside a character")
async def _(bench: Bench) -> str:
    reply = await bench.ask("utf8", bench.body("utf8", stream=True))
    _same("text", _streamed(reply), [TEXT])
    return "text equal"


@check("1 MB stream")
async def _(bench: Bench) -> str:
    reply = await bench.ask("long", bench.body("long", stream=True))
    _same("text", _streamed(reply) == [LONG], True)
    return f"{len(reply.body):,} bytes"


@check("a slow stream is not held back")
async def _(bench: Bench) -> str:
    reply = await bench.ask("slow", bench.body("slow", stream=True))
    first, last = reply.times[0][0], reply.times[-1][0]
    if last - first < 0.5:
        raise CheckFailed(f"the first byte came {first:.2f} s after the request, with the last one ({last:.2f} s)")
    return f"first byte after {first:.2f} s, last after {last:.2f} s"


@check("two streams at once stay apart")
async def _(bench: Bench) -> str:
    models = [f"{bench.model}", f"{bench.model}"]
    bodies = [bench.body("interleaved", stream=True, metadata={"user_id": str(at)}) for at in range(len(models))]
    replies = await asyncio.gather(*(bench.ask("interleaved", body) for body in bodies))
    for reply in replies:
        _same("text", _streamed(reply), [TEXT])
    if max(reply.times[-1][0] for reply in replies) > 2 * min(reply.times[-1][0] for reply in replies) - 0.2:
        raise CheckFailed("one waited for the other")
    return "both whole, side by side"


@check("429 with retry-after and body")
async def _(bench: Bench) -> str:
    reply = await bench.ask("ratelimit")
    _same("status", reply.head.status, 429)
    _same("retry-after", reply.header("retry-after"), "7")
    _same("error", object_of(reply.json.get("error")).get("message"), "case-ratelimit: slow down, é")
    return f"after {len(bench.server.received('ratelimit'))} request"


@check("400 with its message")
async def _(bench: Bench) -> str:
    reply = await bench.ask("badrequest")
    _same("status", reply.head.status, 400)
    _same("error", object_of(reply.json.get("error")).get("message"), "messages.0: a precise reason")
    return "equal"


@check("an error in a stream reaches the client")
async def _(bench: Bench) -> str:
    reply = await bench.ask("midstream", bench.body("midstream", stream=True))
    if not any(event.get("type") == "error" for event in reply.events):
        raise CheckFailed("no error event")
    return "as an event"


@check("a stream that breaks is not ended as a whole one")
async def _(bench: Bench) -> str:
    reply = await bench.ask("cut", bench.body("cut", stream=True))
    kinds = {event.get("type") for event in reply.events}
    if "message_stop" in kinds:
        raise CheckFailed("the proxy made up the end of the message")
    if reply.whole and "error" not in kinds:
        raise CheckFailed("the reply looks complete: no error, and the connection ended properly")
    return "an error event" if "error" in kinds else "the connection broke off"


@check("a client that goes ends the request")
async def _(bench: Bench) -> str:
    gone = bench.server.gone.setdefault("cancel", asyncio.Event())
    await bench.ask("cancel", bench.body("cancel", stream=True), stop=1)
    begun = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await gone.wait()
    except TimeoutError:
        raise CheckFailed(f"the server still worked after {_CANCEL_SECONDS:.0f} s") from None
    return f"after {asyncio.get_running_loop().time() - begun:.2f} s"
