"""A separate program that hides files from a command that may otherwise do everything its user may.

    python -I -S hide_files.py PATH... -- COMMAND [ARGUMENT...]
    python -I -S hide_files.py probe

In a mount namespace of the command, each file is covered by a device that cannot be opened, and each directory by an
empty one. Files that the command makes are not affected, as they would be by Landlock, which can only allow. A user
other than root needs a user namespace for that, in which programs that change the user (sudo) do not work.

It runs without the package. If a file cannot be hidden it exits with code 126 before the command starts.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import confine
else:  # this program runs without the package
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    import confine

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS, REMOUNT, BIND, RECURSIVE, SLAVE = (
    1, 2, 4, 8, 1 << 5, 1 << 12, 1 << 14, 1 << 19
)  # fmt: skip
CLOSED = READ_ONLY | NO_SETUID | NO_DEVICES | NO_PROGRAMS
# Rights of Landlock that every place gets: nothing is forbidden but mounting and the files of other processes.
MAKE_BLOCK, REFER = 1 << 11, 1 << 13
SSH_SETTINGS = "/etc/ssh/ssh_config.d"


def main(arguments: list[str]) -> int:
    """Try whether files can be hidden here, or hide some and become the command; return the exit code."""
    try:
        if arguments == ["probe"]:
            own_mounts()
            return 0
        end = arguments.index("--")
        own_mounts()
        for path in arguments[:end]:
            cover(path)
        if os.geteuid() == 0:
            keep_covers()
        command = arguments[end + 1 :]
        os.execvp(command[0], command)
    except (confine.RestrictionFailed, OSError) as problem:
        sys.stderr.write(f"files that a rule denies cannot be hidden: {problem}; the command was not run\n")
        return confine.REFUSED


def own_mounts() -> None:
    """Give this process a list of mounts of its own, which follows the system's."""
    if confine.call("unshare", NEW_MOUNTS) != 0:
        if not confine.enter_namespaces(NEW_USER | NEW_MOUNTS):
            raise confine.RestrictionFailed("this system allows no mount namespace")
        mount("none", "/", RECURSIVE | SLAVE)
        own_ssh_settings()
    else:
        mount("none", "/", RECURSIVE | SLAVE)


def mount(source: str, target: str, flags: int, kind: str = "none", options: str = "") -> None:
    """Mount, or raise ``RestrictionFailed``."""
    words = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind, options)]
    confine.check(confine.call("mount", words[0], words[1], words[2], flags, words[3]), f"covering {target}")


def cover(path: str) -> None:
    """Cover a file by a device that cannot be opened, or a directory by an empty one; leave out others."""
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(kind):
        mount(os.devnull, path, BIND)
        mount("none", path, REMOUNT | BIND | CLOSED)
    elif stat.S_ISDIR(kind):
        mount("tmpfs", path, CLOSED, "tmpfs", "size=4k,mode=000")


def keep_covers() -> None:
    """Forbid to take the covers away and to look past them at another process's files (Landlock 2 or later)."""
    version = confine.landlock_version()
    if version < 2:
        return
    ruleset = confine.new_ruleset(confine.Ruleset(MAKE_BLOCK | REFER, 0, 0), version)
    confine.allow_beneath(ruleset, "/", MAKE_BLOCK | REFER)
    confine.apply_ruleset(ruleset)


def own_ssh_settings() -> None:
    """Replace the system's files that ssh includes by copies, because ssh reads none whose owner is unknown here."""
    texts: dict[str, bytes] = {}
    try:
        for entry in os.scandir(SSH_SETTINGS):
            with open(entry.path, "rb") as file:
                texts[entry.path] = file.read()
    except OSError:
        return
    if texts:
        mount("tmpfs", SSH_SETTINGS, NO_SETUID | NO_DEVICES, "tmpfs", "size=1m,mode=755")
    for path, text in texts.items():
        with open(path, "wb") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
