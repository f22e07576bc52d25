"""A program in a terminal of tmux: type keys, and read the screen as a user sees it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("reverie"))
MODEL = "anthropic:claude-sonnet-5"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
WAIT_SECONDS = 60.0
STEP_SECONDS = 0.03
CONFIG = "set -g status off\nset -g remain-on-exit on\nset -g default-terminal tmux-256color\nset -sg escape-time 10\n"
FOOTER = ("window ", " to compaction", "cache ", "$", "claude-sonnet-5")


class Terminal:
    """A terminal with the program in it, on a tmux server of its own."""

    def __init__(self, folder: Path, *, columns: int, rows: int, environ: dict[str, str]) -> None:
        self.columns, self.rows = columns, rows
        self._socket = f"reverie-{uuid.uuid4().hex[:12]}"
        self._sockets = tempfile.mkdtemp(prefix="reverie-tmux-")  # short: a socket's path may not be long
        self._environ = {**environ, "TMUX_TMPDIR": self._sockets}
        self._config = folder / "tmux.conf"
        self._config.write_text(CONFIG)

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["tmux", "-L", self._socket, "-f", str(self._config), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self._environ)

    def tmux(self, *arguments: str) -> str:
        done = self._call(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *command: str) -> None:
        line = shlex.join(command)
        self.tmux("new-session", "-d", "-x", str(self.columns), "-y", str(self.rows), f"exec {line}")

    def again(self, *command: str) -> None:
        """Run something else in the same pane, where the last program has died."""
        self.tmux("respawn-pane", f"exec {shlex.join(command)}")

    def close(self) -> None:
        """End the server and the program in it, and wait until both are gone."""
        found = self._call("display-message", "-p", "#{pane_pid}")
        self._call("kill-server")
        with suppress(ProcessLookupError, ValueError):
            os.killpg(int(found.stdout), signal.SIGKILL)  # the test is over: nothing has to be closed in order
        deadline = time.monotonic() + WAIT_SECONDS
        while found.returncode == 0 and Path(f"/proc/{found.stdout.strip()}").exists():
            assert time.monotonic() < deadline, "the program outlived its terminal"
            time.sleep(STEP_SECONDS)
        shutil.rmtree(self._sockets)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def everything(self) -> str:
        """Return the screen and all that has scrolled off it."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-")

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def value(self, name: str) -> str:
        return self.tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait(self, wanted: str | Callable[[str], bool], *, where: Callable[[], str] | None = None) -> str:
        """Wait until something stands on the screen and return the screen."""
        look = where or self.screen
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            seen = look()
            if wanted in seen if isinstance(wanted, str) else wanted(seen):
                return seen
            assert time.monotonic() < deadline, f"waited for {wanted!r}, and saw:\n{seen}"
            time.sleep(STEP_SECONDS)

    def ready(self) -> str:
        """Wait until the program waits for us, with its footer."""
        return self.wait(lambda seen: at_rest(seen))


def at_rest(seen: str) -> bool:
    lines = [line.rstrip() for line in seen.splitlines() if line.strip()]
    return ">" in lines[-4:] and "Esc interrupts" not in seen and all(part in seen for part in FOOTER)


def chat_environment(base_url: str) -> dict[str, str]:
    """Return the environment of a chat with a scripted model, which answers the conversation only."""
    unset = (*KEYS, "TMUX", "NO_COLOR", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    return {
        **kept,
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "x",
        "LC_ALL": "C.UTF-8",
        "REVERIE_SWITCH_EXTRACTION": "off",
    }


def chat(project: Path, *more: str) -> list[str]:
    """Return the command of a chat in a project."""
    return [COMMAND, "chat", "--model", MODEL, "--cwd", str(project), *more]
