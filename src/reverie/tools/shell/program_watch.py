"""Judge each program that a command in the sandbox starts, by its real path and arguments.

The kernel stops a process at ``execve`` and asks the launcher (a seccomp listener). The launcher reads the path and the
arguments from the memory of the process, and the lists of ``read_only`` decide. So no value that bash computed can
become an option, a program or a script that the lists do not allow. A program starts with the variables of the sandbox:
others could make it load code. Nothing runs between the answer and the start that could change that memory: no hostile
program starts. ``confine.py`` loads this module without the package.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import socket
import struct
import sys
import threading
from socket import socketpair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[list[str]], str]

# name of the processor -> numbers of execve, execveat and seccomp
NUMBERS = {"x86_64": (59, 322, 317), "aarch64": (221, 281, 277)}
SET_FILTER, NEW_LISTENER, CONTINUE = 1, 8, 1
RECEIVE, ANSWER, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
LOAD, EQUAL, FINISH = 0x20, 0x15, 0x06
ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050001
MAX_ARGUMENTS, MAX_BYTES = 100_000, 4 << 20
# The variables that a line may change for a program, and those that bash changes itself.
CHANGED = ("LANG", "TZ", "PAGER", "GIT_PAGER", "NO_COLOR", "TERM", "COLUMNS", "_", "PWD", "OLDPWD", "SHLVL")
__all__ = ["ProgramWatch", "listen", "socketpair", "watch_programs"]
PACKAGE = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", ".."))


def listener(processor: str) -> int:
    """Stop this process and its children at every start of a program from now on; return the descriptor to watch it.

    Raise ``OSError`` where the kernel has no such filter, or already has one from another program.
    """
    start, start_at, seccomp = NUMBERS[processor]
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, start), (FINISH, 0, 0, NOTIFY), (EQUAL, 0, 1, start_at)]
    steps += [(FINISH, 0, 0, REFUSE), (FINISH, 0, 0, ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    made = call(ctypes.c_long(seccomp), ctypes.c_ulong(SET_FILTER), ctypes.c_ulong(NEW_LISTENER), header)
    if made < 0:
        raise OSError(ctypes.get_errno(), "programs cannot be watched here")
    return int(made)


def listen(channels: tuple[socket.socket, socket.socket], processor: str) -> None:
    """Stop this process at every start of a program from now on, and give the launcher the descriptor to watch it."""
    here, there = channels
    here.close()
    descriptor = listener(processor)
    there.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
    os.close(descriptor)
    there.close()


def watch_programs(
    channels: tuple[socket.socket, socket.socket],
    child: int,
    command: list[str],
    variables: dict[str, str],
    roots: list[str],
    git: list[str],
    judge: Judge | None,
) -> None:
    """Answer the kernel in a thread, from when the child has its restrictions: which programs may start."""
    here, there = channels
    there.close()
    _, extra, _, _ = here.recvmsg(1, socket.CMSG_LEN(4))
    here.close()
    if extra:  # otherwise the child has ended
        descriptor = struct.unpack("i", extra[0][2][:4])[0]
        ProgramWatch(descriptor, child, command, variables, roots, git, judge).start()


class ProgramWatch:
    """Answers the kernel for one command: which of its programs may start."""

    def __init__(
        self,
        descriptor: int,
        first: int,
        command: list[str],
        variables: dict[str, str],
        roots: list[str],
        git: list[str],
        judge: Judge | None,
    ) -> None:
        """Watch by a descriptor; the process ``first`` starts the command itself, nothing beneath ``roots`` starts.

        The command gives ``variables`` to programs, and no others.
        """
        self._descriptor = descriptor
        self._first = first
        self._command = b"".join(os.fsencode(word) + b"\0" for word in command)
        self._variables = {f"{name}={text}" for name, text in variables.items()}
        self._roots = [*roots, *map(os.path.realpath, roots)]
        self._git = git
        self._judge = judge

    def start(self) -> None:
        """Answer in a thread until the command has ended."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            self._answer_all()
        finally:
            os.close(self._descriptor)  # without anyone to answer, the kernel starts nothing and lets nothing wait

    def _answer_all(self) -> None:
        import fcntl

        while True:
            request = bytearray(80)
            try:
                fcntl.ioctl(self._descriptor, RECEIVE, request)
            except InterruptedError:
                continue
            except OSError as problem:
                if problem.errno == errno.ENOENT:  # the process was killed meanwhile
                    continue
                return
            number, process = struct.unpack_from("=QI", request)
            try:
                refusal = self._refusal(process, number, *struct.unpack_from("=QQQ", request, 32))
            except Exception as problem:  # a process must never wait for ever, nor start a program unjudged
                say(f"confine: a program was not judged ({problem})")
                refusal = errno.EACCES
            answer = struct.pack("=QqiI", number, 0, -refusal, 0 if refusal else CONTINUE)
            try:
                fcntl.ioctl(self._descriptor, ANSWER, answer)
            except OSError:
                continue

    def _refusal(self, process: int, number: int, path: int, arguments: int, variables: int) -> int:
        """Return the number of the error with which a start fails; 0 if the program may start."""
        import fcntl

        if process == self._first:
            self._first = 0  # the command itself, from a process whose memory may be closed to us
            return 0
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            fcntl.ioctl(self._descriptor, IS_VALID, struct.pack("=Q", number))  # raises for a process that took its id
            given = text_at(memory.fileno(), path)
            argv = texts_at(memory.fileno(), arguments)
            given_variables = texts_at(memory.fileno(), variables) if self._is_the_command(process) else []
        folder = os.readlink(f"/proc/{process}/cwd")
        program = os.path.realpath(os.path.join(folder, given))
        if not os.path.exists(program):
            return errno.ENOENT  # one place of the search path, or one that only that process can see
        problem = self._variables_problem(given_variables) or self._problem(
            os.path.join(folder, given), program, argv, os.readlink(f"/proc/{process}/exe")
        )
        if problem:
            say(f"{' '.join(argv)[:200]!a}: not started without asking: {problem}")
        return errno.EACCES if problem else 0

    def _is_the_command(self, process: int) -> bool:
        """Return whether a process is the command or a part of it that has not started another program."""
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return file.read() == self._command

    def _variables_problem(self, texts: list[str]) -> str:
        """Return why a program must not start with these variables: one of them could make it load code."""
        names = (text.partition("=")[0] for text in texts if text not in self._variables)
        strange = next((name for name in names if name not in CHANGED and not name.startswith("LC_")), "")
        return f"the line sets {strange} for it" if strange else ""

    def _problem(self, given: str, program: str, argv: list[str], caller: str) -> str:
        """Return why a program must not start, '' if it may: it only reads, or is git's own."""
        python = os.path.realpath(self._git[0])
        if argv[: len(self._git)] == self._git and program == python:  # our own, also where it is part of the project
            return self._judged("git", argv[len(self._git) :])
        if os.path.normpath(given).startswith(("/proc/", "/dev/")):
            return "its path means another file in each process"
        if self._is_in_project(program) or self._is_in_project(os.path.normpath(given)):
            return "it is a program of the project"
        name = os.path.basename(given)
        if name == "git" and caller in (python, program):  # the launcher of git, and git's own helpers
            return ""
        if os.path.basename(argv[0] if argv else "") != name:
            return "it has another name than its file"
        if name == "node" and len(argv) > 1 and os.path.isabs(argv[1]):  # a script such as npm, by its first line
            if os.path.dirname(argv[1]) not in os.environ.get("PATH", os.defpath).split(os.pathsep):
                return "its script is not in the search path"  # such as /proc/self/fd/0/npm, which is another file here
            is_ours = self._is_in_project(os.path.realpath(argv[1])) or self._is_in_project(argv[1])
            return "it is a program of the project" if is_ours else self._judged(os.path.basename(argv[1]), argv[2:])
        if name.startswith("python") and argv[1:2] == ["-m"] and not is_python_with_safe_path(program):
            return "this Python would load modules of the project"
        return self._judged(name, argv[1:])

    def _is_in_project(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self._roots)

    def _judged(self, name: str, words: list[str]) -> str:
        if self._judge is None:
            sys.path.append(PACKAGE)
            from reverie.tools.shell.read_only.programs import program_problem

            self._judge = program_problem
        return self._judge([name, *words])


