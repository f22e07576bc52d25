"""``reverie gateway env``: print how to point an agent at the gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any, Final

import click

from ...values import record
from ..output import emit_json, say

_CODEX: Final = (
    'model_providers.reverie={{name="Reverie",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
)


@record
class Client:
    """How an agent is pointed at another base URL: variables, arguments of its command, and a note."""

    title: str
    variables: Callable[[str], Mapping[str, str]]
    command: Callable[[str], list[str]] = lambda url: []
    note: str = ""


def _opencode(url: str) -> dict[str, str]:
    options = {"options": {"baseURL": f"{url}/v1"}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"anthropic": options, "openai": options}})}


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client("Claude Code", lambda url: {"ANTHROPIC_BASE_URL": url}),
    "codex": Client(
        "Codex",
        lambda url: {},
        lambda url: ["codex", "-c", 'model_provider="reverie"', "-c", _CODEX.format(url=url)],
        "It uses OPENAI_API_KEY; a ChatGPT login has another address. config.toml may hold the values too.",
    ),
    "opencode": Client("opencode", _opencode, note="It adds to your opencode.json; both providers keep their keys."),
    "gemini": Client(
        "Gemini CLI",
        lambda url: {"GOOGLE_GEMINI_BASE_URL": url},
        note="Requests pass unchanged; sessions in Gemini's own API are not recorded ('reverie keep' keeps them).",
    ),
    "qwen": Client(
        "Qwen Code",
        lambda url: {"OPENAI_BASE_URL": f"{url}/v1"},
        note="Start the gateway with --upstream and your provider's address without /v1.",
    ),
    "anthropic-sdk": Client("Anthropic SDKs and agents on them", lambda url: {"ANTHROPIC_BASE_URL": url}),
    "openai-sdk": Client("OpenAI SDKs and agents on them", lambda url: {"OPENAI_BASE_URL": f"{url}/v1"}),
}


@click.command(short_help="Print the variables that send an agent here.")
@click.option("--host", type=click.Choice(sorted(CLIENTS)), help="The agent; default: all of them.")
@click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="The address of the gateway.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def env(host: str | None, url: str, as_json: bool) -> None:
    """Print the variables or arguments that send an agent's requests through the gateway.

    The lines can be run by a shell: eval "$(reverie gateway env --host claude-code)".
    """
    chosen = {host: CLIENTS[host]} if host else dict(CLIENTS)
    rows = [_row(name, client, url.rstrip("/")) for name, client in chosen.items()]
    if as_json:
        emit_json({"url": url.rstrip("/"), "hosts": rows})
        return
    for row in rows:
        say(f"# {row['title']}{': ' + row['note'] if row['note'] else ''}")
        for name, value in row["variables"].items():
            say(f"export {name}={quote(value)}")
        if row["command"]:
            say(f"# start it so: {' '.join(map(quote, row['command']))}")


def _row(name: str, client: Client, url: str) -> dict[str, Any]:
    return {
        "host": name,
        "title": client.title,
        "variables": dict(client.variables(url)),
        "command": client.command(url),
        "note": client.note,
    }
