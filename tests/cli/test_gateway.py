"""``reverie gateway env`` and ``reverie gateway check``: pointing agents at the gateway, and judging proxies."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway_world import ListedExchanges, gateway_thread
from reverie.servers.gateway.check.scripted_server import ScriptedServer
from reverie.servers.gateway.exchange import Exchange

from .conftest import Reverie


class Careless:
    """Changes requests as proxies do that read and write them again: without cache marks, keys in another order."""

    async def request(self, exchange: Exchange) -> bytes | None:
        body = msgspec.json.decode(b"".join(exchange.request))
        return json.dumps(_unmarked(body), sort_keys=True).encode()

    def finished(self, exchange: Exchange) -> None:
        """Do nothing: nothing is remembered."""


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(one) for key, one in value.items() if key != "cache_control"}
    return [_unmarked(one) for one in value] if isinstance(value, list) else value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.slow
@pytest.mark.requirement("G4")
def test_our_own_gateway_passes_every_check(asked: Callable[..., Any]) -> None:
    said = asked("gateway", "check", "--json")
    assert [one["name"] for one in said["checks"] if not one["passed"]] == []
    assert said["passed"] == len(said["checks"]) >= 20
    assert all(one["evidence"] for one in said["checks"])


@pytest.mark.slow
@pytest.mark.requirement("G4")
def test_a_proxy_that_writes_requests_anew_is_found_out(reverie: Reverie) -> None:
    port = free_port()
    with gateway_thread(f"http://127.0.0.1:{port}", ListedExchanges(), rewriter=Careless()) as url:
        code, out, _ = reverie("gateway", "check", url, "--server-port", port, "--json")
    assert code == 1
    failed = {one["name"]: one["evidence"] for one in json.loads(out)["checks"] if not one["passed"]}
    assert set(failed) == {"request body unchanged, byte for byte", "cache marks kept"}
    assert "differ from byte" in failed["request body unchanged, byte for byte"]


def test_a_proxy_that_keeps_its_connections_causes_no_error_at_the_end() -> None:
    async def steps() -> list[str]:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        async with ScriptedServer(0) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            while not server._tasks:
                await asyncio.sleep(0.01)
        writer.close()
        await asyncio.sleep(0)
        return told

    assert asyncio.run(steps()) == []


def test_a_proxy_that_does_not_answer_is_named(reverie: Reverie) -> None:
    code, _, err = reverie("gateway", "check", f"http://127.0.0.1:{free_port()}", "--server-port", 0)
    assert code == 2
    assert "no proxy answers at" in err
    assert reverie("gateway", "--upstream", "ftp://x")[0] == 2
    assert reverie("gateway", "--listen", "example.com")[0] == 2


def test_env_prints_lines_that_a_shell_can_run(reverie: Reverie) -> None:
    _, out, _ = reverie("gateway", "env", "--url", "http://127.0.0.1:9/", "--host", "opencode")
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    exported = shlex.split(lines[0])[1].partition("=")
    assert json.loads(exported[2])["provider"]["openai"]["options"]["baseURL"] == "http://127.0.0.1:9/v1"
    everyone = reverie("gateway", "env")[1]
    for wanted in ("ANTHROPIC_BASE_URL=http://127.0.0.1:8787", "GOOGLE_GEMINI_BASE_URL", "codex -c", "OPENAI_BASE_URL"):
        assert wanted in everyone
