"""No path leads Read, Write or Edit out of the working directory, even in a race."""

from __future__ import annotations

import os
import socket
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from reverie.paths import resolver
from reverie.runtime.guard.permissions import PermissionScope, decide
from reverie.settings import PermissionRules
from reverie.tools import Output, Tool, ToolContext
from reverie.tools.edit import Edit
from reverie.tools.files.readable import is_beneath
from reverie.tools.files.workspace import with_grant
from reverie.tools.read import Read
from reverie.tools.write import Write

SECRET = "secret-kept-outside"
Trick = Callable[[Path, Path], str]
TRICKS: dict[str, Trick] = {}


def trick(made: Trick) -> Trick:
    TRICKS[made.__name__] = made
    return made


def plain(name: str, path: Callable[[Path, Path], str]) -> None:
    """Add a trick that needs nothing but its path."""
    TRICKS[name] = path


# --- ".." and absolute paths, plain and dressed up
for number, form in enumerate(
    [
        "../outside/secret.txt",
        "./../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "sub/deep/../../../outside/secret.txt",
        "sub/./.././../outside/secret.txt",
        "..//outside///secret.txt",
        "missing/../../outside/secret.txt",
        "inside.txt/../../outside/secret.txt",
        "../ws/../outside/secret.txt",
        "..\\outside\\secret.txt",
        "sub\\..\\..\\outside\\secret.txt",
        "..%2foutside%2fsecret.txt",
        "%2e%2e/outside/secret.txt",
        "%2e%2e%2foutside%2fsecret.txt",
        "..%252foutside/secret.txt",
        "%u002e%u002e/outside/secret.txt",
        "..%c0%afoutside/secret.txt",
        "..\u2215outside\u2215secret.txt",
        "\uff0e\uff0e/outside/secret.txt",
        "․․/outside/secret.txt",
        ".\u200b./outside/secret.txt",
        "..\u00a0/outside/secret.txt",
        " ../outside/secret.txt",
        "../outside/secret.txt ",
        "../outside/secret.txt\t",
        "\t../outside/secret.txt",
        "../outside/secret.txt/",
        "../outside/secret.txt/.",
        "../outside/./secret.txt",
        "../outside/secret.txt.",
        "../OUTSIDE/secret.txt",
        "../outside/SECRET.TXT",
        ".../outside/secret.txt",
        "....//....//outside/secret.txt",
        "..;/outside/secret.txt",
        "sub/..\0/../outside/secret.txt",
        "../outside/secret.txt\0.png",
        "\0../outside/secret.txt",
        "../outside/secret\ud800.txt",
        "../outside/secret.txt\n",
        "../outside/secret.txt::$DATA",
        "$HOME/../outside/secret.txt",
        "${PWD}/../outside/secret.txt",
        "`echo ..`/outside/secret.txt",
        "$(echo ..)/outside/secret.txt",
        "../outside/{secret.txt,x}",
        "../outside/secret.t?t",
        "../outside/*",
        "../" * 64 + "etc/passwd",
        "../" * 2_000 + "etc/passwd",
        "sub/" + "../" * 1_300 + "etc/passwd",
        "a" * 300 + "/../../outside/secret.txt",
        "../outside/" + "b" * 300,
        "",
        "   ",
        ".",
        "..",
        "/",
        "//",
        "~",
        "~/",
        "~/../../../../etc/passwd",
        "~root/.bashrc",
        "~nobody/x",
    ]
):
    plain(f"written_{number}", lambda ws, outside, form=form: form)

