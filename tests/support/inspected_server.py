"""A running inspector over the sessions of some settings, and requests to it."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from threading import Thread
from typing import Any

from reverie import Settings
from reverie.cli.costs.inspect_session import session_doors
from reverie.cli.sessions.recordings import with_agents
from reverie.servers.inspector.live import LiveHome
from reverie.servers.inspector.server import InspectorServer

TOKEN = "t" * 43
LOOK = "dispatchEvent(new Event('focus'));"
"""Makes the page ask its server at once, as it does when a person comes back to it."""


def served(settings: Settings) -> Iterator[InspectorServer]:
    """Yield a running server over the home of the settings, with the doors of the command line."""
    load = partial(with_agents, settings=settings)
    home = LiveHome(settings, load, session_doors(settings), target="", version="1")
    with closing(home), InspectorServer(home.reads, home.acts, version="1", token=TOKEN) as opened:
        thread = Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join(60)


def get(server: InspectorServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Ask the server; a header given as empty is left out."""
    wire = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    given = {"Host": f"127.0.0.1:{server.server_port}", "Authorization": f"Bearer {TOKEN}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        if value:
            wire.putheader(name, value)
    wire.endheaders()
    answer = wire.getresponse()
    body, found = answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    wire.close()
    return answer.status, found, gzip.decompress(body) if found.get("content-encoding") == "gzip" else body


def values(server: InspectorServer, path: str) -> Any:
    status, _, body = get(server, path)
    assert status == 200, body
    return json.loads(body)


def done(server: InspectorServer, path: str) -> str:
    status, _, body = get(server, path, "POST")
    assert status == 200, body
    return json.loads(body)["result"]
