"""How each real program is pointed at a scripted model, asked, continued and compacted."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopback_namespace import LoopbackNamespace, Outcome


@dataclass
class HostWorld:
    """A home, a project and a namespace for one program."""

    program: HostProgram
    namespace: LoopbackNamespace
    home: Path
    project: Path
    env: dict[str, str] = field(default_factory=dict)

    def ask(self, prompt: str, *, resume: bool = False) -> Outcome:
        """Send a prompt to the program, in a new session or in the last one."""
        return self.run(self.program.words(prompt, resume))

    def compact(self, filler: str, after: list[str]) -> None:
        """Ask something long, let the program compact the session, and ask more in it."""
        self.program.compact(self, filler, after)

    def run(self, words: list[str], *, stdin: str = "", seconds: float = 120) -> Outcome:
        """Run any program in the project."""
        return self.namespace.run(words, cwd=self.project, env=self.env, stdin=stdin, seconds=seconds)

    def reverie(self, *words: str) -> Outcome:
        """Run one of our commands in the project; it must succeed."""
        done = self.run(["reverie", *words])
        assert done.code == 0, f"reverie {' '.join(words)}: {done.out}\n{done.err}"
        return done

    def sent(self) -> list[str]:
        """Return the model requests since the last call as JSON texts; title requests and the like are left out."""
        found = [(path, body) for path, body in self.namespace.requests() if body.get("tools")]
        return [json.dumps(body, ensure_ascii=False) for _, body in found]


@dataclass(frozen=True)
class HostProgram:
    """A coding agent that is installed here."""

    host: str
    title: str
    program: str
    shell: str
    """The name of its tool that runs a command, and of the tool's argument."""
    settings: str
    """The settings file, below the home, that an installation of ours changes."""
    prepare: Callable[[HostWorld, str], dict[str, str]]
    words: Callable[[str, bool], list[str]]
    compact: Callable[[HostWorld, str, list[str]], None]
    load: tuple[str, ...]
    """The commands that validate and load our plugin folder, with its path as ``DIR``."""

    def call(self, command: str) -> str:
        """Return the line of a prompt that lets the scripted model run a command."""
        tool, argument = self.shell.split()
        return f"@@ {tool} {json.dumps({argument: command})}"

    def path(self) -> str | None:
        """Return the path of the program: in the folder of ``REVERIE_HOSTS``, else on PATH."""
        return shutil.which(self.program, path=search_path())


def search_path() -> str:
    """Return the directories to look for programs in, with ours first."""
    given = os.environ.get("REVERIE_HOSTS")
    ours = str(Path(sys.executable).parent)
    return os.pathsep.join([ours, *([str(Path(given) / "bin")] if given else []), os.environ.get("PATH", os.defpath)])


def make_world(program: HostProgram, namespace: LoopbackNamespace, folder: Path) -> HostWorld:
    """Make a home and a project for a program, which finds its model in the namespace."""
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    project.mkdir()
    world = HostWorld(program, namespace, home, project)
    world.env = {"HOME": str(home), "PATH": search_path(), "LANG": "C.UTF-8", "REVERIE_HOME": str(folder / "reverie")}
    world.env |= program.prepare(world, namespace.url)
    return world


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# -- Claude Code


def _prepare_claude(world: HostWorld, url: str) -> dict[str, str]:
    known = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": ["dummy"]}}
    known["projects"] = {str(world.project): {"hasTrustDialogAccepted": True}}
    _write(world.home / ".claude.json", json.dumps(known))
    _write(world.home / ".claude" / "settings.json", '{\n  "includeCoAuthoredBy": false\n}\n')
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "dummy", **quiet}


def _claude(prompt: str, resume: bool) -> list[str]:
    words = ["claude", "-p", prompt, "--allowedTools", "Bash", "mcp__reverie", "--output-format", "json"]
    return [*words, "--continue"] if resume else words


# -- Codex


def _prepare_codex(world: HostWorld, url: str) -> dict[str, str]:
    provider = f'name = "loop"\nbase_url = "{url}/v1"\nenv_key = "LOOP_KEY"\nwire_api = "responses"\n'
    trusted = f'[projects."{world.project}"]\ntrust_level = "trusted"\n'
    head = 'model = "gpt-5"\nmodel_provider = "loop"\n'
    _write(world.home / ".codex" / "config.toml", f"{head}\n[model_providers.loop]\n{provider}\n{trusted}")
    return {"LOOP_KEY": "dummy"}


def _codex(prompt: str, resume: bool) -> list[str]:
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
    return ["codex", "exec", *(["resume", "--last"] if resume else []), *flags, prompt]


def _compact_codex(world: HostWorld) -> Outcome:
    # A limit below the size of any request lets the next turn begin with a compaction.
    words = _codex("go on", True)
    return world.run([*words[:2], "-c", "model_auto_compact_token_limit=1000", *words[2:]])


# -- Gemini CLI