for name, made in {
    "absolute": lambda ws, outside: str(outside / "secret.txt"),
    "absolute_with_double_slash": lambda ws, outside: "/" + str(outside / "secret.txt"),
    "absolute_through_the_root": lambda ws, outside: f"{ws}/../outside/secret.txt",
    "absolute_with_a_prefix_that_looks_inside": lambda ws, outside: f"{ws}-twin/secret.txt",
    "file_url": lambda ws, outside: (outside / "secret.txt").as_uri(),
    "file_url_with_a_host": lambda ws, outside: f"file://localhost{outside}/secret.txt",
    "percent_encoded_absolute": lambda ws, outside: quote(str(outside / "secret.txt"), safe=""),
    "proc_root": lambda ws, outside: f"/proc/self/root{outside}/secret.txt",
    "proc_root_of_the_thread": lambda ws, outside: f"/proc/thread-self/root{outside}/secret.txt",
    "proc_cwd": lambda ws, outside: f"/proc/self/cwd/../..{outside}/secret.txt",
    "proc_environment": lambda ws, outside: "/proc/self/environ",
    "proc_memory": lambda ws, outside: "/proc/self/mem",
    "proc_maps": lambda ws, outside: "/proc/self/maps",
    "proc_command_line": lambda ws, outside: "/proc/self/cmdline",
    "proc_by_number": lambda ws, outside: f"/proc/{os.getpid()}/environ",
    "sys_file": lambda ws, outside: "/sys/kernel/uevent_seqnum",
    "dev_stdin": lambda ws, outside: "/dev/stdin",
    "dev_descriptor": lambda ws, outside: "/dev/fd/0",
    "dev_zero": lambda ws, outside: "/dev/zero",
    "dev_tty": lambda ws, outside: "/dev/tty",
    "dev_null": lambda ws, outside: "/dev/null",
}.items():
    plain(name, made)


# --- links
@trick
def link_to_a_file_outside(ws: Path, outside: Path) -> str:
    (ws / "link").symlink_to(outside / "secret.txt")
    return "link"


@trick
def relative_link_to_a_file_outside(ws: Path, outside: Path) -> str:
    (ws / "link").symlink_to("../outside/secret.txt")
    return "link"


@trick
def link_to_a_directory_outside(ws: Path, outside: Path) -> str:
    (ws / "door").symlink_to(outside)
    return "door/secret.txt"


@trick
def link_to_a_new_file_outside(ws: Path, outside: Path) -> str:
    (ws / "link").symlink_to(outside / "new.txt")
    return "link"


@trick
def new_file_behind_a_linked_directory(ws: Path, outside: Path) -> str:
    (ws / "door").symlink_to(outside)
    return "door/fresh/new.txt"


@trick
def chain_of_links(ws: Path, outside: Path) -> str:
    (ws / "one").symlink_to("two")
    (ws / "two").symlink_to("sub/three")
    (ws / "sub" / "three").symlink_to(outside / "secret.txt")
    return "one"


@trick
def link_to_the_parent(ws: Path, outside: Path) -> str:
    (ws / "up").symlink_to("..")
    return "up/outside/secret.txt"


@trick
def dots_after_a_link(ws: Path, outside: Path) -> str:
    (ws / "door").symlink_to(outside / "folder")
    return "door/../secret.txt"


@trick
def link_to_the_root(ws: Path, outside: Path) -> str:
    (ws / "root").symlink_to("/")
    return f"root{outside}/secret.txt"


@trick
def link_to_proc_root(ws: Path, outside: Path) -> str:
    (ws / "magic").symlink_to("/proc/self/root")
    return f"magic{outside}/secret.txt"


@trick
def link_to_an_open_descriptor(ws: Path, outside: Path) -> str:
    (ws / "magic").symlink_to("/proc/self/fd/0")
    return "magic"


@trick
def link_to_the_environment(ws: Path, outside: Path) -> str:
    (ws / "env.txt").symlink_to("/proc/self/environ")
    return "env.txt"


@trick
def link_in_a_circle(ws: Path, outside: Path) -> str:
    (ws / "one").symlink_to("two")
    (ws / "two").symlink_to("one")
    return "one"


@trick
def link_to_itself(ws: Path, outside: Path) -> str:
    (ws / "self").symlink_to("self/../../outside/secret.txt")
    return "self"


@trick
def link_with_an_innocent_name(ws: Path, outside: Path) -> str:
    (ws / "README.md").symlink_to(outside / "secret.txt")
    return "./sub/../README.md"


