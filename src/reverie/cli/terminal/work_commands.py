"""Slash commands about the work, such as /diff and /rewind, and the user's own commands from files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from anyio import to_thread

from ...errors import InputError
from ..output import counted, printable
from .approval import Preview
from .calls import one_line

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent
    from ...runtime.agent.rewind import RewindReport, SentPrompt
    from ...settings import Settings
    from .colours import Paint
    from .questions import Option
    from .transcript import Transcript

INIT: Final = (
    "Look at this project and write AGENTS.md in its root for coding agents that work here: how to build, run and test "
    "it (also a single test), the structure that one cannot see from file names, and rules that its files show. Keep "
    "it under 60 lines, without general knowledge, and with facts of the project only. If the file exists, improve it."
)
_MOST_LINES: Final = 400
_MOST_COMMANDS: Final = 200
_MOST_BYTES: Final = 64_000
_HEADER: Final = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_DESCRIPTION: Final = re.compile(r"^description:\s*(.+)$", re.MULTILINE)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Chat(Protocol):
    """The parts of a conversation that commands use."""

    settings: Settings
    agent: Agent
    paint: Paint
    transcript: Transcript
    own: dict[str, Path]
    """The user's own commands by name."""

    def submit(self, text: str) -> None: ...
    def go_to(self, session: str, *, draft: str = "") -> None: ...
    def leave(self) -> None: ...
    @property
    def columns(self) -> int: ...
    def session_named(self, name: str) -> str: ...
    def toggle_vim(self) -> bool: ...
    async def choose(self, title: str, options: Sequence[Option]) -> str | None: ...
    async def pick_session(self) -> str | None: ...
    async def edit_file(self, path: Path) -> None: ...


async def show_diff(chat: Chat, rest: str) -> None:
    """Show the changes of tracked files since the last commit, and the names of new files."""
    from ...tools.git import run_git

    words = ("--", *rest.split()) if rest else ()
    diff = await to_thread.run_sync(lambda: run_git(chat.agent.cwd, "diff", "HEAD", *words))
    new = await to_thread.run_sync(
        lambda: run_git(chat.agent.cwd, "ls-files", "--others", "--exclude-standard", *words)
    )
    if diff.returncode:
        raise InputError("there is no git repository with a commit here")
    preview = Preview(diff.stdout, chat.paint, is_diff=True)
    lines = preview.page(_MOST_LINES) + ([chat.paint(f"… {preview.rest}", "dim")] if preview.rest else [])
    lines += [chat.paint(f"new file {printable(name)}", "added") for name in new.stdout.splitlines()[:_MOST_LINES]]
    chat.transcript.put("block", lines or ["  no changes since the last commit"])


async def export(chat: Chat, rest: str) -> None:
    """Write the session as readable text into a new file, by default NAME.md in the working directory."""
    from ..sessions.transcript import of_entries
    from .sessions import logged_entries

    path = chat.agent.cwd / Path(rest or f"{chat.agent.name}.md").expanduser()
    entries = await to_thread.run_sync(logged_entries, chat.agent)
    text = "".join(piece for piece, _ in of_entries(entries))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists; name another file: /export FILE") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    chat.transcript.note(f"wrote {counted(text.count(chr(10)), 'line')} to {path}")


async def rewind(chat: Chat, rest: str) -> None:
    """Go back to a prompt that the user chooses; for "undo", take the rewind back that made this session."""
    from ...runtime.agent.rewind import sent_prompts, undo_rewind
    from .questions import Option

    if rest == "undo":
        _go_to_rewound(chat, await undo_rewind(chat.agent))
        return
    if rest:
        raise InputError("usage: /rewind, or /rewind undo")
    prompts = {one.uuid: one for one in await sent_prompts(chat.agent)}
    since = {uuid: f"  ({counted(one.files, 'changed file')} since)" for uuid, one in prompts.items() if one.files}
    room = chat.columns - 3
    rows = [
        Option("", one_line(one.text, min(60, room - len(since.get(uuid, "")))) + since.get(uuid, ""), uuid)
        for uuid, one in prompts.items()
    ]
    chosen = await chat.choose("Back to before which prompt? (Esc cancels)", rows) if rows else None
    if chosen is None:
        chat.transcript.note("nothing was changed" if rows else "there is no prompt to go back to")
        return
    how = [
        Option("a", "conversation, files and memories", "all"),
        Option("c", "only the conversation", "conversation"),
    ]
    scope = await chat.choose("Restore (changes by commands stay; /rewind undo takes it back)", how)
    if scope is not None:
        await _go_back(chat, prompts[chosen], files=scope == "all")


