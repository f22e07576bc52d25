"""Compute and print the status line: session data from the host's JSON, and counts of the project's memories.

Hosts run this after every message, so it imports as little as possible: no click, and settings only if they exist. For
any input it prints a line and exits with 0, because otherwise the host shows nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from time import monotonic, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_MAX_INPUT_BYTES = 1_048_576
_WAIT_SECONDS = 1.0
_TAIL_BYTES = 262_144
_LOOK_SECONDS = 0.04
_HEAD_BYTES = 1_024
_BAR_CELLS = 8
_WARM_PERCENT, _HOT_PERCENT = 75, 90
_MAX_PART_CHARS = 40
_SEPARATOR = " · "
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_UNCONFIRMED = re.compile(rb"^trust:[ \t]*[\"']?unconfirmed\b", re.MULTILINE)


def main(arguments: Sequence[str]) -> int:
    """Print the status line, or with ``--json`` its values, and return 0."""
    values = line_values(_read_stdin())
    if "--json" in arguments:
        text = json.dumps(values, indent=2)
    else:
        text = line_of(values, colour=not os.environ.get("NO_COLOR"), blocks=_has_blocks())
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the pipe is closed; keeps the final flush from failing
    return 0


# -- values


def line_values(given: bytes) -> dict[str, Any]:
    """Return the values of the line from a host's JSON and the project's files; None means unknown."""
    host = _decoded(given)
    directory = _text(_inside(host, "workspace").get("current_dir")) or _text(host.get("cwd")) or _here()
    window = _window(host)
    cost = _number(_inside(host, "cost").get("total_cost_usd"))
    model = _inside(host, "model")
    return {
        "model": _clean(_text(model.get("display_name")) or _text(model.get("id")) or _text(host.get("model"))),
        "project": _clean(os.path.basename(directory.rstrip("/"))),
        "directory": _clean(directory, max_chars=4_096),
        **window,
        "cost_usd": cost if cost is not None and cost >= 0 else None,
        **_memory_counts(directory),
    }


def _window(host: Mapping[str, Any]) -> dict[str, Any]:
    reported = _inside(host, "context_window")
    usage = _inside(reported, "current_usage") or _last_usage(_text(host.get("transcript_path")))
    parts = [_number(usage.get(name)) or 0.0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    read, used = parts[0], sum(parts) + (_number(usage.get("input_tokens")) or 0.0)
    size = _number(reported.get("context_window_size")) or _window_of(host)
    percent = _number(reported.get("used_percentage"))
    if percent is None and used > 0 and size > 0:
        percent = (used + (_number(usage.get("output_tokens")) or 0.0)) / size * 100
    return {
        "window_percent": None if percent is None else round(min(100.0, max(0.0, percent))),
        "window_tokens": int(size) if 0 < size < 1e12 else None,
        "cache_share": round(min(1.0, max(0.0, read / used)), 4) if used > 0 else None,
    }


def _window_of(host: Mapping[str, Any]) -> float:
    from ...conversation.tokens.window import window_for  # most hosts report their window, so this is seldom loaded

    return window_for(_text(_inside(host, "model").get("id")) or _text(host.get("model"))).tokens


def _last_usage(transcript: str) -> Mapping[str, Any]:
    """Return the usage of the main agent's last reply in the end of a host's transcript; empty if not found."""
    for line in reversed(_part_of(transcript, _TAIL_BYTES, at_end=True).split(b"\n")):
        if b'"usage"' in line:
            entry = _decoded(line)
            if entry.get("type") == "assistant" and not entry.get("isSidechain"):
                usage = _inside(_inside(entry, "message"), "usage")
                if usage:
                    return usage
    return {}


def _part_of(path: str, size: int, *, at_end: bool = False) -> bytes:
    """Return the first or the last bytes of a regular file; none if it cannot be read."""
    links = 0 if at_end else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | links | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        found = os.fstat(descriptor)
        is_plain = (found.st_mode & 0o170000) == 0o100000
        return os.pread(descriptor, size, max(0, found.st_size - size) if at_end else 0) if is_plain else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


# -- memories


def _memory_counts(directory: str) -> dict[str, Any]:
    """Return the counts of memories and of those waiting for review, and the time of the last dream, in a dict."""
    unknown: dict[str, Any] = {"memories": None, "pending_reviews": None, "last_dream": None}
    try:
        folders = _memory_directories(directory)
        if not folders:
            return unknown
        until = monotonic() + _LOOK_SECONDS
        counted = [_counted(folder, until) for folder in folders]
        dream = os.path.join(folders[0], ".consolidate-lock")
        last = int(os.stat(dream).st_mtime) if os.path.isfile(dream) else None
    except Exception:  # invalid settings or an unreadable directory must not suppress the rest of the line
        return unknown
    return {
        "memories": sum(one[0] for one in counted),
        "pending_reviews": sum(one[1] for one in counted),
        "last_dream": last,
    }


def _memory_directories(directory: str) -> list[str]:
    """Return the memory directories of a project, its own first, or none if memory is switched off."""
    from pathlib import Path

    from ...hosts.settings import load_hook_settings

    settings = load_hook_settings(directory)
    if not settings.memory:
        return []
    own = settings.memory_dir
    if own is None:
        from ...runtime.places.projects import project_slug

        own = os.path.join(settings.home, "projects", project_slug(Path(directory)), "memory")
    return [folder for folder in (own, settings.team_memory) if folder is not None]


def _counted(folder: str, until: float) -> tuple[int, int]:
    """Return the number of memories in a folder, and how many of those read before ``until`` wait for review."""
    from ...memories.store.file_stamps import stamped_files

    count = waiting = 0
    for name, _ in stamped_files(folder):
        count += 1
        if monotonic() < until:
            head = _part_of(os.path.join(folder, name), _HEAD_BYTES)
            waiting += head.startswith(b"---") and bool(_UNCONFIRMED.search(head.split(b"\n---", 1)[0]))
    return count, waiting


# -- text


def line_of(values: Mapping[str, Any], *, colour: bool = False, blocks: bool = True) -> str:
    """Return the known values as one line: model, project, window, cache, cost, memories, reviews, last dream."""
    parts = [values["model"], values["project"]]
    if values["window_percent"] is not None:
        parts.append(_gauge(values["window_percent"], colour, blocks))
    if values["cache_share"] is not None:
        parts.append(f"cache {values['cache_share']:.0%}")
    if values["cost_usd"] is not None:
        parts.append(f"${values['cost_usd']:,.2f}")
    if values["memories"] is not None:
        parts.append(f"{values['memories']} {'memory' if values['memories'] == 1 else 'memories'}")
    if values["pending_reviews"]:
        parts.append(_painted(f"{values['pending_reviews']} to review", "33", colour))
    if values["last_dream"] is not None:
        parts.append(f"dreamt {_ago(time() - values['last_dream'])}")
    separator = _SEPARATOR if blocks else " | "
    return separator.join(part for part in parts if part) or "reverie"


def _gauge(percent: int, colour: bool, blocks: bool) -> str:
    filled = min(_BAR_CELLS, max(1 if percent else 0, round(percent / 100 * _BAR_CELLS)))
    full, empty = ("█", "░") if blocks else ("#", "-")
    code = "31" if percent >= _HOT_PERCENT else "33" if percent >= _WARM_PERCENT else "32"
    return f"{_painted(full * filled, code, colour)}{empty * (_BAR_CELLS - filled)} {percent}%"


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text else text


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "just now"


def _has_blocks() -> bool:
    try:
        "█░·".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


# -- reading untrusted input


def _read_stdin() -> bytes:
    """Return the bytes on stdin up to about 1 MB, or none if stdin is a terminal or silent for a second."""
    from select import select

    data = bytearray()
    try:
        descriptor = sys.stdin.fileno()
        if os.isatty(descriptor):
            return b""
        while len(data) <= _MAX_INPUT_BYTES and select([descriptor], [], [], _WAIT_SECONDS)[0]:
            piece = os.read(descriptor, 65_536)
            if not piece:
                break
            data += piece
    except (AttributeError, OSError, ValueError):
        pass  # closed, or not a real stream
    return bytes(data)


def _decoded(data: bytes) -> Mapping[str, Any]:
    if len(data) > _MAX_INPUT_BYTES:
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _inside(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e15 else None  # False for NaN too


def _text(value: Any) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _clean(text: str, *, max_chars: int = _MAX_PART_CHARS) -> str:
    """Return text as one line of limited length without escape sequences."""
    plain = "".join(one if one.isprintable() else " " for one in _ESCAPE.sub("", text[: 4 * max_chars + 64]))
    plain = " ".join(plain.split())
    return plain if len(plain) <= max_chars else plain[: max_chars - 1] + "…"