@trick
def link_under_another_unicode_form(ws: Path, outside: Path) -> str:
    (ws / unicodedata.normalize("NFD", "café")).symlink_to(outside / "secret.txt")
    return unicodedata.normalize("NFC", "café")


@trick
def link_with_a_trailing_slash(ws: Path, outside: Path) -> str:
    (ws / "door").symlink_to(outside)
    return "door//secret.txt"


@trick
def link_whose_target_ends_in_dots(ws: Path, outside: Path) -> str:
    (ws / "door").symlink_to(f"{outside}/folder/../.")
    return "door/secret.txt"


@trick
def link_below_a_name_of_full_length(ws: Path, outside: Path) -> str:
    long = "n" * 255
    (ws / long).mkdir()
    (ws / long / "link").symlink_to(outside / "secret.txt")
    return f"{long}/link"


# --- hard links
@trick
def hard_link_to_a_file_outside(ws: Path, outside: Path) -> str:
    os.link(outside / "secret.txt", ws / "hard.txt")
    return "hard.txt"


@trick
def hard_link_deeper(ws: Path, outside: Path) -> str:
    os.link(outside / "secret.txt", ws / "sub" / "deep" / "hard.txt")
    return "sub/deep/hard.txt"


@trick
def link_to_a_hard_link(ws: Path, outside: Path) -> str:
    os.link(outside / "secret.txt", ws / "hard.txt")
    (ws / "soft").symlink_to("hard.txt")
    return "soft"


# --- what is no file
@trick
def pipe(ws: Path, outside: Path) -> str:
    os.mkfifo(ws / "pipe")
    return "pipe"


@trick
def pipe_behind_a_link(ws: Path, outside: Path) -> str:
    os.mkfifo(outside / "pipe")
    (ws / "link").symlink_to(outside / "pipe")
    return "link"


@trick
def a_socket(ws: Path, outside: Path) -> str:
    here = os.getcwd()
    os.chdir(ws)  # the name of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("sock")
    finally:
        os.chdir(here)
    return "sock"


@trick
def a_directory(ws: Path, outside: Path) -> str:
    return "sub"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "inside.txt").write_text("inside\n")
    return folder


@pytest.fixture
def outside(tmp_path: Path, ws: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "secret.txt").write_text(f"{SECRET}\n")
    twin = tmp_path / "ws-twin"
    twin.mkdir()
    (twin / "secret.txt").write_text(f"{SECRET}\n")
    return folder


