"""Durable state is behind the Storage port: modules of the runtime that touch files are named with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"
RUNTIME = SOURCE / "runtime"
OF_THE_PROJECT = "reads files of the project or of the user, which are nobody's state"
OF_OTHER_AGENTS = "reads files that other agents keep on this machine"
OF_THE_MACHINE = "state of this machine: "
WORKING_COPY = "the memory directory, which with a database is a working copy that its shared journal rebuilds"
CACHE = "a cache that is rebuilt from the logs or memories"
FILES_HALF = "with a database the state is in rows, and this is its form in files: "
REMOVES = "changes the storage through the port, and takes words also out of this machine's caches and working copies"
PACKAGE = "reads files of the package"

TOUCH_FILES = {
    "agent/context_sources.py": OF_THE_PROJECT,
    "agent/parts.py": PACKAGE,
    "agent/team/types.py": OF_THE_PROJECT,
    "agent/team/worktrees.py": OF_THE_MACHINE + "checkouts of agents",
    "archive/keeper.py": OF_OTHER_AGENTS,
    "archive/recordings.py": OF_OTHER_AGENTS,
    "deletion/remains.py": REMOVES,
    "deletion/selection.py": REMOVES,
    "deletion/session.py": REMOVES,
    "dream/control.py": OF_THE_MACHINE + "the process that dreams, to stop it",
    "dream/dreams.py": WORKING_COPY,
    "dream/facts.py": OF_THE_PROJECT,
    "dream/gate.py": FILES_HALF + "a row has the time of the last dream, of which the file is a copy",
    "dream/lock.py": FILES_HALF + "a lease on dreams",
    "dream/progress.py": OF_THE_MACHINE + "the progress of the process that dreams",
    "dream/scheduler.py": WORKING_COPY,
    "instructions/reader.py": OF_THE_PROJECT,
    "jobs/engine.py": PACKAGE,
    "library.py": REMOVES,
    "mail/directory.py": FILES_HALF + "documents of owners and keys",
    "mail/erasure.py": FILES_HALF + "erase_stored_letters",
    "mail/files.py": FILES_HALF + "documents of letters",
    "mail/mailbox.py": FILES_HALF + "StoredMailbox",
    "mail/sockets.py": OF_THE_MACHINE + "sockets",
    "memory/extract/extraction_vectors.py": "a cache that is made again from sentences of the package",
    "memory/markdown.py": "reads and writes a folder that the user names",
    "memory/scopes.py": WORKING_COPY,
    "memory/session_memory.py": OF_THE_PROJECT,
    "memory/team_sync.py": OF_THE_PROJECT,
    "memory/vectors.py": CACHE,
    "places/archive_index.py": OF_THE_MACHINE + "which files of other agents were read",
    "places/directory_file.py": OF_THE_MACHINE + "trust and kept permission rules",
    "places/home_search.py": REMOVES,
    "places/hook_files.py": OF_THE_PROJECT,
    "places/processes.py": OF_THE_MACHINE + "its processes",
    "places/projects.py": OF_THE_PROJECT,
    "places/trust.py": OF_THE_MACHINE + "trust",
    "redaction/session.py": REMOVES,
    "reports/stats.py": WORKING_COPY,
    "search/index.py": CACHE,
    "search/log_text.py": CACHE,
    "search/sessions.py": CACHE,
    "session/inbox.py": FILES_HALF + "documents of the inbox",
    "session/ledger.py": FILES_HALF + "reverie.calls",
}
"""The modules below ``runtime`` that touch files, and why that is no state which a second machine misses."""

MAIL = "the mailboxes of a home; StoredMailbox has those of a database"

OPEN_A_HOME = {
    "cli/sessions/move.py": "one end of a move is always a home",
    "hosts/handlers.py": "a hook stores an output where the tools of its agent, on this machine, can read it",
    "runtime/mail/directory.py": MAIL,
    "runtime/mail/files.py": MAIL,
    "runtime/mail/mailbox.py": MAIL,
    "runtime/places/storage.py": "the one place that chooses by the settings",
    "runtime/search/sessions.py": "a search that is given no storage is of a home",
    "runtime/session/ledger.py": "rebuilds the ledger file of a home from its logs",
    "servers/gateway/saver.py": "a saved result is shown as a path that the tools of its client, on this machine, read",
}
"""The modules that open the files of a home as a storage, whatever the settings say."""

_OS = {
    "access", "fstat", "ftruncate", "link", "listdir", "lstat", "makedirs", "mkdir", "open", "pread", "pwrite", "read",
    "readlink", "remove", "rename", "replace", "rmdir", "scandir", "stat", "symlink", "unlink", "utime", "walk",
    "write",
}  # fmt: skip
_OS_PATH = {"exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists"}
_METHODS = {
    "exists", "glob", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "read_bytes", "read_text",
    "rglob", "rmdir", "stat", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
_MODULES = {"fcntl", "shutil", "sqlite3", "tempfile"}
_PATHS = {
    "append_line", "open_beneath", "open_file", "open_folder", "open_no_follow", "open_plain", "opened_folder",
    "read_all", "replace_file", "sync_folder", "temporary_file",
}  # fmt: skip


def touches(source: str) -> Iterator[str]:
    """Yield each expression of a module's source that touches files."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                yield "open()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in _OS:
                yield f"os.{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="path"), attr=name)) if name in _OS_PATH:
                yield f"os.path.{name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in _METHODS:
                yield f".{name}()"
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name.split(".")[0] in _MODULES)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[-1] in ("paths", "lock_files"):
                yield from (one.name for one in names if one.name in _PATHS or module.endswith("lock_files"))
            case _:
                pass


@pytest.mark.requirement("X2")
def test_only_the_named_modules_of_the_runtime_touch_files() -> None:
    modules = {path.relative_to(RUNTIME).as_posix(): path.read_text("utf-8") for path in RUNTIME.rglob("*.py")}
    found = {name: list(touches(source)) for name, source in modules.items()}
    assert {name: there for name, there in found.items() if there and name not in TOUCH_FILES} == {}
    assert [name for name in TOUCH_FILES if not found.get(name)] == [], "these no longer need a reason"


@pytest.mark.requirement("X2")
def test_only_the_named_modules_open_a_home_whatever_the_settings_say() -> None:
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    found = {name for name, source in sources.items() if "FileStorage(" in source.replace("class FileStorage(", "")}
    assert found == set(OPEN_A_HOME)


@pytest.mark.parametrize(
    "line",
    [
        "open(place)",
        "os.unlink(place)",
        "place.write_text('a')",
        "os.path.isdir(place)",
        "import sqlite3",
        "from ...paths import replace_file",
        "from ...storage.lock_files import take_lease",
    ],
)
def test_a_module_that_touches_files_is_noticed(line: str) -> None:
    assert list(touches(line))


def test_a_module_that_uses_the_port_is_not() -> None:
    assert (
        list(touches("storage.write(key, data)\nstorage.read(key)\ntext.replace('a', 'b')\nstorage.delete(key)")) == []
    )
