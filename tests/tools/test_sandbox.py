"""A confined command reads and computes; it cannot write, use the network or leave a process running."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reverie.errors import SandboxUnavailable
from reverie.tools.shell.sandbox import LAUNCHER, Availability, available, confined_command

FOLDER = Path(__file__).with_name("shell_commands")
INVISIBLE = str.maketrans({"␊": "\n", "␍": "\r", "␉": "\t"})
BATCHES = 4
SECONDS = 110

pytestmark = pytest.mark.skipif(not available().works, reason=f"no sandbox here: {available().detail}")


class Witness:
    """What notices an effect: a tree of files, a TCP and a UDP listener, a process nobody may touch, a mark."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.tcp = stack.enter_context(socket.socket())
        self.udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        for each in (self.tcp, self.udp):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        self.tcp.listen(64)
        self.path = str(folder.parent / f"s{self.mark[:8]}")
        self.local = stack.enter_context(socket.socket(socket.AF_UNIX))
        self.local.bind(self.path)
        self.letters = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.letters.bind(f"{self.path}d")
        self.letters.setblocking(False)
        self.hidden = stack.enter_context(socket.socket(socket.AF_UNIX))
        self.hidden.bind(f"\0{self.mark}")
        for each in (self.local, self.hidden):
            each.listen(8)
            each.setblocking(False)
        self.victim = stack.enter_context(subprocess.Popen(["sleep", "300"]))
        stack.callback(self.victim.kill)
        self.before = tree(folder)

    @property
    def ports(self) -> tuple[int, int]:
        return self.tcp.getsockname()[1], self.udp.getsockname()[1]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder), "LC_WITNESS": self.mark, "GIT_CONFIG_NOSYSTEM": "1"}

    def saw(self) -> list[str]:
        """Name every effect there was."""
        found: list[str] = []
        after = tree(self.folder)
        found += sorted(f"file {name}" for name in before_and_after(self.before, after))
        for name, listener in (("tcp", self.tcp), ("unix", self.local), ("abstract", self.hidden)):
            try:
                listener.accept()[0].close()
                found.append(name)
            except BlockingIOError:
                pass
        for name, reader in (("udp", self.udp), ("datagram", self.letters)):
            try:
                reader.recv(100)
                found.append(name)
            except BlockingIOError:
                pass
        if self.victim.poll() is not None:
            found.append("a process was ended")
        found += [f"process {pid} is left" for pid in marked(self.mark)]
        return found


def before_and_after(before: dict[str, object], after: dict[str, object]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def tree(folder: Path) -> dict[str, object]:
    """Describe every file: kind, mode, owner, times and content."""
    found: dict[str, object] = {}
    for base, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            path = os.path.join(base, name)
            state = os.lstat(path)
            plain = os.path.isfile(path) and not os.path.islink(path)
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest() if plain else ""
            extra = tuple(os.listxattr(path, follow_symlinks=False)) if sys.platform == "linux" else ()
            found[path] = (
                state.st_mode,
                state.st_uid,
                state.st_nlink,
                state.st_size,
                state.st_mtime_ns,
                content,
                extra,
            )
    return found


def marked(mark: str) -> list[str]:
    """Return the processes that carry the mark in their environment."""
    found: list[str] = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark.encode() in Path("/proc", entry, "environ").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


def await_end(mark: str) -> None:
    """Wait for marked processes to be gone: a killed one takes a moment to die."""
    until = time.monotonic() + SECONDS
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.01)


GIT = [
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "commit.gpgsign=false",
]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, timeout=SECONDS)


