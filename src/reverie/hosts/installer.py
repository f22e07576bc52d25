"""Add our hooks to a host's settings file, and remove them again byte for byte.

The content before and after the change is stored under home. ``uninstall`` restores a file that was not edited since;
from an edited one it removes only our lines.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from ..errors import InputError, StorageError
from ..paths import replace_file, write_file
from ..schemas import INSTALLATION, is_newer, newer
from ..values import record
from .events import EVENTS, HookKind, Host
from .jsonc import member, read, scan, with_item, with_items, with_member, without, without_items
from .shared_memory import SETTING

_RECORD: Final = "installed.json"
_MARKS: Final = ("hook --host", "before_tool.sh")
BEFORE_TOOL: Final = Path(__file__).with_name("before_tool.sh")
_PLUGIN_MARK: Final = "// Reverie for opencode"
_TIMEOUT_SECONDS: Final = 10
_CODEX_END_SECONDS: Final = 3
_MATCHERS: Final[Mapping[Host, Mapping[HookKind, str | None]]] = {
    "claude-code": {"before_tool": "Bash|Edit|Write|NotebookEdit", "after_tool": "mcp__.*"},
    "codex": {"before_tool": "Bash|apply_patch", "after_tool": None},
    "gemini": {"before_compact": "manual"},
    "qwen": {"after_tool": None},
    "cursor": {},
    "opencode": {},
}
"""The calls at which a hook can help; None: at none of this kind.

All hosts save big outputs of their own tools. Claude Code leaves those of MCP tools between our limit and its own.
Gemini CLI reports an automatic compaction before every request, also if there is none.
"""
_READING_TOOLS: Final = tuple(f"mcp__reverie__{name}" for name in ("recall", "search_sessions", "read_back", "status"))
_ALLOWED: Final = ("permissions", "allow")
_DENIED: Final = ("permissions", "deny")
_STATUS_LINES: Final[Mapping[Host, tuple[str, ...]]] = {"claude-code": ("statusLine",), "qwen": ("ui", "statusLine")}
_LONG_LINE: Final = 200
_MAX_BYTES: Final = 4 * 2**20


@record
class SettingsChange:
    """A change that was made, or would be made, to a settings file."""

    host: Host
    path: Path
    state: str
    """``installed``, ``unchanged``, ``restored``, ``cleaned`` or ``absent``."""
    diff: str = ""
    backup: Path | None = None


@record
class InstallOptions:
    """The parts that ``install`` adds to a settings file; a part that the host does not have is left out."""

    hooks: bool = True
    statusline: bool = False
    permissions: bool = False
    """Whether the model may call those MCP tools of Reverie that only read, without asking."""
    memory: str = ""
    """The memory directory that Claude Code shall use as its own; empty: leave its setting."""


_HOOKS_ONLY: Final = InstallOptions()


def settings_file(host: Host, *, project: Path | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file in which a host looks for hooks: the given project's, else the user's."""
    env = os.environ if environ is None else environ
    user = Path(env.get("HOME") or Path.home())
    match host:
        case "claude-code":
            if project is not None:
                return project / ".claude" / "settings.local.json"
            return Path(env.get("CLAUDE_CONFIG_DIR") or user / ".claude") / "settings.json"
        case "codex":
            return (project / ".codex" if project else Path(env.get("CODEX_HOME") or user / ".codex")) / "hooks.json"
        case "gemini" | "qwen":
            return (project or user) / f".{host}" / "settings.json"
        case "cursor":
            return (project or user) / ".cursor" / "hooks.json"
        case "opencode":
            configuration = Path(env.get("XDG_CONFIG_HOME") or user / ".config") / "opencode"
            return (project / ".opencode" if project else configuration) / "plugins" / "reverie.js"


def command_of(host: Host, event: str, home: Path) -> str:
    """Return the command line that a host shall run for one of its events; it is silent if Reverie is gone."""
    words = program()
    if EVENTS[host].get(event) == "before_tool":
        script = str(BEFORE_TOOL)
        start = shlex.join(["sh", script, str(home), host, *words])
        return f"test -r {shlex.quote(script)} && exec {start}; cat >/dev/null"
    return _guarded([*words, "hook", "--host", host, event])


