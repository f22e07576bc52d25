"""A separate program that gives up privileges and then becomes the command.

    python -I -S confine.py run CWD [--read PATH | --data PATH | --list PATH | --watch PATH]... -- COMMAND [ARGUMENT...]
    python -I -S confine.py probe

With ``--read``, only those files and directories can be read and executed, with everything in them; ``--data`` allows
to read and not to execute, ``--list`` only the names in a directory. With ``--watch``, each program that the command
starts is judged (``program_watch.py``), and none starts that is beneath that path.

It runs without the package. If a restriction cannot be applied it exits with code 126 before the command starts; only
namespaces may be missing, because the seccomp filter covers the same operations.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import stat
import struct
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from .call_filter import call_filter
    from .kept_variables import KEPT
    from .program_watch import Judge
else:  # this program runs without the package
    sys.path.append(HERE)
    from call_filter import call_filter
    from kept_variables import KEPT

REFUSED, NOT_FOUND = 126, 127

# Landlock: the same call numbers on every processor.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
# Everything that writes, makes or removes: all bits but execute (0), read file (2) and read directory (3).
WRITES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
EXECUTE, READ_FILE, READ_DIR = 1, 1 << 2, 1 << 3
READS = EXECUTE | READ_FILE | READ_DIR
ACCESS = {"--read": READS, "--data": READ_FILE | READ_DIR, "--list": READ_DIR}
NETWORK, SCOPES = 3, 3  # bind and connect TCP; abstract unix sockets, signals

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_NO_NEW_PRIVS = 1, 24, 22, 28, 38
NO_ROOT_LOCKED = 0x2F
PR_SET_CHILD_SUBREAPER = 36
# User, network, IPC and host name. Not processes: a reader of /proc (ps) would not find itself there.
NEW_NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000 | 0x04000000

# Limits of each process of a command. Mapped files do not count as data, so that git can map large packs.
LIMITS = {
    resource.RLIMIT_DATA: 4 << 30,
    resource.RLIMIT_AS: 64 << 30,
    resource.RLIMIT_FSIZE: 1 << 30,
    resource.RLIMIT_CORE: 0,
}
# Processes and threads of one command. The kernel counts those of the user namespace, or else all of the user's (the
# limit is then added to them), and does not count for root; so the launcher counts too, and adds up their memory.
MAX_PROCESSES = 512
MAX_MEMORY = LIMITS[resource.RLIMIT_DATA]
LOOK_SECONDS = 0.25

# Settings that a repository's configuration must not control; ``GIT_CONFIG_*`` overrides every file. Keys that contain
# a name of the repository's choice (filters, hooks) and options are in ``git_program.py``.
GIT_SETTINGS = {
    "core.fsmonitor": "false", "core.pager": "cat", "core.hooksPath": "/dev/null", "core.editor": "false",
    "core.sshCommand": "false", "core.askPass": "", "core.untrackedCache": "false", "core.gitProxy": "",
    "core.alternateRefsCommand": "false", "credential.helper": "", "safe.bareRepository": "explicit",
    "gpg.program": "false", "gpg.ssh.program": "false", "gpg.x509.program": "false", "gpg.ssh.defaultKeyCommand": "",
    "log.showSignature": "false", "protocol.allow": "never", "submodule.recurse": "false", "gc.auto": "0",
    "status.submoduleSummary": "false", "diff.submodule": "short", "format.pretty": "medium",
    "maintenance.auto": "false", "interactive.diffFilter": "", "sequence.editor": "false", "grep.threads": "0",
    "index.threads": "0",
}  # fmt: skip
GIT_VARIABLES = {
    "GIT_PAGER": "cat", "GIT_EDITOR": "false", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "",
    "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_SSH_COMMAND": "false",
}  # fmt: skip
GIT_PROGRAM = os.path.join(HERE, "git_program.py")
BASH_LIMITS = os.path.join(HERE, "bash_limits.sh")


class RestrictionFailed(Exception):
    """Raised when a restriction could not be applied."""


def main(arguments: list[str]) -> int:
    """Run the probe or a confined command, as the arguments say, and return the exit code."""
    if arguments[:1] == ["probe"]:
        return probe()
    if arguments[:1] != ["run"] or "--" not in arguments[2:-1]:
        sys.stderr.write(
            "confine: say run CWD [--read PATH | --data PATH | --list PATH | --watch PATH]... "
            "-- COMMAND [ARGUMENT...], or probe\n"
        )
        return 2
    try:
        os.chdir(arguments[1])
        end = arguments.index("--", 2)
        pairs = list(zip(arguments[2:end:2], arguments[3:end:2], strict=True))
        reads = [(option, path) for option, path in pairs if option != "--watch"]
        return run(arguments[end + 1 :], reads, [path for option, path in pairs if option == "--watch"])
    except (RestrictionFailed, OSError) as problem:
        sys.stderr.write(f"confine: {problem}; the command was not run\n")
        return REFUSED


def run(
    command: list[str], reads: list[tuple[str, str]], watched: list[str] | None = None, judge: Judge | None = None
) -> int:
    """Apply all restrictions in a child, run the command there, kill its leftovers; return its exit code.

    ``reads`` are options and paths; an empty list leaves reading free. With ``watched`` each program is judged that the
    command starts, by ``judge`` or else by the lists of ``read_only``. A command that a signal ended has the code 128
    plus the signal's number.
    """
    version = landlock_version()
    if version < 1:
        raise RestrictionFailed("this kernel has no Landlock")
    close_descriptors()
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channels = load_watch().socketpair() if watched else None
    parent = os.getpid()
    child = os.fork()
    if child:
        if channels:
            variables = safe_environment(dict(os.environ))
            load_watch().watch_programs(channels, child, command, variables, watched or [], own_git(), judge)
        bound(child)
        code = wait_for(child)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sweep()
        return code
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(REFUSED)
    try:
        limit_resources(is_counted_apart=enter_namespaces())
        environment = safe_environment(dict(os.environ)) | ({"BASH_ENV": BASH_LIMITS} if watched else {})
        command = [*own_git(), *command[1:]] if command[0] == "git" else command
        program = found_program(command[0], os.get_exec_path(environment))
        apply_restrictions(version, reads, channels)
        os.execve(program, command, environment)
    except FileNotFoundError:
        sys.stderr.write(f"confine: {command[0]}: not found\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND)
    except (RestrictionFailed, OSError) as problem:
        sys.stderr.write(f"confine: {problem}; the command was not run\n")
        sys.stderr.flush()
        os._exit(REFUSED)


def found_program(name: str, folders: list[str]) -> str:
    """Return the path of a program in a search path, or its name if there is none."""
    paths = (os.path.join(folder, name) for folder in folders)
    return name if "/" in name else next((path for path in paths if os.access(path, os.X_OK)), name)


def load_watch():
    """Return the module that judges programs; most commands start without it."""
    if TYPE_CHECKING:
        from . import program_watch
    else:
        import program_watch
    return program_watch


def apply_restrictions(
    version: int,
    reads: list[tuple[str, str]],
    channels: tuple[socket.socket, socket.socket] | None = None,
) -> None:
    """Forbid writes, network access and effects on other processes, for this process and its children.

    ``version`` is the kernel's Landlock version; ``reads`` are the only places to read from, if there are any. With
    ``channels`` the launcher judges each program from now on.
    """
    drop_capabilities()
    check(call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    restrict_files(version, reads)
    if channels:
        load_watch().listen(channels, os.uname().machine)
    forbid_calls(version)


def probe() -> int:
    """Try namespaces and seccomp in child processes; print results, Landlock's version and limits as JSON; return 0."""
    version = landlock_version()
    results: dict[str, bool] = {}
    attempts = (("namespaces", enter_namespaces), ("seccomp", can_filter), ("watch", can_watch))
    for name, attempt in attempts:
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if attempt() else 1)
            except BaseException:
                os._exit(1)
        results[name] = os.waitpid(child, 0)[1] == 0
    words = ", ".join(f'"{name}": {str(found).lower()}' for name, found in results.items())
    limits = f'"memory_gib": {MAX_MEMORY >> 30}, "processes": {MAX_PROCESSES}'
    print(f'{{"landlock": {max(version, 0)}, {words}, {limits}}}')
    return 0