def furnish(folder: Path) -> None:
    """Put into a folder everything the harmful commands name."""
    for name in ("sub", "empty"):
        (folder / name).mkdir()
    texts = {
        "a.txt": "hello\nowned\nworld\n", "b.txt": "hello\n", "sub/c.txt": "c\n", "big.txt": "hello world\n" * 20_000,
        "x.sh": "#!/bin/sh\necho x >> owned\n", "x.py": "open('owned', 'w')\n", "x.sed": "w owned\n",
        "x.awk": 'BEGIN{system("touch owned")}\n', "x.mk": "all:\n\ttouch owned\n", "Makefile": "all:\n\ttouch owned\n",
        "names0": "a.txt\0", "a.json": "{}\n", "magic": "0 string x y\n", "x.jq": ".\n", "x.opt": "-a\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "x.sh").chmod(0o755)
    subprocess.run(["tar", "cf", "a.tar", "a.txt"], cwd=folder, check=True)
    git(folder, "init", "-q")
    git(folder, "add", "-f", "a.txt", "b.txt", "sub")
    git(folder, "commit", "-qm", "one")
    git(folder, "branch", "other")
    git(folder, "tag", "v1")
    (folder / "a.txt").write_text("hello\nowned\nagain\n")
    git(folder, "commit", "-qam", "two")
    git(folder, "remote", "add", "origin", "./.git")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@b")
    (folder / "b.txt").write_text("changed\n")


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("furnished") / "work"
    folder.mkdir()
    furnish(folder)
    return folder


@pytest.fixture
def witness(furnished: Path, tmp_path: Path) -> Iterator[Witness]:
    shutil.copytree(furnished, tmp_path / "work", symlinks=True)
    with ExitStack() as stack:
        yield Witness(tmp_path / "work", stack)


def harmful(witness: Witness) -> list[str]:
    """Return the commands that may be run for real, aimed at the witness."""
    tcp, udp = witness.ports
    lines = (FOLDER / "harmful.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith(("# ", "never ")) and "␀" not in line]
    return [line.replace("@tcp@", str(tcp)).replace("@udp@", str(udp)).translate(INVISIBLE) for line in kept]


DRIVER = 'for line in "$@"; do timeout --foreground -s KILL 1 bash -c "$line" </dev/null >/dev/null 2>&1; done'


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.slow
def test_no_harmful_command_has_an_effect_in_the_sandbox(witness: Witness, batch: int) -> None:
    lines = harmful(witness)[batch::BATCHES]
    assert len(lines) > 100
    answer = subprocess.run(
        confined_command(["bash", "-c", f"{DRIVER}; echo done", "driver", *lines], cwd=witness.folder),
        capture_output=True,
        env=witness.environment,
        timeout=SECONDS,
    )
    assert answer.stdout == b"done\n", answer.stderr
    await_end(witness.mark)
    assert witness.saw() == []


@pytest.mark.slow
def test_without_the_sandbox_the_same_commands_do_harm(furnished: Path, tmp_path: Path) -> None:
    lines = [line for line in (FOLDER / "harmful.txt").read_text(encoding="utf-8").splitlines() if "owned" in line]
    runnable = [line.translate(INVISIBLE) for line in lines if not line.startswith("never ") and "␀" not in line][::6]
    done: list[str] = []
    for number, line in enumerate(runnable):
        folder = tmp_path / str(number)
        shutil.copytree(furnished, folder, symlinks=True)
        before = tree(folder)
        subprocess.run(
            ["timeout", "-s", "KILL", "2", "bash", "-c", line],
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        if before_and_after(before, tree(folder)):
            done.append(line)
        shutil.rmtree(folder)
    assert len(done) > 0.6 * len(runnable), sorted(set(runnable) - set(done))


# Everything a program could try by itself, without any shell: each entry prints its name where it succeeds.
ATTEMPTS = r"""
import ctypes, json, os, resource, socket, struct, sys, fcntl, signal
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def raw(*a):
    r = libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
    if r < 0: raise OSError(ctypes.get_errno(), "raw")
    return r
def reach(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.sendto(b"x", address) if kind == socket.SOCK_DGRAM else s.connect(address)
def pair(kind):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.sendto(b"x", given["path"] + "d")
def stdin():
    os.write(0, b"x")
attempts = {
    "create": lambda: open("owned", "w"),
    "append": lambda: open("a.txt", "a").write("x"),
    "truncate": lambda: os.truncate("a.txt", 0),
    "empty by opening": lambda: os.open("a.txt", os.O_RDONLY | os.O_TRUNC),
    "empty by opening for nothing": lambda: os.open("a.txt", os.O_ACCMODE | os.O_TRUNC),
    "lock": lambda: fcntl.flock(os.open("a.txt", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB),
    "lock a range": lambda: fcntl.lockf(os.open("a.txt", os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB),
    "datagram pair": lambda: pair(socket.SOCK_DGRAM),
    "raw pair": lambda: pair(socket.SOCK_RAW),
    "unlink": lambda: os.unlink("big.txt"),
    "rename": lambda: os.rename("names0", "owned"),
    "rename away": lambda: os.rename("magic", "sub/magic"),
    "mkdir": lambda: os.mkdir("owned"),
    "rmdir": lambda: os.rmdir("empty"),
    "symlink": lambda: os.symlink("a.txt", "owned"),
    "link": lambda: os.link("a.txt", "sub/owned"),
    "fifo": lambda: os.mkfifo("owned"),
    "chmod": lambda: os.chmod("a.txt", 0o777),
    "fchmod": lambda: os.fchmod(os.open("a.txt", os.O_RDONLY), 0o777),
    "chown": lambda: os.chown("a.txt", os.getuid(), os.getgid()),
    "utime": lambda: os.utime("a.txt", (1, 1)),
    "xattr": lambda: os.setxattr("a.txt", "user.x", b"1"),
    "chattr": lambda: fcntl.ioctl(os.open("a.txt", os.O_RDONLY), 0x40086602, struct.pack("l", 0x40)),
    "open for writing by /proc": lambda: os.open("/proc/self/cwd/a.txt", os.O_WRONLY),
    "write memory of another": lambda: open(f"/proc/{given['victim']}/mem", "wb"),
    "tcp": lambda: reach(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", given["tcp"])),
    "udp": lambda: reach(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", given["udp"])),
    "udp 6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "netlink": lambda: socket.socket(16, socket.SOCK_RAW, 0),
    "packet": lambda: socket.socket(17, socket.SOCK_RAW, 0),
    "unix": lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, given["path"]),
    "abstract": lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + given["mark"]),
    "io_uring": lambda: raw(425, 8, ctypes.create_string_buffer(120)),
    "kill": lambda: os.kill(given["victim"], signal.SIGTERM),
    "signal 0": lambda: os.kill(given["victim"], 0),
    "prlimit": lambda: resource.prlimit(given["victim"], resource.RLIMIT_CPU, (60, 60)),
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, given["victim"], 5),
    "ptrace": lambda: raw(101 if os.uname().machine == "x86_64" else 117, 16, given["victim"], 0, 0),
    "shared memory": lambda: raw(29 if os.uname().machine == "x86_64" else 194, 0x1234, 4096, 0o1600),
    "setsid": lambda: os.setsid(),
    "user namespace": lambda: raw(272 if os.uname().machine == "x86_64" else 97, 0x10000000),
    "clone into a namespace": lambda: raw(56, 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0),
    "inherited descriptor": lambda: os.write(given["descriptor"], b"x"),
    "standard input": stdin,
}
done = []
for name, attempt in attempts.items():
    try:
        attempt()
        done.append(name)
    except OSError:
        pass
print(json.dumps(done), flush=True)
if os.fork() == 0:
    os.close(1); os.close(2)
    signal.pause()
"""


def attempted(witness: Witness, wrap: list[str]) -> list[str]:
    """Run every attempt behind ``wrap`` and return those that succeeded."""
    tcp, udp = witness.ports
    with (
        open(witness.folder.parent / "inherited", "wb") as inherited,
        open(witness.folder.parent / "in", "w+b") as given_in,
    ):
        facts = {
            "tcp": tcp,
            "udp": udp,
            "path": witness.path,
            "mark": witness.mark,
            "victim": witness.victim.pid,
            "descriptor": inherited.fileno(),
        }
        answer = subprocess.run(
            [*wrap, sys.executable, "-I", "-S", "-c", ATTEMPTS, json.dumps(facts)],
            cwd=witness.folder,
            env=witness.environment,
            stdin=given_in,
            capture_output=True,
            pass_fds=[inherited.fileno()],
            timeout=SECONDS,
        )
    assert answer.stdout, answer.stderr.decode()
    return json.loads(answer.stdout)


# An older kernel, as far as Landlock goes: only the rights of that version are handled.
OLDER = (
    "import os, sys; sys.path.insert(0, sys.argv[1]); import confine; version = int(sys.argv[2])\n"
    "confine.landlock_version = lambda: version\n"
    "os.chdir(sys.argv[3]); sys.exit(confine.run(sys.argv[4:], []))"
)


def launcher(cwd: Path, version: int) -> list[str]:
    """Return the words before a confined command, on a kernel with this version of Landlock; 0 is this kernel."""
    if version == 0:
        return confined_command(["--"], cwd=cwd)[:-1]
    return [sys.executable, "-I", "-S", "-c", OLDER, str(LAUNCHER.parent), str(version), str(cwd)]


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("version", [0, 1, 2, 5])
def test_no_call_to_the_kernel_has_an_effect_in_the_sandbox(witness: Witness, version: int) -> None:
    assert attempted(witness, launcher(witness.folder, version)) == []
    await_end(witness.mark)
    assert witness.saw() == []
    assert (witness.folder.parent / "inherited").read_bytes() == b""


@pytest.mark.requirement("S3")
def test_the_filter_alone_stops_the_network_where_there_are_no_namespaces(witness: Witness) -> None:
    without = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
    if subprocess.run([*without, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be taken away here")
    words = launcher(witness.folder, 0)
    probe = subprocess.run([*without, *words[:4], "probe"], capture_output=True, check=True, timeout=SECONDS)
    found = json.loads(probe.stdout)
    assert (found["landlock"], found["namespaces"], found["seccomp"]) == (available().landlock_version, False, True)
    assert attempted(witness, [*without, *words]) == []
    await_end(witness.mark)
    assert witness.saw() == []


def test_the_same_calls_succeed_outside(witness: Witness) -> None:
    done = attempted(witness, [])
    assert len(done) > 20
    assert {"create", "chmod", "utime", "tcp", "udp", "unix", "abstract", "kill", "inherited descriptor"} <= set(done)
    assert {"empty by opening", "lock", "lock a range", "datagram pair", "raw pair"} <= set(done)
    saw = witness.saw()
    for pid in marked(witness.mark):
        os.kill(int(pid), signal.SIGKILL)
    assert {"tcp", "udp", "unix", "abstract", "datagram"} <= set(saw)
    assert any(line.startswith("process ") for line in saw)


@pytest.mark.requirement("S3")
@pytest.mark.parametrize(
    ("setting", "value", "command"),
    [
        ("core.fsmonitor", "./x.sh", ["status"]),
        ("core.pager", "./x.sh", ["--paginate", "log"]),
        ("diff.external", "./x.sh", ["diff", "HEAD~1"]),
        ("diff.evil.textconv", "./x.sh", ["diff", "HEAD~1"]),
        ("filter.evil.clean", "./x.sh", ["status"]),
        ("gpg.program", "./x.sh", ["log", "--show-signature"]),
        ("core.sshCommand", "./x.sh", ["ls-remote", "ssh://127.0.0.1/x"]),
        ("remote.origin.url", "ext::./x.sh", ["fetch"]),
    ],
)
def test_a_repository_s_configuration_has_no_effect_in_the_sandbox(
    witness: Witness, setting: str, value: str, command: list[str]
) -> None:
    (witness.folder / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    git(witness.folder, "config", setting, value)
    os.utime(witness.folder / "a.txt")
    witness.before = tree(witness.folder)
    subprocess.run(
        confined_command(["git", *command], cwd=witness.folder),
        capture_output=True,
        env=witness.environment,
        timeout=SECONDS,
    )
    await_end(witness.mark)
    assert witness.saw() == []


def run(*argv: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        confined_command(argv, cwd=cwd),
        capture_output=True,
        env={**os.environ, **environment},
        timeout=SECONDS,
        cwd="/",
    )


@pytest.mark.slow
def test_reading_and_computing_go_on_as_ever(furnished: Path) -> None:
    assert run("cat", "b.txt", cwd=furnished).stdout == b"changed\n"
    assert run("bash", "-c", "echo hi >/dev/null && git log --oneline | wc -l", cwd=furnished).stdout.strip() == b"2"
    assert b"M b.txt" in run("git", "status", "--short", cwd=furnished).stdout
    assert run("git", "diff", "--stat", "HEAD~1", cwd=furnished).returncode == 0
    assert run("bash", "-c", "sort big.txt | uniq -c", cwd=furnished).stdout.split()[0] == b"20000"
    assert str(os.getpid()) in run("ps", "-eo", "pid", cwd=furnished).stdout.decode().split()


def test_exit_codes_come_through(tmp_path: Path) -> None:
    assert run("bash", "-c", "exit 7", cwd=tmp_path).returncode == 7
    assert run("bash", "-c", "kill -KILL $$", cwd=tmp_path).returncode == 128 + signal.SIGKILL
    missing = run("no-such-program", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (127, b"confine: no-such-program: not found\n")
    nowhere = run("true", cwd=tmp_path / "gone")
    assert nowhere.returncode == 126
    assert b"was not run" in nowhere.stderr


KEYS = {"ANTHROPIC_API_KEY": "sk-secret", "AWS_SECRET_ACCESS_KEY": "secret", "DATABASE_URL": "postgres://u:secret@h/d"}


@pytest.mark.requirement("S3")
def test_no_key_of_the_environment_reaches_a_command(tmp_path: Path) -> None:
    """The variables come from a list, so that a key with any name stays outside."""
    line = "env; cat /proc/self/environ; jq -n '$ ENV'; awk 'BEGIN{for(k in ENVIRON)print ENVIRON[k]}'"
    shown = run("bash", "-c", line, cwd=tmp_path, LC_ALL="C", MY_OWN_NAME="secret", **KEYS).stdout.decode()
    assert "LC_ALL=C" in shown
    assert f"HOME={os.environ['HOME']}" in shown
    assert "secret" not in shown
    outside = subprocess.run(["bash", "-c", line], capture_output=True, env={**os.environ, **KEYS}).stdout.decode()
    assert outside.count("sk-secret") >= 3


def test_a_command_has_limits_on_memory_and_processes(tmp_path: Path) -> None:
    """The limits are those of ``confine.py``, and a lower one of the caller stays."""
    asking = "import resource as r; print(*(r.getrlimit(k)[1] for k in (r.RLIMIT_DATA, r.RLIMIT_AS, r.RLIMIT_CORE)))"
    taking = "bytearray(5 << 30)"
    assert run(sys.executable, "-c", asking, cwd=tmp_path).stdout.split() == [b"4294967296", b"68719476736", b"0"]
    assert b"MemoryError" in run(sys.executable, "-c", taking, cwd=tmp_path).stderr
    low = [
        "bash",
        "-c",
        f"ulimit -d {1 << 20}; exec {shlex.join(confined_command([sys.executable, '-c', asking], cwd=tmp_path))}",
    ]
    assert subprocess.run(low, capture_output=True).stdout.split()[0] == str(1 << 30).encode()
    forks = "import os\nfor n in range(700):\n  if os.fork() == 0: break\nos.read(os.pipe()[0], 1)"
    said = run(sys.executable, "-c", forks, cwd=tmp_path).stderr
    # The kernel exempts root, and the launcher does not.
    assert b"BlockingIOError" in said if os.getuid() else b"processes with" in said


def test_all_processes_of_a_command_together_have_a_limit_on_memory(tmp_path: Path) -> None:
    small = f"import sys; sys.path.insert(0, {str(LAUNCHER.parent)!r}); import confine; confine.MAX_MEMORY = 64 << 20"
    launcher = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"{small}; sys.exit(confine.main(sys.argv[1:]))",
        "run",
        str(tmp_path),
    ]

    def ended(megabytes: int) -> bool:
        take = f"{sys.executable} -c 'import time; taken = bytearray({megabytes} << 20); print(1); time.sleep(3)'"
        line = f"{take} | cat & {take} | cat; wait"
        done = subprocess.run([*launcher, "--", "bash", "-c", line], capture_output=True, timeout=SECONDS)
        return b"processes with" in done.stderr

    assert ended(48)
    assert not ended(4)


def test_variables_that_make_programs_run_others_are_gone(tmp_path: Path) -> None:
    script = tmp_path / "evil"
    script.write_text("echo evil\n")
    shown = run(
        "bash",
        "-c",
        "env",
        cwd=tmp_path,
        BASH_ENV=str(script),
        LD_PRELOAD="x",
        GIT_EXTERNAL_DIFF="x",
        PATH="bin::/usr/bin:/bin",
    )
    lines = shown.stdout.decode().splitlines()
    assert "PATH=/usr/bin:/bin" in lines
    assert not [line for line in lines if line.startswith(("BASH_ENV", "LD_", "GIT_EXTERNAL_DIFF", "evil"))]


def test_ending_the_launcher_ends_the_command(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    command = confined_command(["bash", "-c", "sleep 300 & echo up; sleep 300"], cwd=tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "LC_WITNESS": mark}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert len(marked(mark)) >= 3
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=SECONDS)
    await_end(mark)
    assert marked(mark) == []


def test_a_machine_without_doors_to_close_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    available.cache_clear()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    try:
        found = available()
        assert isinstance(found, Availability)
        assert not found.works
        assert "asks" in found.detail
        with pytest.raises(SandboxUnavailable, match="with permission"):
            confined_command(["ls"], cwd=tmp_path)
    finally:
        available.cache_clear()


@pytest.mark.slow
@pytest.mark.requirement("L7.4", "S3")
def test_no_program_waits_for_ever_when_nobody_reads_why_another_was_refused() -> None:
    """The end of the caller closes the pipe: a launcher that could not write its refusal never answered the kernel."""
    reading, writing = os.pipe()
    os.close(reading)
    probe = [sys.executable, "-I", "-S", str(LAUNCHER), "probe"]
    try:
        done = subprocess.run(probe, stdout=subprocess.PIPE, stderr=writing, check=True, timeout=60)
    finally:
        os.close(writing)
    assert json.loads(done.stdout)["watch"] is True
