"""``reverie gateway check``: test any proxy with a scripted server behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import click

from ...errors import InputError
from ..options import number_option
from ..output import emit_json, say, table

if TYPE_CHECKING:
    from ...servers.gateway.check.checks import CheckResult

_KEY: Final = "sk-check-0123456789"


@click.command(short_help="Check whether a proxy is correct for agents.")
@click.argument("url", required=False)
@number_option("--server-port", "Of our server.", 0, 65_535, default=8788, metavar="PORT")
@click.option("--model", help="The model to name in requests; default: the first of our list.")
@click.option("--key", default=_KEY, help="The key to send, where the proxy has keys of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(url: str | None, server_port: int, model: str | None, key: str, as_json: bool) -> None:
    """Check whether a proxy is correct for coding agents: caching, usage, thinking, tools, errors, streams.

    Configure the proxy so that its provider is http://127.0.0.1:8788 (a scripted server that this command starts), then
    give the proxy's base URL. Without a URL our own gateway is checked. The exit code is 1 if a check fails.
    """
    from importlib.metadata import version

    from ...testing.messages_server.models import served_models

    results = asyncio.run(_run(url, server_port, model or served_models()[0], key))
    passed = sum(one.passed for one in results)
    if as_json:
        emit_json(
            {
                "url": url,
                "reverie": version("reverie"),
                "passed": passed,
                "failed": len(results) - passed,
                "checks": [{"name": one.name, "passed": one.passed, "evidence": one.evidence} for one in results],
            }
        )
    else:
        rows = [("pass" if one.passed else "FAIL", one.name, one.evidence) for one in results]
        table(["", "check", "evidence"], rows, cut=2)
        say(f"{passed} of {len(results)} passed")
    if passed < len(results):
        raise click.exceptions.Exit(1)


async def _run(url: str | None, port: int, model: str, key: str) -> list[CheckResult]:
    from ...servers.gateway.check.checks import Bench, run_checks
    from ...servers.gateway.check.scripted_server import ScriptedServer
    from ...servers.gateway.upstreams import upstream_of

    async with ScriptedServer(port if url else 0) as server, _proxy(url, server.port) as address:
        proxy = upstream_of(address)
        try:
            _, writer = await asyncio.open_connection(proxy.host, proxy.port)
            writer.close()
        except OSError as error:
            raise InputError(f"no proxy answers at {address} ({error})") from None
        return await run_checks(Bench(proxy, server, model=model, key=key))


@asynccontextmanager
async def _proxy(url: str | None, server_port: int) -> AsyncGenerator[str]:
    """Yield the address of the proxy under test; without one, serve our own gateway."""
    if url:
        yield url
        return
    from ...servers.gateway.server import serve
    from ...servers.gateway.upstreams import Routes
    from ...servers.guard import open_listener

    listener = open_listener()
    task = asyncio.ensure_future(serve(listener, Routes(f"http://127.0.0.1:{server_port}")))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