def can_filter() -> bool:
    """Install the seccomp filter in this process and return whether a forbidden call then fails."""
    check(call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    forbid_calls(0)
    return call("socket", 2, 1, 0) < 0


def can_watch() -> bool:
    """Run a program that is judged, and return whether it starts and one that is not on the list does not."""
    line = "sleep 0 && ! $BASH -c : 2>/dev/null"
    return run(["bash", "-c", line], [], ["/proc"], lambda argv: "" if argv == ["sleep", "0"] else "a test") == 0


def wait_for(child: int) -> int:
    """Wait for one child, reap all others, and return its exit code; a signal gives 128 plus its number.

    Signals that ask this process to end kill the child from now on.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda received, _frame: kill(child))
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def bound(child: int) -> None:
    """From now on, kill the command if its processes are too many, or have too much memory together."""

    def look(received: object, frame: object) -> None:
        count, memory, waiting = 0, 0, children_of("self")
        while waiting:
            process = waiting.pop()
            waiting += children_of(process)
            try:
                count += len(os.listdir(f"/proc/{process}/task"))
                with open(f"/proc/{process}/statm") as file:
                    resident, shared = map(int, file.read().split()[1:3])
            except OSError:
                continue
            memory += (resident - shared) * resource.getpagesize()
        if count > MAX_PROCESSES or memory > MAX_MEMORY:
            os.write(2, f"confine: the command has {count} processes with {memory >> 20} MiB, and was ended\n".encode())
            kill(child)
        signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS)  # once: a look that takes long must not interrupt itself

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS)


def kill(process: int) -> None:
    """Kill a process if it still is there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def children_of(process: str) -> list[str]:
    """Return the ids of the living children of a process, none if it has ended."""
    found: list[str] = []
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/children") as file:
                found += file.read().split()
    except OSError:
        return found
    return found


def sweep() -> None:
    """Kill and reap all child processes until none is left; orphans of the command have become children."""
    while True:
        for child in children_of("self"):
            kill(int(child))
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


def enter_namespaces(kinds: int = NEW_NAMESPACES) -> bool:
    """Enter a new user namespace and those of ``kinds``; return False if the kernel refuses them.

    Raise ``RestrictionFailed`` if the new namespace cannot be set up.
    """
    user, group = os.getuid(), os.getgid()
    if call("unshare", kinds) != 0:
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as problem:
        raise RestrictionFailed(f"a namespace could not be set up ({problem})") from problem
    return True


def limit_resources(*, is_counted_apart: bool) -> None:
    """Set the limits of ``LIMITS`` and ``MAX_PROCESSES``; a lower limit of the caller stays."""
    others = 0 if is_counted_apart else threads_of(os.getuid())
    for kind, wanted in {**LIMITS, resource.RLIMIT_NPROC: others + MAX_PROCESSES}.items():
        hard = resource.getrlimit(kind)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (limit, limit))


