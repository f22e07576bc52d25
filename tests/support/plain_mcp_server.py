"""A small MCP server over stdio without the SDK, which takes a second to load: ``INSTRUCTIONS_FILE COUNT_OF_TOOLS``."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def answer(method: str, given: dict[str, Any], instructions: str, count: int) -> dict[str, Any] | None:
    """Return the result of a request, or nothing for an unknown method."""
    if method == "initialize":
        own = {"capabilities": {"tools": {}}, "serverInfo": {"name": "things", "version": "1"}}
        return {"protocolVersion": given["protocolVersion"], "instructions": instructions, **own}
    if method == "ping":
        return {}
    if method == "tools/list":
        names = {f"task_{number}": f"Do task {number}." for number in range(count)} | {"die": "End the server."}
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "description": words, "inputSchema": schema} for name, words in names.items()]}
    if method == "tools/call":
        if given["name"] == "die":
            os._exit(3)
        return {"content": [{"type": "text", "text": "done"}], "isError": False}
    return None


def serve(instructions: str, count: int) -> None:
    """Answer each request of standard input until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params") or {}, instructions, count)
        said = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)


if __name__ == "__main__":
    with open(sys.argv[1]) as given:
        serve(given.read(), int(sys.argv[2]))