def _guarded(words: Sequence[str]) -> str:
    # A host that cannot write the whole event to a hook reports a failure, so the rest reads it.
    return f"test -x {shlex.quote(words[0])} && exec {shlex.join(words)}; cat >/dev/null"


def program() -> list[str]:
    """Return the words of a command that starts this installation from any directory."""
    beside = Path(sys.executable).with_name("reverie")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("reverie")
    return [found] if found else [sys.executable, "-P", "-m", "reverie.cli.start"]


def opencode_plugin() -> str:
    """Return the plugin of opencode, which starts this installation."""
    source = Path(__file__).with_name("plugin") / "opencode.js"
    return source.read_text(encoding="utf-8").replace("@PROGRAM@", json.dumps(program()))


def install(
    host: Host, path: Path, home: Path, options: InstallOptions = _HOOKS_ONLY, *, dry_run: bool = False
) -> SettingsChange:
    """Add our hooks and other parts to a settings file, keep everything else in it, and return the change.

    Installing twice changes nothing. The old content is stored under ``home``; ``dry_run`` writes nothing.
    """
    before = _bytes(path)
    text = _text(before, path)
    after = _with_hooks(host, text, path, home) if options.hooks else text
    after = _with_options(host, after, path, options)
    if after == text and before is not None:
        return SettingsChange(host, path, "unchanged")
    diff = _diff(text, after, path)
    if dry_run:
        return SettingsChange(host, path, "installed", diff)
    backup = _back_up(home, host, before)
    records = _records(home)
    known = records.get(str(path))
    first, made = _encoded(before), before is None and not path.parent.exists()
    if known and before is not None:
        first = known["before"] if before == _decoded(known["after"]) else _encoded(_cleaned(known, text, path))
        made = bool(known.get("made"))
    data = after.encode("utf-8")
    memory = options.memory or (known or {}).get("memory", "")
    records[str(path)] = {"host": host, "before": first, "after": _encoded(data), "made": made, "memory": memory}
    replace_file(str(home), _RECORD, json.dumps({"schema": INSTALLATION, **records}, indent=1).encode())
    _write(path, data)
    return SettingsChange(host, path, "installed", diff, backup)


def uninstall(host: Host, path: Path, home: Path, *, dry_run: bool = False) -> SettingsChange:
    """Remove our hooks from a settings file and return the change; an unedited file gets its old content back.

    A file that did not exist before is deleted; ``dry_run`` writes nothing.
    """
    now = _bytes(path)
    records = _records(home)
    known = records.get(str(path))
    if now is None:
        if known and not dry_run:
            _forget(records, path, home)
        return SettingsChange(host, path, "absent")
    text = _text(now, path)
    restored = known is not None and now == _decoded(known["after"])
    new = _decoded(known["before"]) if known and restored else _cleaned(known, text, path)
    if new == now:
        if known and not dry_run:
            _forget(records, path, home)
        return SettingsChange(host, path, "absent")
    diff = _diff(text, _text(new, path), path)
    if dry_run:
        return SettingsChange(host, path, "restored" if restored else "cleaned", diff)
    backup = _back_up(home, host, now)
    if new is None:
        Path(os.path.realpath(path)).unlink()
        with suppress(OSError):
            if known and known.get("made"):
                path.parent.rmdir()  # fails, as it should, where the folder holds other files
    else:
        _write(path, new)
    _forget(records, path, home)
    return SettingsChange(host, path, "restored" if restored else "cleaned", diff, backup)


def installed_files(home: Path) -> list[tuple[Host, Path]]:
    """Return a list of the hosts and settings files into which ``install`` put our hooks, by its own record."""
    return [(cast(Host, one["host"]), Path(path)) for path, one in _records(home).items()]


def _forget(records: dict[str, dict[str, Any]], path: Path, home: Path) -> None:
    records.pop(str(path), None)
    replace_file(str(home), _RECORD, json.dumps({"schema": INSTALLATION, **records}, indent=1).encode())


