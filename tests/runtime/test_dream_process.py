"""A dream in its own process: detached, ended only after its identity is checked, and ending by itself."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reverie.errors import InputError
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.runtime.dream.control import start, stop, stop_hung, take_lock
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.dream.lock import DreamLock
from reverie.runtime.dream.process import main
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.processes import ProcessIdentity, end, is_alive, own_identity, send
from reverie.settings import load_settings
from reverie.values import replace

PATIENCE_SECONDS = 60.0
EARLIER, START, NEXT = 1_700_000_000.25, 1_800_000_000.5, 1_800_100_000.0
HANGS_AT_ONCE = DreamPolicy(hung_minutes=0.0)
DREAMER = """
import signal, sys
from reverie.runtime.dream.lock import DreamLock
{before}
held = DreamLock({root!r}).take({now})
print("holds" if held else "none", flush=True)
signal.pause()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a memory directory whose last dream was a while ago."""
    root = tmp_path / "memory"
    root.mkdir()
    (root / ".consolidate-lock").write_text("{}")
    os.utime(root / ".consolidate-lock", (EARLIER, EARLIER))
    return root


@pytest.fixture
def python() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Return a function that runs some code until the test is over."""
    running: list[subprocess.Popen[bytes]] = []

    def run(code: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, bufsize=0))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def dreamer(python: Callable[[str], subprocess.Popen[bytes]], root: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts a process which holds the lock and never lets go."""

    def dream(before: str = "") -> subprocess.Popen[bytes]:
        process = python(DREAMER.format(root=str(root), now=START, before=before))
        assert heard(process) == b"holds\n"
        return process

    return dream


def heard(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_SECONDS)[0], "it says nothing"
    return process.stdout.readline()


def who_is(pid: int) -> ProcessIdentity:
    """Return the identity of a process, read here by other means than the program's."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return replace(own_identity(), pid=pid, started=ticks)


# -- which process is meant


@pytest.mark.requirement("L6.2")
def test_a_process_is_known_by_more_than_its_number(python: Callable[[str], subprocess.Popen[bytes]]) -> None:
    bystander = python("import signal; print(flush=True); signal.pause()")
    heard(bystander)
    who = who_is(bystander.pid)
    assert is_alive(who) is True
    assert is_alive(replace(who, started=str(int(who.started) - 1))) is False, "its number was another's before"
    assert is_alive(replace(who, boot="another")) is None
    assert is_alive(replace(who, space="another")) is None
    assert is_alive(replace(who, started="")) is None
    for other in (
        replace(who, started=str(int(who.started) - 1)),
        replace(who, boot="another"),
        replace(who, space="another"),
        replace(who, boot=""),
        replace(who, started=""),
    ):
        assert not send(other, signal.SIGKILL)
        end(other, grace_seconds=0.0, wait_seconds=0.0)
    assert bystander.poll() is None
    assert end(who, grace_seconds=PATIENCE_SECONDS)
    assert is_alive(who) is False, "though nobody has waited for it yet"
    assert bystander.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def test_one_that_will_not_end_is_made_to(python: Callable[[str], subprocess.Popen[bytes]]) -> None:
    deaf = python("import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print(flush=True); s.pause(); s.pause()")
    heard(deaf)
    assert end(who_is(deaf.pid), grace_seconds=0.05)
    assert deaf.wait(PATIENCE_SECONDS) == -signal.SIGKILL


# -- ending a dream


@pytest.mark.requirement("L6.2", "L6.3", "L6.8")
@pytest.mark.parametrize("stopped", [False, True])
def test_a_dream_can_be_killed_and_the_time_of_the_last_one_stands(
    dreamer: Callable[..., subprocess.Popen[bytes]], root: Path, stopped: bool
) -> None:
    process = dreamer()
    lock = DreamLock(root)
    assert lock.take(NEXT) is None
    if stopped:
        process.send_signal(signal.SIGSTOP)
    ended = stop(root)
    assert ended is not None
    assert ended.gone
    assert ended.holder.pid == process.pid
    assert lock.holder() is None
    assert lock.last() == EARLIER
    assert stop(root) is None, "nobody is dreaming now"
    held = lock.take(NEXT)
    assert held is not None
    assert DreamLock(root).last() == EARLIER
    held.succeed()


@pytest.mark.requirement("L6.2")
def test_only_a_dream_that_hangs_is_ended_by_the_next(
    dreamer: Callable[..., subprocess.Popen[bytes]], root: Path
) -> None:
    process = dreamer()
    process.send_signal(signal.SIGSTOP)
    assert stop_hung(root, DreamPolicy()) is None
    assert take_lock(root, DreamPolicy(), NEXT) is None, "a stopped holder holds until it counts as hung"
    assert process.poll() is None
    held = take_lock(root, HANGS_AT_ONCE, NEXT)
    assert held is not None
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM
    assert DreamLock(root).last() == EARLIER
    held.fail()


@pytest.mark.requirement("L6.2")
def test_a_note_that_names_another_process_ends_nobody(
    dreamer: Callable[..., subprocess.Popen[bytes]], root: Path
) -> None:
    """The number in the note is of a living process, which is not the one that was meant."""
    process = dreamer()
    lock = DreamLock(root)
    note = Path(lock.lock_path).read_bytes()
    who = who_is(process.pid)
    for true in (who.started, who.boot, who.space):
        assert f'"{true}"'.encode() in note
        Path(lock.lock_path).write_bytes(note.replace(f'"{true}"'.encode(), b'"other"'))
        assert take_lock(root, HANGS_AT_ONCE, NEXT) is None, "the lock itself is held all the same"
        ended = stop(root, grace_seconds=0.0)
        assert ended is None or not ended.gone
        assert process.poll() is None


def test_a_process_does_not_end_itself(root: Path) -> None:
    held = DreamLock(root).take(START)
    assert held is not None
    with pytest.raises(InputError, match="runs in this process"):
        stop(root)
    assert take_lock(root, HANGS_AT_ONCE, NEXT) is None
    held.fail()


@pytest.mark.requirement("L6.2")
def test_the_lock_of_a_dead_holder_is_free_at_once(dreamer: Callable[..., subprocess.Popen[bytes]], root: Path) -> None:
    process = dreamer()
    process.kill()
    process.wait(PATIENCE_SECONDS)
    held = DreamLock(root).take(NEXT)
    assert held is not None, "at the first try"
    held.fail()


# -- being started


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    """Return a project with a few memories."""
    project = tmp_path / "project"
    project.mkdir()
    Memory.open(project, home=home).save("Deploys need two reviewers", type="project", why="the outage")
    return project


def memory_of(project: Path, home: Path) -> Path:
    return Memory.open(project, home=home).path


def reaped(pid: int) -> None:
    """Wait until a child that was started here is gone for good."""
    for thread in threading.enumerate():
        if thread.name == f"dream {pid}":
            thread.join(PATIENCE_SECONDS)
    assert not os.path.exists(f"/proc/{pid}"), "a dead dream is left unburied"


@pytest.mark.requirement("L6.2", "L6.3")
@pytest.mark.slow
def test_a_dream_runs_in_a_child_that_leaves_its_stamp_and_no_zombie(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = memory_of(project, home)
    (project / "argparse.py").write_text("open('imported', 'w').close()\n")
    monkeypatch.chdir(project)
    before = time.time()
    pid = start(project, home=home, memory_dir=directory)
    reaped(pid)
    last = DreamLock(directory).last()
    assert (directory / ".journal" / "dream-stderr").read_text() == ""
    assert last is not None
    assert before - 1 <= last <= time.time()
    assert str(pid) in (directory / ".consolidate-lock").read_text()
    assert not (project / "imported").exists(), "nothing that lies in the project is imported"


def test_a_dream_that_is_not_due_does_nothing(project: Path, home: Path) -> None:
    directory = memory_of(project, home)
    now = time.time() - 60
    held = DreamLock(directory).take(now)
    assert held is not None
    held.succeed()
    arguments = ["--project", str(project), "--home", str(home), "--memory-dir", str(directory), "--only-if-due"]
    assert (
        subprocess.run([sys.executable, "-m", "reverie.runtime.dream.process", *arguments], check=False).returncode == 0
    )
    assert DreamLock(directory).last() == pytest.approx(now)


@pytest.mark.requirement("L6.2")
def test_whoever_starts_a_dream_is_free_of_it(project: Path, tmp_path: Path, home: Path) -> None:
    """The starter ends, its output is closed, and the dream, which never gets to its end here, lives on."""
    directory = memory_of(project, home)
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")  # what the child does first, and last
    code = f"""
import os
from reverie.runtime.dream.control import start
slow = {{**os.environ, "PYTHONPATH": {str(tmp_path)!r}}}
print(start({str(project)!r}, home={str(home)!r}, memory_dir={str(directory)!r}, environ=slow), flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_SECONDS, check=True)
    dream = who_is(int(ran.stdout))
    try:
        assert ran.stderr == b""
        assert is_alive(dream), "it went on when its starter was gone"
        assert os.getsid(dream.pid) == dream.pid
        opened = {os.path.realpath(f"/proc/{dream.pid}/fd/{number}") for number in range(3)}
        assert opened == {"/dev/null", str((directory / ".journal" / "dream-stderr").resolve())}
    finally:
        assert end(dream, grace_seconds=PATIENCE_SECONDS)


@pytest.mark.requirement("L6.3", "L6.8")
def test_a_child_that_is_told_to_end_while_it_asks_a_model_says_so(project: Path, home: Path, torture: bool) -> None:
    if not torture:
        pytest.skip("loads a provider's library; run with --torture")
    directory = memory_of(project, home)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        environ = {**os.environ, "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
        pid = start(project, home=home, memory_dir=directory, model="openai:silent", environ=environ)
        with server.accept()[0]:  # it asks, and is never answered
            ended = stop(directory, grace_seconds=PATIENCE_SECONDS)
    assert ended is not None
    assert ended.gone
    reaped(pid)
    assert DreamLock(directory).last() is None
    settings = load_settings(home=home)
    report = Dreams(Memory.open(project, home=home), settings, project=project).reports()[0]
    assert report.state == "killed", "it was asked, and had the time to say so"


@pytest.mark.slow
def test_what_a_child_says_on_its_way_down_is_kept(project: Path, home: Path) -> None:
    directory = memory_of(project, home)
    (home / "config.toml").write_text("dream = 3\n")
    reaped(start(project, home=home, memory_dir=directory))
    assert "SettingsError" in (directory / ".journal" / "dream-stderr").read_text()
    assert DreamLock(directory).last() is None


@pytest.mark.slow
def test_the_system_ends_a_process_that_forgets_the_time(python: Callable[[str], subprocess.Popen[bytes]]) -> None:
    code = """
import signal, threading
signal.signal(signal.SIGALRM, signal.SIG_IGN)
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.dream.process import end_after
end_after(0.05)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""
    assert python(code).wait(PATIENCE_SECONDS) == -signal.SIGALRM


def test_bad_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--project"])
    assert "--project" in capsys.readouterr().err
