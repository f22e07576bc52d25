"""An OpenAI-compatible server for tests: real HTTP on loopback, the provider's refusals, its automatic prefix cache.

    with ChatServer(lambda request: "Hello.") as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="any")

It serves Chat Completions and Responses (with ``/responses/compact`` and ``previous_response_id``), without
streaming. Replies come from a function as blocks of the Messages API, so that one script serves both test servers.
Needs the extra ``testing``.
"""

from __future__ import annotations

from .ledger import PrefixCache
from .server import ChatServer

__all__ = ["ChatServer", "PrefixCache"]
