"""A model on loopback for real programs: it speaks four APIs and reads its tool calls out of the prompt.

A prompt for it holds a line for each call, for example ``@@ Bash {"command": "ls"}``. The model makes each call once,
one after the other, and ends with a text. It reports as many input tokens as the prompt says by ``@tokens N``, else
a quarter of the characters of the request. Only the standard library, because nothing else is needed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

REPLY = "Finished the task."
_CALL = re.compile(r'^\s*@@ (\S+) (\{.*\})"?\s*$', re.MULTILINE)
_TOKENS = re.compile(r"@tokens (\d+)")
Item = tuple[str, str]
"""A role (``user``, ``model``, ``call`` or ``result``) and its text."""
Call = tuple[str, dict[str, Any]]


def next_call(items: list[Item], tools: set[str], made: set[str]) -> Call | None:
    """Return the first call of the prompts that was not made and whose tool is declared, and note it as made."""
    for role, text in items:
        for name, given in _CALL.findall(_unescaped(text)) if role == "user" else ():
            if name in tools and f"{name} {given}" not in made:
                made.add(f"{name} {given}")
                return name, json.loads(given)
    return None


def reported_tokens(items: list[Item], body: bytes) -> int:
    """Return the input tokens that the reply shall report."""
    said = [found for role, text in items if role == "user" for found in _TOKENS.findall(text)]
    return int(said[-1]) if said else len(body) // 4


def _unescaped(text: str) -> str:
    # opencode quotes its message and escapes the quotes in it.
    return text.replace('\\"', '"') if "@@ " in text and '{\\"' in text else text


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if isinstance(part, Mapping)]
    return "\n".join(str(part.get("text") or "") for part in parts)


# -- the four APIs: the conversation and the declared tools of a request, and the events of a reply


def messages_items(body: dict[str, Any]) -> tuple[list[Item], set[str]]:
    """Read a request of the Messages API."""
    items: list[Item] = []
    for message in body.get("messages", ()):
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            kind = {"tool_use": "call", "tool_result": "result"}.get(block["type"])
            role = "model" if message["role"] == "assistant" else "user"
            items.append((kind or role, _text(block.get("content")) if kind == "result" else str(block.get("text"))))
    return items, {tool.get("name") for tool in body.get("tools") or ()}


def messages_events(call: Call | None, tokens: int, number: int, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reply of the Messages API."""
    head = {"id": f"msg_{number:06d}", "type": "message", "role": "assistant", "model": body.get("model")}
    usage = {
        "input_tokens": tokens,
        "output_tokens": 12,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
    }
    empty = {"content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**head, **empty, "usage": usage}}
    if call:
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{number:06d}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": REPLY}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def responses_items(body: dict[str, Any]) -> tuple[list[Item], set[str]]:
    """Read a request of the Responses API."""
    items: list[Item] = []
    for item in [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]:
        kind = str(item.get("type", "message"))
        if kind.endswith("_call"):
            items.append(("call", str(item.get("name"))))
        elif kind.endswith("_call_output"):
            items.append(("result", json.dumps(item.get("output"))))
        elif kind == "message":
            items.append(("model" if item.get("role") == "assistant" else "user", _text(item.get("content"))))
    return items, {tool.get("name") for tool in body.get("tools") or ()}


def responses_events(call: Call | None, tokens: int, number: int, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reply of the Responses API."""
    identity = f"resp_{number:06d}"
    if call:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number:06d}", "name": call[0]}
        item = {**item, "arguments": json.dumps(call[1]), "status": "completed"}
    else:
        text = {"type": "output_text", "text": REPLY, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [text]}
    usage = {"input_tokens": tokens, "output_tokens": 12, "total_tokens": tokens + 12}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": identity, "object": "response", "created_at": 0, "model": body.get("model"), "output": [item]}
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**whole, "status": "completed", "usage": {**usage, **details}}}


def chat_items(body: dict[str, Any]) -> tuple[list[Item], set[str]]:
    """Read a request of Chat Completions."""
    roles = {"assistant": "model", "tool": "result"}
    items = [(roles.get(one["role"], one["role"]), _text(one.get("content"))) for one in body.get("messages", ())]
    return items, {tool.get("function", {}).get("name") for tool in body.get("tools") or ()}


def chat_events(call: Call | None, tokens: int, number: int, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reply of Chat Completions."""
    head = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 0, "model": body.get("model")}
    delta: dict[str, Any] = {"role": "assistant", "content": None if call else REPLY}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        delta["tool_calls"] = [{"index": 0, "id": f"call_{number:06d}", "type": "function", "function": function}]
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]}
    usage = {"prompt_tokens": tokens, "completion_tokens": 12, "total_tokens": tokens + 12}
    yield {**head, "choices": [], "usage": usage}


