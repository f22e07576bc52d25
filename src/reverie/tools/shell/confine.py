"""A separate program that gives up privileges and then becomes the command.

    python -I -S confine.py run CWD COMMAND [ARGUMENT...]
    python -I -S confine.py probe

It imports nothing of the package, because it runs without it. If a restriction cannot be applied it exits with code 126
before the command starts; only namespaces may be missing, because the seccomp filter covers the same operations.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys

__all__ = ["main"]

REFUSED = 126
NOT_FOUND = 127

# Landlock: the same call numbers on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
WRITE_FILE, TRUNCATE, IOCTL_DEVICE = 1 << 1, 1 << 14, 1 << 15
# Everything that writes, makes or removes: all bits but execute (0), read file (2) and read directory (3).
WRITES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
READS = 1 | 1 << 2 | 1 << 3
NETWORK = 3  # bind and connect TCP
SCOPES = 3  # abstract unix sockets, signals

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 24, 22, 28, 38
NO_ROOT_LOCKED = 0x2F
PR_SET_CHILD_SUBREAPER = 36
# User, network, IPC and host name. Not processes: a reader of /proc (ps) would not find itself there.
NEW_NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000 | 0x04000000
ANY_NAMESPACE = 0x7E020000

# name -> number on (x86_64, aarch64); -1 where the processor has none.
CALLS = {
    # sockets of every family, and io_uring, which could create one unseen by the filter
    "socket": (41, 198), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # operations that Landlock does not cover: modes, owners, times, attributes
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    # the machine: clock, names, mounts, modules, power
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "reboot": (169, 142), "syslog": (103, 116),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224),
    "swapoff": (168, 225), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "acct": (163, 89), "sync": (162, 81), "syncfs": (306, 267), "vhangup": (153, 58),
    # other processes, and places shared with them
    "ptrace": (101, 117), "process_vm_writev": (311, 271), "process_vm_readv": (310, 270), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # leaving the process group that is killed at the end
    "setsid": (112, 157), "setpgid": (109, 154),
    # ways around a filter
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "seccomp": (317, 277),
}  # fmt: skip
# Signals, for kernels where Landlock does not restrict them.
WITHOUT_SCOPES = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
IOCTL, PRLIMIT, CLONE, CLONE3 = (16, 29), (302, 261), (56, 220), (435, 435)
# Flags and attributes of files, injecting terminal input, taking over a controlling terminal.
FORBIDDEN_IOCTLS = (0x40086602, 0x40046602, 0x401C5820, 0x5412, 0x541C, 0x540E, 0x40049409, 0x4020940D, 0x5423)
PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# Variables that make a program run or load another one, or write somewhere.
DROPPED = (
    "BASH_ENV", "BASHOPTS", "CDPATH", "ENV", "GLOBIGNORE", "GREP_OPTIONS", "HISTFILE", "IFS", "JQ_LIBRARY_PATH",
    "LESSCLOSE", "LESSOPEN", "MAGIC", "MANPAGER", "NODE_OPTIONS", "PROMPT_COMMAND", "PS4", "RIPGREP_CONFIG_PATH",
    "SHELLOPTS", "SSH_ASKPASS", "SSH_AUTH_SOCK", "TAPE", "TAR_OPTIONS", "TMOUT", "UNZIP",
)  # fmt: skip
DROPPED_BEGINNINGS = ("BASH_FUNC_", "DYLD_", "GIT_", "LD_", "PERL5", "PYTHON", "RUBY")
# Settings that a repository's configuration must not control; ``GIT_CONFIG_*`` overrides every file.
GIT_SETTINGS = {
    "core.fsmonitor": "false", "core.pager": "cat", "core.hooksPath": "/dev/null", "core.editor": "false",
    "core.sshCommand": "false", "core.askPass": "", "core.untrackedCache": "false",
    "core.alternateRefsCommand": "false",
    "credential.helper": "", "gpg.program": "false", "gpg.ssh.program": "false",
    "gpg.x509.program": "false", "log.showSignature": "false", "protocol.allow": "never", "submodule.recurse": "false",
    "status.submoduleSummary": "false", "diff.submodule": "short", "format.pretty": "medium",
}  # fmt: skip


class RestrictionFailed(Exception):
    """Raised when a restriction could not be applied."""


def main(arguments: list[str]) -> int:
    """Run the probe or a confined command, as the arguments say, and return the exit code."""
    if arguments[:1] == ["probe"]:
        return probe()
    if arguments[:1] != ["run"] or len(arguments) < 3:
        sys.stderr.write("confine: say run CWD COMMAND [ARGUMENT...], or probe\n")
        return 2
    try:
        os.chdir(arguments[1])
        return run(arguments[2:])
    except (RestrictionFailed, OSError) as problem:
        sys.stderr.write(f"confine: {problem}; the command was not run\n")
        return REFUSED


def run(command: list[str]) -> int:
    """Apply all restrictions in a child, run the command there, kill its leftovers; return its exit code.

    A command that a signal ended has the code 128 plus the signal's number.
    """
    version = landlock_version()
    if version < 1:
        raise RestrictionFailed("this kernel has no Landlock")
    close_descriptors()
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    child = os.fork()
    if child:
        code = wait_for(child)
        sweep()
        return code
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(REFUSED)
    try:
        enter_namespaces()
        apply_restrictions(version)
        os.execvpe(command[0], command, safe_environment(dict(os.environ)))
    except FileNotFoundError:
        sys.stderr.write(f"confine: {command[0]}: not found\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND)
    except (RestrictionFailed, OSError) as problem:
        sys.stderr.write(f"confine: {problem}; the command was not run\n")
        sys.stderr.flush()
        os._exit(REFUSED)


def apply_restrictions(version: int) -> None:
    """Forbid writes, network access and effects on other processes, for this process and its children.

    ``version`` is the kernel's Landlock version.
    """
    drop_capabilities()
    check(call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    restrict_files(version)
    forbid_calls(scoped=version >= 6)


def probe() -> int:
    """Try namespaces and seccomp in child processes; print results and Landlock's version as JSON; return 0."""
    version = landlock_version()
    results: dict[str, bool] = {}
    for name, attempt in (("namespaces", enter_namespaces), ("seccomp", can_filter)):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if attempt() else 1)
            except BaseException:
                os._exit(1)
        results[name] = os.waitpid(child, 0)[1] == 0
    words = ", ".join(f'"{name}": {str(found).lower()}' for name, found in results.items())
    print(f'{{"landlock": {max(version, 0)}, {words}}}')
    return 0


