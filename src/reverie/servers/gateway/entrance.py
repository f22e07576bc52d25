"""The entrance of the gateway: it admits programs on this machine, or those that know its token."""

from __future__ import annotations

import hmac
from typing import Final

from ..guard import HttpRefusal, LoopbackRules
from .http1 import Head
from .upstreams import TOKEN_HEADER

_PREFIX: Final = b"/token/"


class Entrance:
    """Admits requests: on loopback those for our own address that no web page sent, elsewhere those with the token."""

    def __init__(self, *, port: int, token: str | None) -> None:
        """Admit by address without a ``token``, else by the token."""
        self._token = token.encode("ascii") if token is not None else None
        self._rules = LoopbackRules(port=port)

    def admitted(self, head: Head, target: bytes) -> bytes | HttpRefusal:
        """Return the target of a request without the token in its path, or why the request is refused."""
        if not target.startswith(b"/"):
            return HttpRefusal(421, "name the path alone")
        given = b"".join(head.values(TOKEN_HEADER))
        if target.startswith(_PREFIX):
            given, _, rest = target.removeprefix(_PREFIX).partition(b"/")
            target = b"/" + rest
        if self._token is not None:
            if hmac.compare_digest(given, self._token):
                return target
            return HttpRefusal(401, "send its token: in the base URL as /token/..., or as header X-Reverie-Token")
        scope = {"path": target.decode("latin-1"), "raw_path": target, "headers": head.fields}
        return self._rules.refusal(scope) or target