def _prepare_gemini(world: HostWorld, url: str) -> dict[str, str]:
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    _write(world.home / ".gemini" / "settings.json", json.dumps(auth, indent=2) + "\n")
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "dummy", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def _gemini(prompt: str, resume: bool) -> list[str]:
    return [
        "gemini",
        "--skip-trust",
        "--yolo",
        "-m",
        "gemini-2.5-pro",
        "-p",
        prompt,
        *(["--resume", "latest"] if resume else []),
    ]


def _talk_gemini(world: HostWorld, filler: str, after: list[str]) -> None:
    # The command /compress exists only in a terminal, and a session that goes on elsewhere has its whole past again.
    words = ["gemini", "--skip-trust", "--yolo", "-m", "gemini-2.5-pro", "-i", after[-1]]
    said = [filler, "/compress", *after]
    waits = ["Finished", "Finished", "ompressed", *["Finished"] * len(after)]
    steps = [(wait, f"{text}\0\r") for wait, text in zip(waits, said, strict=False)]
    done = world.namespace.talk(words, [*steps, ("Finished", "")], cwd=world.project, env=world.env, seconds=300)
    assert done.code == 0, f"the conversation stopped at: {done.out[-1_000:]}"


# -- opencode


def _prepare_opencode(world: HostWorld, url: str) -> dict[str, str]:
    limit = {"context": 100_000, "output": 4_000}
    model = {"scripted": {"name": "scripted", "limit": limit, "tool_call": True}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "loop", "models": model}
    provider["options"] = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    said: dict[str, Any] = {"$schema": "https://opencode.ai/config.json", "provider": {"loop": provider}}
    said |= {"model": "loop/scripted", "small_model": "loop/scripted", "autoupdate": False, "share": "disabled"}
    _write(world.home / ".config" / "opencode" / "opencode.json", json.dumps(said, indent=2) + "\n")
    # It asks the registry for the types of plugins before it loads one; this one has none at once.
    _write(world.home / ".npmrc", f"registry={url}/\nfetch-retries=0\n")
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def _opencode(prompt: str, resume: bool) -> list[str]:
    return ["opencode", "run", *(["--continue"] if resume else []), prompt]


# -- Qwen Code


def _prepare_qwen(world: HostWorld, url: str) -> dict[str, str]:
    said: dict[str, Any] = {"security": {"auth": {"selectedType": "openai"}}}
    said["memory"] = {"enableManagedAutoMemory": False}  # else each turn is followed by a request about its memories
    said |= {"$version": 4, "ui": {"autoModeAcknowledged": True}}  # as the program writes it itself at its first start
    _write(world.home / ".qwen" / "settings.json", json.dumps(said, indent=2) + "\n")
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "dummy", "OPENAI_MODEL": "scripted"}


def _qwen(prompt: str, resume: bool) -> list[str]:
    return ["qwen", "-y", *(["--continue"] if resume else []), "-p", prompt]


# -- all


def _resumes(compact: Callable[[HostWorld], Outcome]) -> Callable[[HostWorld, str, list[str]], None]:
    """Return a compaction of a session that goes on in one process after the other."""

    def compacted(world: HostWorld, filler: str, after: list[str]) -> None:
        for step in (lambda: world.ask(filler, resume=True), lambda: compact(world)):
            done = step()
            assert done.code == 0, f"the compaction failed: {done.err[-500:]}"
        for prompt in after:
            world.ask(prompt, resume=True)

    return compacted


def _says(command: str) -> Callable[[HostWorld, str, list[str]], None]:
    return _resumes(lambda world: world.ask(command, resume=True))


PROGRAMS = (
    HostProgram(
        *("claude-code", "Claude Code", "claude", "Bash command", ".claude/settings.json"),
        *(_prepare_claude, _claude, _says("/compact")),
        (
            "claude plugin validate DIR",
            "claude plugin validate DIR/claude-code",
            "claude plugin marketplace add DIR",
            "claude plugin install reverie@reverie",
        ),
    ),
    HostProgram(
        *("codex", "Codex", "codex", "exec_command cmd", ".codex/hooks.json"),
        *(_prepare_codex, _codex, _resumes(_compact_codex)),
        ("codex plugin marketplace add DIR", "codex plugin add reverie@reverie"),
    ),
    HostProgram(
        *("gemini", "Gemini CLI", "gemini", "run_shell_command command", ".gemini/settings.json"),
        *(_prepare_gemini, _gemini, _talk_gemini),
        ("gemini extensions validate DIR/gemini", "gemini extensions install --consent DIR/gemini"),
    ),
    HostProgram(
        *("opencode", "opencode", "opencode", "bash command", ".config/opencode/plugins/reverie.js"),
        *(_prepare_opencode, _opencode, _says("Go on. @tokens 99000")),
        ("mkdir -p .opencode/plugins", "cp DIR/opencode/reverie.js .opencode/plugins"),
    ),
    HostProgram(
        *("qwen", "Qwen Code", "qwen", "run_shell_command command", ".qwen/settings.json"),
        *(_prepare_qwen, _qwen, _says("/compress")),
        ("qwen extensions install --consent DIR/qwen",),
    ),
)
