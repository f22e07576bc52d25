"""Go back to an earlier prompt: the conversation, the files that tools have changed since, and the memories.

The conversation goes on in a new session whose log is a copy of the old one up to the prompt, so every fold of it is as
it was then; the old session stays whole. The new session's metadata names all that was restored, so it can be undone.
Files are restored from the contents that Write and Edit keep before a change; effects of commands stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from anyio import to_thread

from ...conversation.decisions import AgentSpawned, CallRecorded, decision_of
from ...conversation.entries import DECISION, META, REWOUND, USER, Entry, encode_entry, iso, new_uuid, seconds
from ...conversation.file_reads import FILES
from ...conversation.log import parse_log
from ...errors import InputError, ReverieError
from ...layers.l1_offload import RESULTS
from ...memories.store.journal import JournalEntry
from ...ports import Storage
from ...tools.context import ToolContext
from ...tools.files.read_state import version_of
from ...tools.files.text_files import TextFile, load, remove_text, replace_text
from ...tools.files.workspace import with_grant
from ...values import record, replace, rows_of
from ..places.projects import log_key, project_slug, session_key
from .agent import new_session_name
from .parts import VERSIONS, keep_version

if TYPE_CHECKING:
    from .agent import Agent

MISSING: Final = ""
"""The version of a file that does not exist."""


@record
class SentPrompt:
    """A prompt of the user in a log, and the number of files that tools have changed since."""

    uuid: str
    text: str
    files: int


@record
class RewindReport:
    """The session to go on in, the files and memories that were restored, and a line for each that was not."""

    session: str
    files: list[str]
    memories: int
    problems: list[str]


async def sent_prompts(agent: Agent) -> list[SentPrompt]:
    """Return the prompts of an agent's session, newest first."""

    def find() -> list[SentPrompt]:
        entries = _entries(agent)
        found = [(at, text) for at, entry in enumerate(entries) if (text := _prompt_text(entry))]
        return [
            SentPrompt(entries[at].uuid, text, len(_Changes(agent, entries[at:]).files)) for at, text in reversed(found)
        ]

    await agent.session.sync()
    return await to_thread.run_sync(find)


async def rewind(agent: Agent, prompt: str, *, files: bool = True) -> RewindReport:
    """Make a session as this one was before a prompt, named by its entry's uuid, and return its name to go on in.

    With ``files``, restore the files that tools have changed and the memories that were written since. A file that
    something else has changed is left alone.
    """

    def act() -> RewindReport:
        storage, entries = agent.session.parts.storage, _entries(agent)
        at = next((at for at, entry in enumerate(entries) if entry.uuid == prompt), None)
        if at is None:
            raise InputError(f"this session has no prompt {prompt!r}")
        now = agent.session.log.clock()
        name, slug = new_session_name(now), project_slug(agent.cwd)
        folder = session_key(slug, name)
        _copy_folder(storage, agent.session.parts.folder, folder)
        restoration = _Restoration(agent, folder)
        if files:
            changes = _Changes(agent, entries[at:])
            for path, (before, after) in changes.files.items():
                restoration.restore(path, wanted=before, expected=after, folders=changes.folders)
            restoration.undo_memories(_memories_since(agent, entries[at:]))
        made = {
            "from": agent.name,
            "message": prompt,
            FILES: restoration.rows,
            "memories": restoration.memories,
            "spent": agent.parts.events.meter.spent,
        }
        meta = Entry(new_uuid(), None, iso(now), name, META, {REWOUND: made})
        _write_log(storage, log_key(slug, name), name, [*entries[:at], meta])
        return restoration.report(name)

    await agent.session.sync()
    return await to_thread.run_sync(act)


async def undo_rewind(agent: Agent) -> RewindReport:
    """Undo the rewind that made this session, except for files that have changed since; return the old session.

    Raise ``InputError`` if no rewind made it, or the rewind is undone already.
    """
    found: Any = agent.session.view.facts.meta.get(REWOUND)
    made: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
    if not made.get("from"):
        raise InputError("no rewind made this session, so there is none to undo")

    def act() -> RewindReport:
        folder = agent.session.parts.folder
        restoration = _Restoration(agent, folder)
        for row in rows_of(made.get(FILES)):
            restoration.restore(
                str(row["path"]), wanted=str(row["replaced"]), expected=str(row["restored"]), folders=[folder]
            )
        restoration.undo_memories([str(change) for change in made.get("memories") or ()])
        return restoration.report(str(made["from"]))

    report = await to_thread.run_sync(act)
    await agent.session.log.append(META, {REWOUND: {}})
    return report


# -- the log


def _entries(agent: Agent) -> Sequence[Entry]:
    parts = agent.session.parts
    return parse_log(parts.storage.load(f"{parts.folder}.jsonl") or b"").entries


def _prompt_text(entry: Entry) -> str:
    """Return the text of a user's prompt; '' for every other entry."""
    content = entry.message.get("content") if entry.kind == USER and entry.message is not None else None
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in rows_of(content) if block.get("type") == "text")


