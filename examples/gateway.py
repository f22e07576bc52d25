"""Record an agent that knows nothing of Reverie: it only gets another base URL. A scripted server is the provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from typing import Any

from reverie.testing.messages_server import MessagesServer

REVERIE = [sys.executable, "-m", "reverie"]


def ask(base_url: str, messages: list[dict[str, Any]]) -> str:
    """Send one request, as any client does, and return the text of the reply."""
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}
    headers = {"content-type": "application/json", "x-api-key": "secret", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{base_url}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["content"][0]["text"]


with tempfile.TemporaryDirectory() as home, MessagesServer(lambda request: "Four.") as provider:
    env = {**os.environ, "REVERIE_HOME": home}
    words = [*REVERIE, "gateway", "--port", "0", "--json", "--upstream", provider.base_url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as gateway:
        assert gateway.stdout is not None
        url = json.loads(gateway.stdout.readline())["url"]
        said = [{"role": "user", "content": "How much is two and two?"}]
        said += [{"role": "assistant", "content": ask(url, said)}, {"role": "user", "content": "And again?"}]
        print("the reply:", ask(url, said))
        gateway.terminate()  # it lets its recorder finish
    listed = subprocess.run([*REVERIE, "sessions", "--json"], env=env, capture_output=True, text=True, check=True)
    for row in json.loads(listed.stdout)["sessions"]:
        print(f"recorded: {row['messages']} messages, {row['title']!r}")