def say(text: str) -> None:
    """Write a line to stderr, if there still is a reader."""
    try:
        os.write(2, f"{text}\n".encode(errors="replace"))
    except OSError:
        return


def is_python_with_safe_path(program: str) -> bool:
    """Return whether an interpreter knows ``PYTHONSAFEPATH``, by the version in its name."""
    name, _, minor = os.path.basename(program).rpartition(".")
    return name == "python3" and minor.isdigit() and int(minor) >= 11


def text_at(memory: int, address: int) -> str:
    """Return the text at an address of a process."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < MAX_BYTES:
        part = os.pread(memory, 4096 - address % 4096, address)  # a text may end before a page that is not there
        text, end, _ = part.partition(b"\0")
        parts.append(text)
        if end or not part:
            return os.fsdecode(b"".join(parts))
        address += len(part)
    raise ValueError("an argument is too long")


def texts_at(memory: int, address: int) -> list[str]:
    """Return the texts of a list of pointers that ends with a null."""
    found: list[str] = []
    size = 0
    while address and len(found) < MAX_ARGUMENTS and size <= MAX_BYTES:
        part = os.pread(memory, 512 - address % 512, address)
        if len(part) < 8:
            break
        for (pointer,) in struct.iter_unpack("=Q", part):
            if not pointer:
                return found
            found.append(text_at(memory, pointer))
            size += len(found[-1])
        address += len(part)
    if address:
        raise ValueError("there are too many arguments")
    return found
