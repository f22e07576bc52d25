"""``reverie gateway``: one base URL for clients of any provider, which records their sessions and changes no byte."""

from __future__ import annotations

import ipaddress
import json
import sys
from functools import partial
from typing import Final

import click

from ...errors import InputError
from ...settings import load_settings
from ..options import number_option
from ..output import say, warn
from .check import check
from .env import env
from .record import record

__all__ = ["command"]

PORT: Final = 8787
TOKEN_FILE: Final = "gateway-token"


@click.group(name="gateway", invoke_without_command=True)
@click.option("--upstream", metavar="URL", help="The server behind; default: the provider whose API a request speaks.")
@number_option("--port", "0 for a free one.", 0, 65_535, default=PORT, metavar="PORT")
@click.option("--listen", metavar="ADDRESS", default="127.0.0.1", help="Another address than loopback needs the token.")
@click.option("--save", is_flag=True, help="Move big new tool results to disk, once and for good.")
@click.option("--no-record", is_flag=True, help="Pass requests only.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
@click.pass_context
def command(
    ctx: click.Context, upstream: str | None, port: int, listen: str, save: bool, no_record: bool, as_json: bool
) -> None:
    """Pass requests of any client to its provider, byte for byte, and record the sessions.

    Set the client's base URL to the printed address; 'reverie gateway env' prints how, for each agent. Requests and
    replies pass unchanged, streams as they come. Sessions appear in 'reverie sessions', 'inspect', 'stats' and
    'search' while they run. Keys are never recorded. It serves until Ctrl-C. With --save, big tool results of the
    Messages API move to disk before they are first sent, and the model sees a preview with the path.
    """
    if ctx.invoked_subcommand is not None:
        return
    import anyio

    from ...layers.l1_offload import OffloadPolicy
    from ...servers.gateway.recorder_process import RecorderProcess
    from ...servers.gateway.saver import Saver
    from ...servers.gateway.server import serve, serve_until_signal
    from ...servers.gateway.upstreams import Routes
    from ...servers.guard import load_token, open_listener

    settings, routes = load_settings(), Routes(upstream)
    home = settings.home
    token = None if _is_loopback(listen) else load_token(home, TOKEN_FILE)
    with open_listener(port, listen) as listener:
        url = f"http://{f'[{listen}]' if ':' in listen else listen}:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "reverie", "gateway", "record"]
        recorder = None if no_record else RecorderProcess(command, warn)

        def started() -> None:
            if as_json:
                say(json.dumps({"url": url, "token_file": str(home / TOKEN_FILE) if token else None}))
            else:
                say(f"The gateway is at {url}; 'reverie gateway env' prints how to point an agent at it.")
                if token:
                    say(f"Clients need the token in {home / TOKEN_FILE}: {url}/token/TOKEN as base URL.")
                records = "nothing" if no_record else "sessions"
                changes = "only results that are new in a request" if save else "no byte"
                say(f"It changes {changes} and records {records}. Ctrl-C ends it.")
            sys.stdout.flush()

        saver = Saver(home, OffloadPolicy(override_chars=settings.offload_limits)) if save else None
        serving = partial(serve, listener, routes, token=token, recorder=recorder, rewriter=saver, started=started)
        anyio.run(serve_until_signal, serving)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise InputError(f"{address!r} is no IP address; give one like 127.0.0.1 or 0.0.0.0") from None


for one in (env, check, record):
    command.add_command(one)
