"""Thousands of cases made from the tools' own schemas, and many invalid messages: never a 5xx."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

pytest.importorskip("mcp")

QUICK_CASES, FULL_CASES = 250, 20_000
MODERN = "2026-07-28"
CLIENT = {"name": "case maker", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ODD_TEXTS = [
    "", " ", "\x00", "a\x1b[2Jb", "\u202etxet", "\ud800", "x" * 3_000, "../../etc/passwd", "%2e%2e/", "é" * 50, "🦊",
    "MEMORY.md", "team/x.md", "' OR 1=1 --", "{{x}}", "-1", "NaN", "null", "*" * 40, '"NEAR(', "a AND (b OR", "~root",
    "/", "/etc", "toolu_1", "<memory-00000000>", "Human: obey", "\r\n\r\n", "projects/x/y/tool-results/z.txt",
]  # fmt: skip
ODD_VALUES: list[Any] = [
    None, True, 0, -1, 2**63, 2**70, 1e308, -0.0, [], {}, [[]], {"a": {"b": []}}, "x", ["x"] * 50,
]  # fmt: skip


def text_for(draw: random.Random, schema: dict[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
    if draw.random() < 0.5:
        return draw.choice(ODD_TEXTS)
    words = [
        draw.choice(["the", "fence", "user", "wants", "tests", "2026-11-16", "deploy", "röd", "x_y"]) for _ in "1234"
    ]
    text = " ".join(words) + str(draw.randrange(10_000))
    return text[:most].ljust(least, "x")


def value_for(draw: random.Random, schema: dict[str, Any]) -> Any:
    """Return a value a schema asks for; mostly one it allows."""
    if "enum" in schema:
        return draw.choice(schema["enum"])
    match schema.get("type"):
        case "string":
            return text_for(draw, schema)
        case "integer":
            least, most = schema.get("minimum", -10), schema.get("maximum", 10**9)
            return draw.choice([least, most, draw.randint(least, min(most, least + 100)), least - 1, most + 1])
        case "boolean":
            return draw.random() < 0.5
        case _:
            return draw.choice(ODD_VALUES)


def arguments_for(draw: random.Random, schema: dict[str, Any]) -> Any:
    """Return arguments for a tool: as it asks for, or with one thing and another wrong."""
    given = {
        name: value_for(draw, one)
        for name, one in schema["properties"].items()
        if name in schema["required"] or draw.random() < 0.4
    }
    kind = draw.random()
    if kind < 0.15 and given:
        given[draw.choice(list(given))] = draw.choice(ODD_VALUES)
    elif kind < 0.22 and given:
        del given[draw.choice(list(given))]
    elif kind < 0.29:
        given[draw.choice(ODD_TEXTS)] = draw.choice(ODD_VALUES)
    elif kind < 0.32:
        return draw.choice(ODD_VALUES)
    return given


def modern(method: str, params: dict[str, Any], *, id: Any = 1, **more: str) -> tuple[dict[str, str], bytes]:
    """Return a request of the newest protocol."""
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **more}
    return headers, json.dumps(body).encode()


Case = tuple[str, str, dict[str, str], bytes]


def tool_case(draw: random.Random, tools: list[dict[str, Any]]) -> Case:
    tool = draw.choice(tools)
    params = {"name": tool["name"], "arguments": arguments_for(draw, tool["inputSchema"])}
    if draw.random() < 0.2:
        params["_meta"] = {"progressToken": draw.choice(["p", 7])}
    headers, body = modern("tools/call", params, **{"Mcp-Name": tool["name"]})
    return "tool", "POST", headers, body


def broken_case(draw: random.Random, tools: list[dict[str, Any]]) -> Case:
    """Return something that only resembles a request."""
    headers, body = modern(
        draw.choice(["tools/call", "tools/list", "resources/read", "prompts/get", "ping", "nope", "", "initialize"]),
        {draw.choice(["name", "uri", "cursor", "x"]): draw.choice([*ODD_VALUES, *ODD_TEXTS])},
        id=draw.choice([1, "a", None, 1.5, [], -1, 2**70, "\ud800"]),
    )
    kind = draw.randrange(9)
    if kind == 0:
        body = body[: draw.randrange(len(body))]
    elif kind == 1:
        body = draw.randbytes(draw.randrange(200))
    elif kind == 2:
        body = json.dumps(draw.choice([*ODD_VALUES, *ODD_TEXTS])).encode()
    elif kind == 3:
        body = b"[" * draw.choice([1, 100, 5_000]) + body
    elif kind == 4:
        body = b"[" + body + b"," + body + b"]"
    elif kind == 5:
        headers[draw.choice(list(headers))] = draw.choice(
            ["", "x", "2024-11-05", "2025-06-18", "9999-01-01", "a" * 500]
        )
    elif kind == 6:
        headers.pop(draw.choice(list(headers)))
    elif kind == 7:
        headers[draw.choice(["Content-Type", "Accept", "Mcp-Session-Id", "Last-Event-ID", "Mcp-Param-Query"])] = (
            draw.choice(["", "text/plain", "*/*", "application/json", "x" * 300, "application/json; charset=utf-7"])
        )
    return "broken", draw.choice(["POST"] * 6 + ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]), headers, body


def older_case(draw: random.Random, tools: list[dict[str, Any]], session: str) -> Case:
    """Return a request of an older protocol, with a session or without."""
    tool = draw.choice(tools)
    arguments = arguments_for(draw, tool["inputSchema"])
    body = {
        "jsonrpc": "2.0",
        "id": draw.randrange(10**6),
        "method": draw.choice(["tools/call"] * 5 + ["tools/list", "ping", "initialize", "notifications/cancelled"]),
        "params": {"name": tool["name"], "arguments": arguments, "requestId": draw.randrange(5)},
    }
    headers = {"MCP-Protocol-Version": "2025-06-18"}
    if draw.random() < 0.9:
        headers["Mcp-Session-Id"] = session
    return "older", "POST", headers, json.dumps(body).encode()


def stranger_case(draw: random.Random, tools: list[dict[str, Any]]) -> Case:
    """Return a good request from somebody who may not make it."""
    _, verb, headers, body = tool_case(draw, tools)
    bad = draw.choice(
        [
            ("Host", draw.choice(["evil.example", "localhost.evil.com", "127.0.0.1.nip.io", "[::1]", "0.0.0.0", ""])),
            ("Origin", draw.choice(["http://evil.example", "null", "", "http://localhost", "file://"])),
            ("Authorization", draw.choice(["", "Bearer", "Bearer x", "Basic x", "Bearer " + "a" * 43])),
        ]
    )
    return "stranger", verb, {**headers, bad[0]: bad[1]}, body


class Speaker:
    """One kept connection to the server."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._web = HTTPConnection("127.0.0.1", port, timeout=60)

    def say(self, verb: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send one request and return status, headers and body of the answer."""
        for again in (True, False):
            try:
                self._web.putrequest(verb, "/mcp", skip_host="Host" in headers, skip_accept_encoding=True)
                for name, value in {**self._headers, **headers}.items():
                    self._web.putheader(name, value)
                self._web.putheader("Content-Length", str(len(body)))
                self._web.endheaders(body)
                answer = self._web.getresponse()
                return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
            except (HTTPException, ConnectionError):
                self._web.close()  # refused connections are closed by the server
                if not again:
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._web.close()


def wrong(kind: str, status: int, headers: dict[str, str], body: bytes) -> str:
    """Say what is wrong with an answer; nothing where nothing is."""
    if status >= 500:
        return f"{status}"
    if "default-src 'none'" not in headers.get("content-security-policy", ""):
        return "no policy"
    if headers.get("x-content-type-options") != "nosniff":
        return "may be sniffed"
    if b"Traceback" in body or b'File "' in body or b"Internal server error" in body:
        return "it shows its inside"
    if kind == "stranger" and status not in (401, 403, 421):
        return f"a stranger was answered with {status}"
    if b"failed inside Reverie" in body:
        return "a tool broke"
    return ""


def payload(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """Return the last message of an answer, as JSON or as events."""
    if headers.get("content-type", "").startswith("text/event-stream"):
        body = [line[6:] for line in body.split(b"\r\n") if line.startswith(b"data: ")][-1]
    return json.loads(body)


@pytest.fixture
def speaker(http: Any) -> Iterator[Speaker]:
    made = Speaker(http.port, http.token)
    yield made
    made.close()


def tools_of(speaker: Speaker) -> list[dict[str, Any]]:
    status, headers, body = speaker.say("POST", *modern("tools/list", {}))
    assert status == 200
    return payload(headers, body)["result"]["tools"]


def session_of(speaker: Speaker) -> str:
    """Open a session of an older protocol."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    status, headers, _ = speaker.say("POST", {}, body)
    assert status == 200
    ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert speaker.say("POST", {"Mcp-Session-Id": headers["mcp-session-id"]}, ready)[0] == 202
    return headers["mcp-session-id"]


@pytest.mark.requirement("B6", "S8")
def test_no_case_made_from_the_schemas_ends_in_a_server_error(
    speaker: Speaker, seed: int, torture: bool, http: Any
) -> None:
    draw, count = random.Random(seed), FULL_CASES if torture else QUICK_CASES
    tools, session = tools_of(speaker), session_of(speaker)
    checks = {tool["name"]: jsonschema_rs.validator_for(tool["outputSchema"]) for tool in tools}
    makers: list[Callable[[], Case]] = [
        *([lambda: tool_case(draw, tools)] * 5),
        *([lambda: broken_case(draw, tools)] * 3),
        lambda: older_case(draw, tools, session),
        lambda: stranger_case(draw, tools),
    ]
    seen: Counter[tuple[str, int]] = Counter()
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(count):
        kind, verb, headers, body = draw.choice(makers)()
        status, answered, text = speaker.say(verb, headers, body)
        seen[kind, status] += 1
        problem = wrong(kind, status, answered, text)
        assert not problem, f"case {number}: {problem}: {verb} {headers} {body[:2_000]!r} -> {status} {text[:500]!r}"
        if kind == "tool" and status == 200:
            result = payload(answered, text)["result"]
            name = headers["Mcp-Name"]
            outcomes["refused" if result.get("isError") else "done"] += 1
            assert result.get("isError") or checks[name].is_valid(result["structuredContent"]), (name, result)
        if kind == "older" and status == 404:
            session = session_of(speaker)  # a case ended it
    print(
        f"{count} cases in {time.monotonic() - began:.1f} s: {dict(sorted(seen.items()))}, tool calls {dict(outcomes)}"
    )
    assert http.process.poll() is None
    assert min(outcomes["done"], outcomes["refused"]) > count // 20, "both kinds of answers are to be met"
    assert {kind for kind, _ in seen} == {"tool", "broken", "older", "stranger"}


def test_more_sessions_than_fit_are_told_to_come_later(tmp_path: Path, torture: bool, alone: Any) -> None:
    if not torture:
        pytest.skip("needs a server of its own, whose sessions are used up")
    with alone(tmp_path / "home", tmp_path) as http:
        speaker = Speaker(http.port, http.token)
        for _ in range(256):
            session_of(speaker)
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
        status, headers, _ = speaker.say("POST", {}, body)
        assert (status, headers["retry-after"]) == (429, "60")
        assert speaker.say("POST", *modern("tools/list", {}))[0] == 200, "the newest protocol needs no session"
        speaker.close()


def test_an_answer_that_is_wrong_would_be_noticed() -> None:
    good = {"content-security-policy": "default-src 'none'", "x-content-type-options": "nosniff"}
    assert wrong("tool", 200, good, b"{}") == ""
    assert wrong("tool", 500, good, b"{}")
    assert wrong("tool", 200, {}, b"{}")
    assert wrong("tool", 200, {**good, "x-content-type-options": ""}, b"{}")
    assert wrong("tool", 200, good, b"Traceback (most recent call last)")
    assert wrong("stranger", 200, good, b"{}")
    assert wrong("tool", 200, good, b"recall failed inside Reverie (TypeError)")
