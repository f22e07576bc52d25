"""An OpenAI-compatible server for tests: real HTTP on loopback, the provider's refusals, its prompt caches.

    with ChatServer(lambda request: "Hello.") as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")

It serves Chat Completions and Responses (with ``/responses/compact`` and ``previous_response_id``), streamed or in
one piece. Replies come from a function as blocks of the Messages API, so that one script serves both test servers.
Needs the extra ``testing``.
"""

from __future__ import annotations

from .ledger import BreakpointCache, PrefixCache
from .refusals import ChatRefusal
from .server import ChatServer

__all__ = ["BreakpointCache", "ChatRefusal", "ChatServer", "PrefixCache"]