def threads_of(user: int) -> int:
    """Return how many threads a user's processes have."""
    found = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                found += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return found


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


def restrict_files(version: int, reads: list[tuple[str, str]]) -> None:
    """Forbid writing any file but /dev/null, and reading and executing outside ``reads`` if there are any.

    Landlock 4 also forbids TCP, 6 signals and abstract sockets.
    """
    writes = WRITES[min(version, 5)] & ~READS
    rules = Ruleset(writes | (READS if reads else 0), NETWORK if version >= 4 else 0, SCOPES if version >= 6 else 0)
    ruleset = new_ruleset(rules, version)
    allow_beneath(ruleset, os.devnull, (WRITE_FILE | TRUNCATE) & writes)
    for option, path in [*reads, *((("--read", place) for place in own_places()) if reads else ())]:
        allow_beneath(ruleset, path, ACCESS[option])
    apply_ruleset(ruleset)


def restrict_programs(programs: list[str]) -> bool:
    """Forbid this process and its children to execute any other program; return False without Landlock."""
    version = landlock_version() if sys.platform.startswith("linux") else 0
    if version < 1:
        return False
    check(call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    ruleset = new_ruleset(Ruleset(EXECUTE, 0, 0), version)
    for program in programs:
        allow_beneath(ruleset, program, EXECUTE)
    apply_ruleset(ruleset)
    return True


def new_ruleset(rules: Ruleset, version: int) -> int:
    """Create a Landlock ruleset and return its descriptor."""
    size = 8 if version < 4 else 16 if version < 6 else 24
    made = call(
        "syscall", ctypes.c_long(CREATE_RULESET), ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    check(0 if made >= 0 else -1, "Landlock")
    return made


def allow_beneath(ruleset: int, path: str, access: int) -> None:
    """Allow an access to a file or to everything in a directory; a path that is gone or now a link is left out."""
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    kind = os.fstat(place).st_mode
    if stat.S_ISLNK(kind):
        access = 0
    elif access & READ_DIR and not stat.S_ISDIR(kind):
        access &= ~READ_DIR
    rule = Beneath(access, place)
    added = call("syscall", ctypes.c_long(ADD_RULE), ruleset, ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
    check(added if access else 0, f"Landlock's rule for {path}")
    os.close(place)


def own_places() -> tuple[str, ...]:
    """Return the files that ``git_program.py`` needs: itself, the interpreter and its library."""
    folder = os.path.dirname(os.path.dirname(sys.executable))
    places = (HERE, os.path.join(sys.base_prefix, "lib"), sys.executable, os.path.join(folder, "pyvenv.cfg"))
    return tuple(map(os.path.realpath, places))


def apply_ruleset(ruleset: int) -> None:
    """Restrict this process by a ruleset, and close it."""
    check(call("syscall", ctypes.c_long(RESTRICT_SELF), ruleset, ctypes.c_uint32(0)), "Landlock")
    os.close(ruleset)


def forbid_calls(version: int) -> None:
    """Install a seccomp filter: every operation of ``call_filter.py`` fails that this Landlock version leaves out."""
    try:
        program = call_filter(os.uname().machine if struct.calcsize("P") == 8 else "32 bits", version)
    except KeyError as processor:
        raise RestrictionFailed(f"no filter is known for the processor {processor}") from None
    filters = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(filters))
    check(call("prctl", PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0), "the filter of system calls")


def safe_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of ``KEPT``, with safe settings for git, and ``git`` as a function for bash."""
    kept = {name: text for name, text in environment.items() if name in KEPT or name.startswith("LC_")}
    kept.update(PATH=absolute_path(kept.get("PATH", os.defpath)), PAGER="cat", TERM="dumb", PYTHONSAFEPATH="1")
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in own_git())
    return kept | git_environment(GIT_SETTINGS) | {"BASH_FUNC_git%%": f'() {{  {words} "$@"\n}}'}


def own_git() -> list[str]:
    """Return the command that runs git with the programs of a repository switched off."""
    return [sys.executable, "-I", "-S", GIT_PROGRAM]


def absolute_path(path: str, without: str = "") -> str:
    """Return a search path without relative directories, and without those beneath a directory."""
    parts = [part for part in path.split(os.pathsep) if part.startswith("/")]
    if without:
        roots = [root.rstrip("/") + "/" for root in (os.path.normpath(without), os.path.realpath(without))]
        names = {part: (os.path.normpath(part) + "/", os.path.realpath(part) + "/") for part in parts}
        parts = [part for part in parts if not any(name.startswith(root) for name in names[part] for root in roots)]
    return os.pathsep.join(parts)


def git_environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the variables that give git these settings, no network, no pager and no editor."""
    found = {**GIT_VARIABLES, "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        found[f"GIT_CONFIG_KEY_{number}"], found[f"GIT_CONFIG_VALUE_{number}"] = name, value
    return found


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