async def undo(chat: Chat, rest: str) -> None:
    """Take the last prompt back with all that followed: the conversation, edited files and memories."""
    from ...runtime.agent.rewind import sent_prompts

    if rest:
        raise InputError("usage: /undo; for a compaction /uncompact, for an earlier prompt /rewind")
    if not (prompts := await sent_prompts(chat.agent)):
        raise InputError("there is no prompt to undo; /uncompact undoes the last compaction")
    await _go_back(chat, prompts[0])
    chat.transcript.note("changes by commands stay · /rewind undo takes it back · for a compaction: /uncompact")


async def _go_back(chat: Chat, prompt: SentPrompt, *, files: bool = True) -> None:
    from ...runtime.agent.rewind import rewind as go_back

    _go_to_rewound(chat, await go_back(chat.agent, prompt.uuid, files=files), draft=prompt.text)


def _go_to_rewound(chat: Chat, report: RewindReport, *, draft: str = "") -> None:
    names = ", ".join(os.path.relpath(path, chat.agent.cwd) for path in report.files)
    done = [f"restored {counted(len(report.files), 'file')}: {one_line(names, 200)}"] if names else []
    done += [f"undid {counted(report.memories, 'change')} of memories"] if report.memories else []
    chat.transcript.note("; ".join([*done, f"{chat.agent.name} is saved as it was"]))
    for problem in report.problems:
        chat.transcript.note(f"! {one_line(problem, 200)}", "warning")
    chat.go_to(report.session, draft=draft)


async def start_init(chat: Chat, rest: str) -> None:
    """Ask the agent to write AGENTS.md."""
    chat.submit(f"{INIT}\n\n{rest}" if rest else INIT)


async def retry(chat: Chat, rest: str) -> None:
    """Send the last prompt again."""
    from .sessions import last_exchange

    prompt, _ = last_exchange(chat.agent.session.view)
    if not prompt:
        raise InputError("there is no prompt to send again")
    chat.submit(prompt)


async def show_shells(chat: Chat, rest: str) -> None:
    """List the commands that run in the background, or stop one."""
    shells = chat.agent.parts.context.shells
    verb, _, name = rest.partition(" ")
    if verb == "stop":
        shell = shells.get(name.strip())
        if shell is None:
            raise InputError(f"there is no command {name.strip()!r}; /shells lists them")
        await to_thread.run_sync(shell.kill)
        chat.transcript.note(f"stopped {name.strip()}")
        return
    rows = [
        f"  {number}  {'running' if one.running else f'ended with {one.returncode}'}  {one_line(one.command, 100)}"
        for number, one in shells
    ]
    chat.transcript.put("block", rows or ["  no commands run in the background"])


# -- commands of the user


def own_commands(home: Path, project: Path, *, is_trusted: bool) -> dict[str, Path]:
    """Return the user's own slash commands by name: Markdown files of the user, and of a trusted project."""
    folders = [home / "commands", Path("~/.claude/commands").expanduser()]
    if is_trusted:
        folders = [project / ".reverie" / "commands", project / ".claude" / "commands", *folders]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in _files(folder):
            found.setdefault(path.stem.lower(), path)
    return found


def _files(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())[:_MOST_COMMANDS]
    except OSError:
        return
    for name in names:
        stem, ending = os.path.splitext(name)
        if ending == ".md" and _NAME.fullmatch(stem.lower()):
            yield folder / name


def meaning_of(path: Path) -> str:
    """Return the description in the file's header, or else its first line."""
    text = _read(path)
    header = _HEADER.match(text)
    described = _DESCRIPTION.search(header[0]) if header else None
    rest = text[header.end() :] if header else text
    return one_line(described[1].strip("\"' ") if described else next(iter(rest.split("\n")), ""), 80)


def prompt_of(path: Path, given: str) -> str:
    """Return the prompt of a command: its text with ``$ARGUMENTS`` and ``$1``, ``$2``, ... replaced.

    Text without any of them is followed by the arguments. Commands inside the text are not run.
    """
    text = _HEADER.sub("", _read(path)).strip()
    words = given.split()
    if not re.search(r"\$(?:ARGUMENTS|[1-9])", text):
        return f"{text}\n\n{given}" if given else text
    values: Mapping[str, str] = {"ARGUMENTS": given, **{str(at): word for at, word in enumerate(words, 1)}}
    return re.sub(r"\$(ARGUMENTS|[1-9])", lambda found: values.get(found[1], ""), text)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
