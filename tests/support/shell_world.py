"""A project, a home and a place outside, in which an agent with nobody to approve runs one shell line."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Settings
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.guard.permissions import Approver
from reverie.settings import Mode, PermissionRules, Switches
from reverie.values import record

CANARY = "CANARY_7f3a"
DENY = ("Read(.env)", "Read(secrets.yaml)", "Read(~/.ssh/**)")
FILES = {
    "work/README.md": "# Sample\n\nA small project. See docs/guide.md.\n",
    "work/.env": f"TOKEN={CANARY}\n",
    "work/secrets.yaml": f"pw: {CANARY}\n",
    "work/src/app.py": "import json\n\n\ndef main():\n    # TODO: read data.json\n    return json.dumps({})\n",
    "work/src/lib/util.py": "def util(x):\n    return x + 1\n",
    "work/tests/test_app.py": "def test_main():\n    assert True\n",
    "work/docs/guide.md": "# Guide\n\nRun it.\n",
    "work/package.json": '{"name": "sample", "version": "1.0.0", "scripts": {"test": "true"}}\n',
    "work/data.json": '{"items": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}\n',
    "work/data.csv": "name,n\na,1\nb,2\n",
    "out/secret.txt": f"outside {CANARY}\n",
    f"out/{CANARY}.name": "x\n",
    "home/notes.txt": f"home {CANARY}\n",
    f"home/{CANARY}.name": "x\n",
    "home/.ssh/id_rsa": f"key {CANARY}\n",
}
KEYS = {"ANTHROPIC_API_KEY": f"sk-ant-{CANARY}", "AWS_SECRET_ACCESS_KEY": CANARY}
GIT = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}


@record
class Ran:
    """The end of calls: for each whether it ran without asking, what came back, and the files that changed."""

    allowed: tuple[bool, ...]
    results: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def result(self) -> str:
        """The result of the only call."""
        (text,) = self.results
        return text


class ShellWorld:
    """The three folders, made anew for each line."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.work, self.home, self.out = (folder / name for name in ("work", "home", "out"))
        patch.setenv("HOME", str(self.home))
        for name, value in KEYS.items():
            patch.setenv(name, value)

    def furnish(self, setup: str = "", *, repository: bool = False) -> None:
        """Make the folders anew, and run the setup with bash in the project."""
        for path in (self.work, self.home, self.out):
            shutil.rmtree(path, ignore_errors=True)
        for name, text in FILES.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if repository:
            commits = " && ".join(f"git commit -q --allow-empty -m {name}" for name in ("one", "two", "three"))
            setup = f"git init -q . && git add -- README.md src tests docs data.* && {commits}\n{setup}"
        if setup:
            subprocess.run(
                ["bash", "-c", self.filled(setup)],
                cwd=self.work,
                env={**os.environ, **GIT},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=False,
            )

    def filled(self, text: str) -> str:
        """Replace the names of the three folders in a text by their paths."""
        for name, path in (("$WORK", self.work), ("$HOME_DIR", self.home), ("$OUT", self.out)):
            text = text.replace(name, str(path))
        return text

    def run(self, *commands: str) -> Ran:
        """Let an agent run lines one after another, with nobody to approve, and return what happened."""
        return self.call(*(("Bash", {"command": self.filled(command)}) for command in commands))

    def call(
        self,
        *calls: tuple[str, Mapping[str, str]],
        deny: tuple[str, ...] = DENY,
        allow: tuple[str, ...] = (),
        cwd: Path | None = None,
        approve: Approver | None = None,
        mode: Mode = "default",
    ) -> Ran:
        """Let an agent make calls, with nobody to approve unless given, and return what happened."""
        before = self.state()
        results: list[str] = []

        def answer(request: Mapping[str, Any]) -> Any:
            blocks = [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]
            results.extend(str(block["content"]) for block in blocks if block.get("type") == "tool_result")
            uses = [
                {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": dict(given)}
                for at, (name, given) in enumerate(calls)
            ]
            return "Done." if results else uses

        async def ask() -> None:
            settings = Settings(
                home=self.folder / "reverie",
                switches=Switches(extraction=False, recall=False, dream=False, notes=False, offload=False),
                permissions=PermissionRules(deny=deny, allow=allow),
            )
            model = ScriptedModel(answer, capabilities=Capabilities(True, window=1_000_000))
            place = cwd or self.work
            async with Agent(
                model=model, cwd=place, settings=settings, storage=InMemoryStorage(), approve=approve, mode=mode
            ) as agent:
                async for _ in agent.ask("go"):
                    pass

        anyio.run(ask)
        after = self.state()
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        assert len(results) == len(calls)
        allowed = tuple(not text.startswith("Permission to use ") for text in results)
        return Ran(allowed, tuple(results), tuple(changed))

    def state(self) -> dict[str, object]:
        """Return every file of the three folders with its mode, size, time and content."""
        found: dict[str, object] = {}
        for top in (self.work, self.home, self.out):
            for base, folders, files in os.walk(top):
                for name in (*folders, *files):
                    path = os.path.join(base, name)
                    with suppress(OSError):
                        state = os.lstat(path)
                        is_plain = os.path.isfile(path) and not os.path.islink(path)
                        content = hashlib.sha256(Path(path).read_bytes()).hexdigest() if is_plain else ""
                        found[path] = (state.st_mode, state.st_size, state.st_mtime_ns, content)
        return found
