"""A Messages API server for tests: real HTTP on loopback, the provider's refusals, its cache, its faults.

    with MessagesServer(lambda request: "Hello.") as server:
        client = anthropic.Anthropic(base_url=server.base_url, api_key="any")

Replies come from a function. The test sets the time in ``server.clock``, which the prompt cache uses. Needs the extra
``testing`` (starlette, uvicorn).
"""

from __future__ import annotations

from .edits import count_block_tokens
from .faults import StreamGate
from .replies import ServerReply
from .server import ManualClock, MessagesServer
from .signatures import redact_thinking, sign_thinking

__all__ = [
    "ManualClock",
    "MessagesServer",
    "ServerReply",
    "StreamGate",
    "count_block_tokens",
    "redact_thinking",
    "sign_thinking",
]