# -- adding hooks


def _with_options(host: Host, text: str, path: Path, options: InstallOptions) -> str:
    if options.statusline and host in _STATUS_LINES:
        line = {"type": "command", "command": _guarded([*program(), "statusline"])}
        text = with_member(text, _STATUS_LINES[host], line)
    if host != "claude-code":
        return text
    if options.permissions:
        text = with_items(text, _ALLOWED, _READING_TOOLS)
    if not options.memory:
        return text
    there = _object(text, path).get(SETTING, options.memory)
    if there != options.memory:
        raise InputError(f"{path} sets {SETTING} to {there!r}; remove that setting first, or leave out --share-memory")
    text = with_member(text, (SETTING,), options.memory)
    return with_items(text, _DENIED, [_journal_rule(options.memory)])


def _journal_rule(memory: str) -> str:
    """Return the rule that keeps Claude Code from writing the journal of a memory directory; ``//`` is its root."""
    return f"Edit(/{memory}/.journal/**)"


def hook_entries(host: Host, command: Callable[[str], str]) -> dict[str, dict[str, Any]]:
    """Return the entries for a host's settings, by the host's event; ``command`` makes the command of an event."""
    matchers = _MATCHERS[host]
    kinds = {event: matchers.get(kind, "") for event, kind in EVENTS[host].items()}
    return {event: _entry(host, command(event), which) for event, which in kinds.items() if which is not None}


def _with_hooks(host: Host, text: str, path: Path, home: Path) -> str:
    if host == "opencode":
        if text and not text.startswith(_PLUGIN_MARK):
            raise InputError(f"{path} is another plugin; move it away first")
        return opencode_plugin()
    said = _object(text, path)
    if host == "cursor" and "version" not in said:
        text = with_member(text, ("version",), 1)
    wanted = hook_entries(host, lambda event: command_of(host, event, home))
    hooks: Any = said.get("hooks")
    for event in list(cast("dict[str, Any]", hooks)) if isinstance(hooks, dict) else ():
        if event not in wanted:  # an older version of Reverie registered it
            text = _without_event(text, event)
    for event, entry in wanted.items():
        said = _object(text, path)
        there = _ours(said, event)
        if any(_at(said, event, place) in (entry, *entry.get("hooks", ())) for place, _ in there):
            continue
        for place, _ in reversed(there):  # left by another installation of Reverie
            text = without(text, ("hooks", event, *place))
        text = with_item(text, ("hooks", event), entry)
    read(text)
    return text


def _at(said: Mapping[str, Any], event: str, place: tuple[str | int, ...]) -> Any:
    value: Any = said["hooks"][event]
    for step in place:
        value = value[step]
    return value


def _entry(host: Host, command: str, matcher: str) -> dict[str, Any]:
    match host:
        case "cursor":
            return {"command": command}
        case "gemini":
            hook = {"name": "reverie", "type": "command", "command": command, "timeout": _TIMEOUT_SECONDS * 1000}
            return {"matcher": matcher or "*", "hooks": [hook]}
        case "claude-code" | "codex" | "qwen" | "opencode":
            short = host == "codex" and command.endswith(" SessionEnd")  # it warns of a longer one at every start
            one = {"type": "command", "command": command, "timeout": _CODEX_END_SECONDS if short else _TIMEOUT_SECONDS}
            return {"matcher": matcher, "hooks": [one]} if matcher else {"hooks": [one]}


def _ours(said: Mapping[str, Any], event: str) -> list[tuple[tuple[str | int, ...], str]]:
    """Return a list with the path below an event's list, and the command, of each of our hooks."""
    hooks: Any = said.get("hooks")
    listed: Any = cast("Mapping[str, Any]", hooks).get(event) if isinstance(hooks, dict) else None
    found: list[tuple[tuple[str | int, ...], str]] = []
    for at, entry in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
        inner: Any = cast("Mapping[str, Any]", entry).get("hooks") if isinstance(entry, dict) else None
        group: list[Any] = cast("list[Any]", inner) if isinstance(inner, list) else [entry]
        commands = [cast("Mapping[str, Any]", one).get("command") if isinstance(one, dict) else None for one in group]
        ours = [(place, one) for place, one in enumerate(commands) if isinstance(one, str) and _is_ours(one)]
        alone = len(ours) == len(group)  # else the group also holds a hook that is not ours
        found += [((at,) if alone else (at, "hooks", place), one) for place, one in (ours[:1] if alone else ours)]
    return found