def _write_log(storage: Storage, key: str, session: str, entries: Iterable[Entry]) -> None:
    """Write a log with these entries; calls are left out, because the old session has their cost."""
    lines: list[bytes] = []
    parent: str | None = None
    for entry in entries:
        if entry.kind != DECISION or not isinstance(decision_of(entry.body), CallRecorded):
            lines.append(encode_entry(replace(entry, session=session, parent=parent)) + b"\n")
            parent = entry.uuid
    storage.write(key, b"".join(lines), create=True)


def _copy_folder(storage: Storage, old: str, new: str) -> None:
    """Copy notes, plan and versions of files; stored results are read from the old session's folder."""
    for key in list(storage.list(old)):
        rest = key.removeprefix(f"{old}/")
        if rest.split("/")[0] not in (RESULTS, "inbox") and (data := storage.load(key)) is not None:
            storage.write(f"{new}/{rest}", data)


# -- files and memories


class _Changes:
    """The changes of files that tools of a session, and of the agents that it started, have logged."""

    def __init__(self, agent: Agent, entries: Sequence[Entry]) -> None:
        self.files: dict[str, tuple[str, str]] = {}
        """By path: the version before the first change, and after the last one."""
        self.folders = [agent.session.parts.folder]
        """The folders in which the versions are."""
        self._storage = agent.session.parts.storage
        self._read(entries)

    def _read(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for row in rows_of(entry.body.get(FILES)):
                if isinstance(before := row.get("before"), str):
                    path = str(row["path"])
                    self.files[path] = (self.files.get(path, (before, ""))[0], str(row["version"]))
            started = decision_of(entry.body) if entry.kind == DECISION else None
            if isinstance(started, AgentSpawned):
                folder = f"agents/{started.agent}"
                self.folders.append(folder)
                self._read(parse_log(self._storage.load(f"{folder}.jsonl") or b"").entries)


class _Restoration:
    """Restores files and undoes changes of memories; ``rows`` has the restored files, and problems become lines."""

    def __init__(self, agent: Agent, folder: str) -> None:
        """Keep the contents that are replaced in this folder."""
        self._storage = agent.session.parts.storage
        self._context = agent.parts.context
        self._memory = agent.parts.memory.memory if agent.parts.memory is not None else None
        self._folder = folder
        self.rows: list[dict[str, str]] = []
        self.memories: list[str] = []
        self._problems: list[str] = []

    def report(self, session: str) -> RewindReport:
        """Return the report, with the session to go on in."""
        return RewindReport(session, [row["path"] for row in self.rows], len(self.memories), self._problems)

    def restore(self, path: str, *, wanted: str, expected: str, folders: Sequence[str]) -> None:
        """Restore a version of a file, unless the file is no longer in the expected version."""
        context = with_grant(self._context, path)
        try:
            now = _loaded(path, context)
            version = now.version if now is not None else MISSING
            if version == wanted:
                return
            if version != expected:
                raise InputError("something else has changed it since, so it is left as it is")
            if now is not None:
                keep_version(self._storage, self._folder, now.data)
            _put(path, now, self._content(wanted, folders), context)
        except (ReverieError, OSError) as error:
            self._problems.append(f"{path}: {error}")
        else:
            self.rows.append({"path": path, "replaced": version, "restored": wanted})

    def _content(self, version: str, folders: Sequence[str]) -> bytes | None:
        if version == MISSING:
            return None
        for folder in folders:
            data = self._storage.load(f"{folder}/{VERSIONS}/{version}")
            if data is not None and version_of(data) == version:
                return data
        raise InputError("its earlier content was not kept")

    def undo_memories(self, changes: Iterable[str]) -> None:
        """Undo these changes of memories, and note the changes that take that back."""
        if self._memory is None:
            return
        for change in changes:
            try:
                undone = self._memory.undo(change)
            except ReverieError as error:
                self._problems.append(f"memory change {change}: {error}")
            else:
                self.memories += [undone.id] if undone is not None else []


def _loaded(path: str, context: ToolContext) -> TextFile | None:
    try:
        return load(path, context)
    except FileNotFoundError:
        return None


def _put(path: str, now: TextFile | None, data: bytes | None, context: ToolContext) -> None:
    if data is not None:
        replace_text(path, data, context, before=now)
    elif now is not None:
        remove_text(now, context)


def _memories_since(agent: Agent, entries: Sequence[Entry]) -> list[str]:
    """Return the changes of memories that came from these entries and still hold, newest first.

    A change names the message that it came from, or only the session: then its time decides.
    """
    listed = agent.parts.memory.memory.log() if agent.parts.memory is not None else ()
    undone = {change for entry in listed for change in entry.undoes}
    messages = {f"{agent.name} {entry.uuid}" for entry in entries}
    since = int(entries[0].at)

    def is_later(one: JournalEntry) -> bool:
        named = [source for source in one.source if source.startswith(f"{agent.name} ")]
        return not messages.isdisjoint(named) or (agent.name in one.source and seconds(one.time) >= since)

    return [one.id for one in listed if one.id not in undone and is_later(one)]