def gemini_items(body: dict[str, Any]) -> tuple[list[Item], set[str]]:
    """Read a request of the Gemini API."""
    items: list[Item] = []
    for content in body.get("contents", ()):
        for part in content.get("parts", ()):
            if "functionResponse" in part:
                items.append(("result", json.dumps(part["functionResponse"])))
            elif "functionCall" in part:
                items.append(("call", str(part["functionCall"].get("name"))))
            else:
                items.append(("model" if content.get("role") == "model" else "user", str(part.get("text", ""))))
    declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]
    return items, {one.get("name") for one in declared}


def gemini_events(call: Call | None, tokens: int, number: int, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reply of the Gemini API."""
    part: dict[str, Any] = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": REPLY}
    usage = {"promptTokenCount": tokens, "candidatesTokenCount": 12, "totalTokenCount": tokens + 12}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted", "responseId": f"r{number}"}


_APIS = {
    "/messages": (messages_items, messages_events),
    "/responses": (responses_items, responses_events),
    "/chat/completions": (chat_items, chat_events),
    "GenerateContent": (gemini_items, gemini_events),
    "generateContent": (gemini_items, gemini_events),
}


def _whole(path: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a reply that was not asked for as a stream."""
    if path.endswith("/messages"):
        block = {**events[1]["content_block"]}
        delta = events[2]["delta"]
        block.update({"text": delta["text"]} if "text" in delta else {"input": json.loads(delta["partial_json"])})
        return {**events[0]["message"], "content": [block], **events[4]["delta"]}
    if path.endswith("/responses"):
        return events[-1]["response"]
    if path.endswith("/chat/completions"):
        choice = {"index": 0, "message": events[0]["choices"][0]["delta"], **events[1]["choices"][0]}
        choice.pop("delta")
        return {**events[0], "object": "chat.completion", "choices": [choice], "usage": events[-1]["usage"]}
    return events[-1]


class ScriptedModel(ThreadingHTTPServer):
    """The server; ``requests`` holds the path and body of each model request, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.others: list[str] = []
        self.made: set[str] = set()
        self.numbers = count(1)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        self.server.others.append(self.path)
        path = self.path.partition("?")[0]
        if path.endswith("/models"):
            listed = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "test"}]
            self._send_json(200, {"object": "list", "data": listed, "models": []})
        else:
            self._send_json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        data = self._body()
        path = self.path.partition("?")[0]
        api = next((pair for end, pair in _APIS.items() if path.endswith(end)), None)
        if api is None:
            self.server.others.append(self.path)
            if path.endswith("ountTokens") or path.endswith("count_tokens"):
                self._send_json(200, {"totalTokens": len(data) // 4, "input_tokens": len(data) // 4})
            else:
                self._send_json(404, {"error": {"message": "not found"}})
            return
        body = json.loads(data)
        self.server.requests.append((path, body))
        items, tools = api[0](body)
        call = next_call(items, tools, self.server.made)
        events = list(api[1](call, reported_tokens(items, data), next(self.server.numbers), body))
        if not body.get("stream") and "alt=sse" not in self.path:
            self._send_json(200, _whole(path, events))
            return
        named = [f"event: {one['type']}\n" if "type" in one else "" for one in events]
        lines = [f"{name}data: {json.dumps(one)}\n\n" for name, one in zip(named, events, strict=True)]
        end = "data: [DONE]\n\n" if path.endswith("/chat/completions") else ""
        self._send(200, ("".join(lines) + end).encode(), "text/event-stream")

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        encoding = self.headers.get("Content-Encoding", "")
        if encoding == "gzip":
            import gzip

            return gzip.decompress(data)
        if encoding == "zstd":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return data

    def _send_json(self, status: int, body: Any) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