def _is_ours(command: str) -> bool:
    return "reverie" in command and any(mark in command for mark in _MARKS)


# -- removing hooks


def _cleaned(known: Mapping[str, Any] | None, text: str, path: Path) -> bytes:
    """Return the content of an edited file without our hooks."""
    if text.startswith(_PLUGIN_MARK):
        raise InputError(f"{path} was edited since; delete it yourself")
    _object(text, path)
    set_memory = str(known.get("memory") or "") if known else ""
    return _without_hooks(text, set_memory).encode("utf-8")


def _without_hooks(text: str, memory: str = "") -> str:
    """Return the text without our entries, and without the lists and objects that become empty.

    ``memory`` is the memory directory that was set by ``install``.
    """
    hooks = scan(text).members.get("hooks")
    for event in list(hooks.members) if hooks else ():
        text = _without_event(text, event)
    if hooks and hooks.members and not read(text)["hooks"]:
        text = without(text, ("hooks",))
    for place in _STATUS_LINES.values():
        command = member(read(text), (*place, "command"))
        if isinstance(command, str) and command.endswith(" statusline") and "reverie" in command:
            text = without(text, place)
    said = cast("dict[str, Any]", read(text))
    text = without_items(text, _ALLOWED, _READING_TOOLS)
    if memory:
        text = without_items(text, _DENIED, [_journal_rule(memory)])
    return without(text, (SETTING,)) if memory and said.get(SETTING) == memory else text


def _without_event(text: str, event: str) -> str:
    """Return the text without our hooks at an event."""
    places = _ours(cast("dict[str, Any]", read(text)), event)
    for place, _ in reversed(places):
        text = without(text, ("hooks", event, *place))
    return without(text, ("hooks", event)) if places and not read(text)["hooks"][event] else text


# -- files


def _object(text: str, path: Path) -> dict[str, Any]:
    try:
        said = read(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path} holds no object, so no hooks can be added; move the file away first")
    return cast("dict[str, Any]", said)


def _bytes(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    if len(data) > _MAX_BYTES:
        raise InputError(f"{path} is too large for a settings file and was not changed")
    return data


def _text(data: bytes | None, path: Path) -> str:
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8; save it as UTF-8 first") from None


def _write(path: Path, data: bytes) -> None:
    """Replace the user's file in one step, keep its mode, and follow a link to the real file."""
    path = Path(os.path.realpath(path))
    write_file(str(path), data, mode=path.stat().st_mode & 0o7777 if path.exists() else 0o600)


def _back_up(home: Path, host: Host, data: bytes | None) -> Path | None:
    if data is None:
        return None
    name = f"backups/{host}-{hashlib.sha256(data).hexdigest()[:16]}.json"
    replace_file(str(home), name, data)
    return home / name


def _records(home: Path) -> dict[str, dict[str, Any]]:
    try:
        found: Any = json.loads((home / _RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    rows = cast("dict[str, Any]", found)
    if is_newer(rows.get("schema"), INSTALLATION):
        raise newer(f"the record {home / _RECORD}", str(home / _RECORD), "upgrade Reverie to install or uninstall")
    return {
        path: one for path, one in rows.items() if isinstance(one, dict) and {"host", "before", "after"} <= one.keys()
    }


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _diff(before: str, after: str, path: Path) -> str:
    """Return the difference in lines; a file with everything on one line is shown as if it had several."""
    lines = before.splitlines()
    if len(lines) == 1 or any(len(line) > _LONG_LINE for line in lines):
        before, after = (f"{json.dumps(read(text), indent=2, ensure_ascii=False)}\n" for text in (before, after))
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{path}", f"{path} (changed)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