def snapshot(*folders: Path) -> dict[str, tuple[str, int]]:
    """Return everything there is in the folders: names, contents, and which file it is."""
    found: dict[str, tuple[str, int]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            about = path.lstat()
            found[str(path)] = (path.read_text() if path.is_file() else "", about.st_ino)
    return found


async def attempt(tool: Tool, context: ToolContext, path: str, **more: Any) -> Output:
    with anyio.fail_after(60):
        return await tool.run({"file_path": path, **more}, context)


def text(output: Output) -> str:
    return output.content if isinstance(output.content, str) else repr(output.content)


def test_there_are_a_hundred_tricks() -> None:
    assert len(TRICKS) >= 100


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_reads_and_changes_nothing_outside(name: str, ws: Path, outside: Path) -> None:
    path = TRICKS[name](ws, outside)
    context = ToolContext(cwd=ws)
    before = snapshot(outside, ws.parent / "ws-twin")

    async def steps() -> None:
        read = await attempt(Read(), context, path)
        assert SECRET not in text(read)
        assert "root:" not in text(read)
        if not read.is_error:
            assert all(is_beneath(each, (str(ws),)) for each in read.read)
        wrote = await attempt(Write(), context, path, content="changed\n")
        changed = await attempt(Edit(), context, path, old_string="secret", new_string="changed")
        assert all(is_beneath(each, (str(ws),)) for output in (wrote, changed) for each in output.wrote)
        for output in (read, wrote, changed):
            assert not output.is_error or len(text(output)) > 20  # an error says what to do

    anyio.run(steps)
    assert snapshot(outside, ws.parent / "ws-twin") == before


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("name", TRICKS)
def test_permission_is_asked_for_where_a_trick_leads(name: str, ws: Path, outside: Path) -> None:
    path = TRICKS[name](ws, outside)
    context = ToolContext(cwd=ws)
    for tool in (Read(), Write(), Edit()):
        access = tool.access({"file_path": path}, context)
        if access.kind == "none":
            continue  # it can be nothing, and is refused when it is run
        assert access.target == os.path.realpath(access.target)
        if is_beneath(access.target, (str(ws),)) and Path(access.target).is_file():
            assert access.doubt or SECRET not in Path(access.target).read_text()


def naive_read(ws: Path, path: str) -> str:
    """Read as many tools do: put the path together, look whether it begins with the root, open it."""
    whole = os.path.normpath(os.path.join(ws, path))
    return Path(whole).read_text() if whole.startswith(str(ws)) else ""


def test_a_check_of_names_alone_is_caught_by_the_tricks(tmp_path: Path) -> None:
    leaks = 0
    for number, made in enumerate(TRICKS.values()):
        base = tmp_path / str(number)
        ws, outside = base / "ws", base / "outside"
        (ws / "sub" / "deep").mkdir(parents=True)
        (outside / "folder").mkdir(parents=True)
        (base / "ws-twin").mkdir()
        for folder in (outside, base / "ws-twin"):
            (folder / "secret.txt").write_text(SECRET)
        path = made(ws, outside)
        if "pipe" in path or ((ws / "link").exists() and not (ws / "link").is_file()):
            continue  # it would wait for ever
        with suppress(OSError, ValueError):
            leaks += SECRET in naive_read(ws, path)
    assert leaks >= 10


def test_what_was_granted_can_be_used_and_nothing_beside_it(ws: Path, outside: Path) -> None:
    (outside / "other.txt").write_text(SECRET)
    (ws / "link").symlink_to(outside / "secret.txt")
    context = with_grant(ToolContext(cwd=ws), str(outside / "secret.txt"))

    async def steps() -> None:
        assert SECRET in text(await attempt(Read(), context, "link"))
        done = await attempt(Edit(), context, "link", old_string=SECRET, new_string="open")
        assert not done.is_error
        assert (outside / "secret.txt").read_text() == "open\n"
        assert (ws / "link").is_symlink()
        assert (await attempt(Read(), context, str(outside / "other.txt"))).is_error

    anyio.run(steps)


def test_a_grant_for_nothing_opens_nothing(ws: Path, outside: Path) -> None:
    context = with_grant(ToolContext(cwd=ws, granted={""}), "")
    assert anyio.run(attempt, Read(), context, str(outside / "secret.txt")).is_error


def test_an_allowed_hard_link_is_read_and_writing_leaves_the_other_name_alone(ws: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", ws / "hard.txt")
    access = Read().access({"file_path": "hard.txt"}, ToolContext(cwd=ws))
    assert access.doubt
    context = with_grant(ToolContext(cwd=ws), access.target)

    async def steps() -> None:
        assert SECRET in text(await attempt(Read(), context, "hard.txt"))
        assert not (await attempt(Write(), context, "hard.txt", content="mine\n")).is_error

    anyio.run(steps)
    assert (ws / "hard.txt").read_text() == "mine\n"
    assert (outside / "secret.txt").read_text() == f"{SECRET}\n"


@pytest.mark.parametrize("tool", [Read(), Write(), Edit()])
def test_a_hard_link_inside_is_asked_for_where_a_plain_file_is_not(tool: Tool, ws: Path, outside: Path) -> None:
    os.link(outside / "secret.txt", ws / "hard.txt")
    context = ToolContext(cwd=ws)

    def outcome(name: str, *allowed: str) -> str:
        access = tool.access({"file_path": name}, context)
        return decide(PermissionRules(allow=allowed), "accept-edits", tool.name, access, PermissionScope(ws)).outcome

    assert outcome("inside.txt") == "allow"
    assert outcome("hard.txt") == "ask"
    assert outcome("hard.txt", f"{tool.name}(hard.txt)") == "allow"


def test_links_that_stay_inside_are_followed(ws: Path) -> None:
    (ws / "sub" / "link").symlink_to("../inside.txt")
    (ws / "door").symlink_to("sub")
    context = ToolContext(cwd=ws)

    async def steps() -> None:
        assert "inside" in text(await attempt(Read(), context, "door/link"))
        done = await attempt(Edit(), context, "door/link", old_string="inside", new_string="changed")
        assert done.wrote == (str(ws / "inside.txt"),)

    anyio.run(steps)
    assert (ws / "inside.txt").read_text() == "changed\n"
    assert (ws / "sub" / "link").is_symlink()


def test_a_working_directory_reached_through_a_link_is_the_directory_itself(tmp_path: Path, ws: Path) -> None:
    (tmp_path / "shortcut").symlink_to(ws)
    context = ToolContext(cwd=tmp_path / "shortcut")
    assert "inside" in text(anyio.run(attempt, Read(), context, "inside.txt"))


def test_directories_of_the_session_are_inside_too(ws: Path, outside: Path) -> None:
    context = ToolContext(cwd=ws, directories=(outside,))
    assert SECRET in text(anyio.run(attempt, Read(), context, "../outside/secret.txt"))


@contextmanager
def swapping(ws: Path, outside: Path) -> Iterator[None]:
    """Make ``ws/room`` a directory and a link to the outside, in turns, as fast as can be."""
    room, away = ws / "room", ws / "room-away"
    room.mkdir()
    for folder in (room, outside):
        (folder / "file.txt").write_text("harmless\n" if folder == room else f"{SECRET}\n")
    done = threading.Event()
    numbers = count()

    def swap() -> None:
        while not done.is_set():
            for step in (
                lambda: os.rename(room, away),
                lambda: os.symlink(outside, room),
                lambda: os.unlink(room),
                lambda: os.rename(away, room),
            ):
                while True:
                    try:
                        step()
                        break
                    except OSError:  # Write has made a directory of that name meanwhile
                        os.rename(room, ws / f"made-{next(numbers)}")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive()


def checked_then_opened(ws: Path, path: str) -> str:
    """Resolve, look whether that is inside, then open: the check everybody writes first."""
    if not os.path.realpath(ws / path).startswith(f"{ws}/"):
        return ""
    return (ws / path).read_text()


def test_a_check_before_opening_loses_the_race(ws: Path, outside: Path) -> None:
    with swapping(ws, outside):
        for _ in range(200_000):
            with suppress(OSError):
                if SECRET in checked_then_opened(ws, "room/file.txt"):
                    return
    pytest.fail("the race was never lost: the test does not test")


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("means", ["openat2", "walk"])
@pytest.mark.slow
def test_who_swaps_a_directory_for_a_link_wins_nothing(
    means: str, ws: Path, outside: Path, torture: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if means == "openat2" and resolver() != "openat2":
        pytest.skip("this system has no openat2")
    monkeypatch.setattr("reverie.paths.resolver", lambda: means)  # as on a system that has the other one
    context = ToolContext(cwd=ws)
    rounds = 20_000 if torture else 300
    seen = {"read": 0, "wrote": 0}

    async def steps() -> None:
        for number in range(100 * rounds):
            if number >= rounds and all(seen.values()):
                return  # enough were tried, and some of them hit on the directory itself
            read = await attempt(Read(), context, "room/file.txt")
            assert SECRET not in text(read), f"outside was read in round {number} ({means})"
            seen["read"] += not read.is_error
            wrote = await attempt(Write(), context, f"room/new-{number}.txt", content="changed\n")
            seen["wrote"] += not wrote.is_error
            await attempt(Edit(), context, "room/file.txt", old_string="harm", new_string="harm")
            await attempt(Edit(), context, "room/file.txt", old_string=SECRET, new_string="changed")

    with swapping(ws, outside):
        anyio.run(steps)
    assert (outside / "file.txt").read_text() == f"{SECRET}\n"
    assert sorted(os.listdir(outside)) == ["file.txt", "folder", "secret.txt"]
    assert all(seen.values()), "no round hit on the directory itself: the test does not test"