def can_filter() -> bool:
    """Install the seccomp filter in this process and return whether a forbidden call then fails."""
    check(call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    forbid_calls(scoped=True)
    return call("socket", 2, 1, 0) < 0


def wait_for(child: int) -> int:
    """Wait for one child, reap all others, and return its exit code; a signal gives 128 plus its number.

    Signals that ask this process to end kill the child from now on.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda received, _frame: os.kill(child, signal.SIGKILL))
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def sweep() -> None:
    """Kill and reap all child processes until none is left; orphans of the command have become children."""
    while True:
        for task in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{task}/children") as file:
                    left = file.read().split()
            except OSError:
                left = []
            for child in left:
                try:
                    os.kill(int(child), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def close_descriptors() -> None:
    """Close all files but the three standard streams; replace a closed stream or a writable stdin by /dev/null."""
    import fcntl

    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 20 else 1 << 20)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        try:
            flags = fcntl.fcntl(stream, fcntl.F_GETFL)
        except OSError:
            flags = os.O_RDWR if stream == 0 else -1
        if flags < 0 or (stream == 0 and flags & os.O_ACCMODE != os.O_RDONLY):
            os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else nowhere, stream)
    os.closerange(3, 64)


def enter_namespaces() -> bool:
    """Enter new user, network, IPC and host name namespaces; return False if the kernel refuses them.

    Raise ``RestrictionFailed`` if the new namespace cannot be set up.
    """
    user, group = os.getuid(), os.getgid()
    if call("unshare", NEW_NAMESPACES) != 0:
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as problem:
        raise RestrictionFailed(f"a namespace could not be set up ({problem})") from problem
    return True


def drop_capabilities() -> None:
    """Drop all capabilities, for this process and every program it starts."""
    for number in range(64):
        call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
    call("prctl", PR_SET_SECUREBITS, NO_ROOT_LOCKED, 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)
    check(call("capset", ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))), "giving up privileges")


class Ruleset(ctypes.Structure):
    """The C struct ``landlock_ruleset_attr``: the kinds of access that Landlock restricts."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class Beneath(ctypes.Structure):
    """The C struct ``landlock_path_beneath_attr``: the access that a path is still allowed."""

    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; below 1 means that there is no Landlock."""
    return call("syscall", ctypes.c_long(CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(1))


def restrict_files(version: int) -> None:
    """Forbid writing any file but /dev/null; Landlock 4 also forbids TCP, 6 signals and abstract sockets."""
    writes = WRITES[min(version, 5)] & ~READS
    rules = Ruleset(writes, NETWORK if version >= 4 else 0, SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = call(
        "syscall", ctypes.c_long(CREATE_RULESET), ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    check(0 if ruleset >= 0 else -1, "Landlock")
    null = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    allowed = Beneath((WRITE_FILE | (TRUNCATE if version >= 3 else 0)) & writes, null)
    check(
        call("syscall", ctypes.c_long(ADD_RULE), ruleset, ctypes.c_int(1), ctypes.byref(allowed), ctypes.c_uint32(0)),
        "Landlock's rule for /dev/null",
    )
    check(call("syscall", ctypes.c_long(RESTRICT_SELF), ruleset, ctypes.c_uint32(0)), "Landlock")
    os.close(null)
    os.close(ruleset)


def forbid_calls(*, scoped: bool) -> None:
    """Install a seccomp filter that makes the calls of ``CALLS`` fail; without ``scoped`` also signals."""
    processor = PROCESSORS.get(os.uname().machine)
    if processor is None or struct.calcsize("P") != 8:
        raise RestrictionFailed(f"no filter is known for the processor {os.uname().machine}")
    column, architecture = processor
    tables = [CALLS, {} if scoped else WITHOUT_SCOPES]
    numbers = sorted(numbers[column] for table in tables for numbers in table.values() if numbers[column] >= 0)
    program = assemble(numbers, architecture, column)
    filters = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(filters))
    check(call("prctl", PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0), "the filter of system calls")


def assemble(numbers: list[int], architecture: int, column: int) -> bytes:
    """Return the filter as BPF code: kill on another architecture, fail with EPERM for the given calls.

    ``column`` is the processor's column in the table of calls.
    """
    load, equal, at_least, any_bit, finish = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse, no_such_call = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026

    def step(code: int, then: int, otherwise: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, then, otherwise, value)

    parts = [step(load, 0, 0, 4), step(equal, 1, 0, architecture), step(finish, 0, 0, kill), step(load, 0, 0, 0)]
    parts += [step(at_least, 0, 1, 0x40000000), step(finish, 0, 0, refuse)]  # the x32 numbers of the same calls
    for number in numbers:
        parts += [step(equal, 0, 1, number), step(finish, 0, 0, refuse)]
    # clone3 hides its flags in memory; if it reports ENOSYS, the C library uses clone.
    parts += [step(equal, 0, 1, CLONE3[column]), step(finish, 0, 0, no_such_call)]
    # Checks by argument: the low half of argument n is at offset 16 + 8n. clone: no namespace.
    parts += [step(equal, 0, 4, CLONE[column]), step(load, 0, 0, 16)]
    parts += [step(any_bit, 0, 1, ANY_NAMESPACE), step(finish, 0, 0, refuse), step(finish, 0, 0, allow)]
    # prlimit64: only for the own process.
    parts += [step(equal, 0, 4, PRLIMIT[column]), step(load, 0, 0, 16)]
    parts += [step(equal, 1, 0, 0), step(finish, 0, 0, refuse), step(finish, 0, 0, allow)]
    parts += [step(equal, 0, 1 + 2 * len(FORBIDDEN_IOCTLS), IOCTL[column]), step(load, 0, 0, 24)]
    for request in FORBIDDEN_IOCTLS:
        parts += [step(equal, 0, 1, request), step(finish, 0, 0, refuse)]
    return b"".join([*parts, step(finish, 0, 0, allow)])


def safe_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return a copy of the environment without variables that make programs run others, with safe git settings."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in DROPPED and not name.startswith(DROPPED_BEGINNINGS)
    }
    path = [part for part in kept.get("PATH", os.defpath).split(os.pathsep) if part.startswith("/")]
    kept.update(PATH=os.pathsep.join(path), PAGER="cat", GIT_PAGER="cat", GIT_OPTIONAL_LOCKS="0", TERM="dumb")
    kept.update(GIT_TERMINAL_PROMPT="0", GIT_NO_LAZY_FETCH="1", GIT_EDITOR="false")
    kept["GIT_CONFIG_COUNT"] = str(len(GIT_SETTINGS))
    for number, (name, value) in enumerate(GIT_SETTINGS.items()):
        kept[f"GIT_CONFIG_KEY_{number}"], kept[f"GIT_CONFIG_VALUE_{number}"] = name, value
    return kept


LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library by its name, with integers as ``unsigned long``; return its result."""
    function = getattr(LIBC, name)
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    ready = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    return int(function(*ready))


def check(returned: int, restriction: str) -> None:
    """Raise ``RestrictionFailed`` with the restriction's name if the returned code is not 0."""
    if returned != 0:
        raise RestrictionFailed(f"{restriction}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
