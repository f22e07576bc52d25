"""A separate program that becomes git, with every program that a repository can name switched off.

    python -I -S git_program.py [-C DIRECTORY] COMMAND [ARGUMENT...]

Reverie calls git only by it (``tools/git.py``), and in the sandbox ``git`` is this program. It overrides the settings
that name programs, also those whose keys contain a name of the repository's choice. It forbids git to execute anything
but git, where the kernel has Landlock. It refuses a repository that is not where it seems to be: a bare one inside a
working tree, or one whose objects or files are elsewhere.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .confine import GIT_SETTINGS, absolute_path, git_environment, restrict_programs
else:  # this program runs without the package
    sys.path.append(HERE)
    from confine import GIT_SETTINGS, absolute_path, git_environment, restrict_programs

FAILED, NOT_FOUND, USAGE = 128, 127, 129
IDENTITY = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
FLAGS = ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--version")
# Commands that show differences, which drivers of the repository would convert or show.
WITHOUT_DRIVERS = {
    **dict.fromkeys(
        ("diff", "diff-tree", "diff-index", "log", "range-diff", "show", "whatchanged"),
        ("--no-ext-diff", "--no-textconv"),
    ),
    "stash": ("--no-ext-diff", "--no-textconv"), "reflog": ("--no-ext-diff", "--no-textconv"),
    "blame": ("--no-textconv",),
}  # fmt: skip
# Keys that name a file whose lines git may show.
FILE_KEYS = ("core.attributesfile", "core.excludesfile", "mailmap.file", "diff.orderfile")


class GitRefusal(Exception):
    """Raised when git is not run."""


def main(arguments: list[str]) -> int:
    """Become git with these arguments; return an exit code if git was not run."""
    try:
        run(arguments)
    except GitRefusal as problem:
        sys.stderr.write(f"git was not run: {problem}\n")
    except OSError as problem:
        sys.stderr.write(f"git cannot be run: {problem.strerror}\n")
        return NOT_FOUND
    return FAILED


def run(arguments: list[str]) -> None:
    """Go to the directory that the arguments name, check the repository there, and become git."""
    flags, words = leading_options(arguments)
    top = top_of(os.getcwd())
    path = absolute_path(os.environ.get("PATH", os.defpath), without=top)
    git = next((one for part in path.split(os.pathsep) if os.access(one := os.path.join(part, "git"), os.X_OK)), "")
    if not git:
        raise FileNotFoundError(2, "git is not installed here")
    program = os.path.realpath(git)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in IDENTITY}
    plain |= {"PATH": path, "PAGER": "cat"}
    found = configuration(git, plain | git_environment(GIT_SETTINGS)) if top else []
    check_place(top, found)
    settings = GIT_SETTINGS | overrides(top, found)
    words = with_options(words, top, found)
    loader = loader_of(program)
    if loader is not None and restrict_programs([program, *map(os.path.realpath, loader)]):
        plain["GIT_EXEC_PATH"] = os.path.dirname(program)  # git starts git from there
    elif words[:1] in (["status"], ["diff"], ["diff-index"], ["diff-files"]):
        # git would start another git in each submodule, without these settings.
        words.insert(words.index("--") if "--" in words else len(words), "--ignore-submodules=dirty")
    # git before 2.31 knows only the options; a key with "=" works only in the environment.
    options = [part for key, value in settings.items() if "=" not in key for part in ("-c", f"{key}={value}")]
    os.execve(git, ["git", *options, *flags, *words], plain | git_environment(settings))


def leading_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the options before the command, and the command with its arguments; go to the directory of -C."""
    flags, rest = list[str](), list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-C" and rest:
            enter(rest.pop(0) or ".")
        elif option in FLAGS:
            flags.append(option)
        else:
            raise GitRefusal(f"the option {option} before the command is not on the list")
    return flags, rest


def enter(directory: str) -> None:
    """Go to a directory; raise ``GitRefusal`` if that is not possible."""
    try:
        os.chdir(directory)
    except OSError as problem:
        raise GitRefusal(f"cannot change to {directory}: {problem.strerror}") from None


def top_of(directory: str) -> str:
    """Return the nearest directory from here upwards that has a ``.git``; '' if there is none.

    Raise ``GitRefusal`` if a bare repository is nearer: it may be part of a download, with its configuration.
    """
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            return directory
        if os.path.basename(directory) == ".git":
            return os.path.dirname(directory)
        if all(os.path.exists(os.path.join(directory, name)) for name in ("HEAD", "objects", "refs")):
            raise GitRefusal(f"{directory} is a bare repository, whose configuration anyone may have written")
        if directory == os.path.dirname(directory):
            return ""
        directory = os.path.dirname(directory)


def configuration(git: str, environment: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return the scope, key and value of every setting that git reads here; reading them runs no program."""
    code, text = listing([git, "config", "--list", "-z", "--show-scope"], environment)
    if code == USAGE:  # git before 2.26 knows no scopes: every setting may be the repository's
        code, text = listing([git, "config", "--list", "-z"], environment)
        text = "".join(f"local\0{item}\0" for item in text.split("\0")[:-1])
    if code:
        raise GitRefusal("its configuration cannot be read; see git config --list")
    parts = text.split("\0")
    pairs = (item.partition("\n") for item in parts[1::2])
    return [(scope, key, value) for scope, (key, _, value) in zip(parts[::2], pairs, strict=False)]


def listing(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command and return its exit code and output."""
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, os.fsdecode(done.stdout)


def check_place(top: str, found: list[tuple[str, str, str]]) -> None:
    """Raise ``GitRefusal`` if the repository's objects or working tree are elsewhere without a link back to here."""
    marker = os.path.join(top, ".git")
    folder = os.path.realpath(marker)
    if not top:
        return
    if os.path.isfile(folder):
        text = beginning_of(folder)
        folder = os.path.realpath(os.path.join(os.path.dirname(folder), text.removeprefix("gitdir:").strip()))
    tree = next((value for scope, key, value in reversed(found) if key == "core.worktree" and is_own(scope)), "")
    tree = os.path.realpath(os.path.join(folder, tree)) if tree else ""
    if tree and tree != os.path.realpath(top):
        raise GitRefusal("its configuration names another directory as the working tree (core.worktree)")
    is_here = folder == os.path.join(os.path.realpath(top), ".git")
    back = beginning_of(os.path.join(folder, "gitdir")).strip()
    is_known = bool(back) and os.path.realpath(os.path.join(folder, back)) == os.path.realpath(marker)
    if not (is_here or is_known or tree):
        raise GitRefusal(f"its .git leads to {folder}, which does not lead back")
    shared = beginning_of(os.path.join(folder, "commondir")).strip()
    if shared and os.path.realpath(os.path.join(folder, shared)) != os.path.dirname(os.path.dirname(folder)):
        raise GitRefusal("its objects are those of another repository (commondir)")


def is_own(scope: str) -> bool:
    """Return whether settings of a scope come from the repository and not from the user or the system."""
    return scope in ("local", "worktree")


def overrides(top: str, found: list[tuple[str, str, str]]) -> dict[str, str]:
    """Return settings that switch off the programs and hooks that the configuration names, and files outside.

    Drivers of differences too, which most commands ignore by an option: git starts a driver without a shell, so it
    could name the loader of programs, which is executable and runs each file that can be read.
    """
    wanted: dict[str, str] = {}
    for scope, key, value in found:
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        if section == "filter" and variable in ("clean", "smudge", "process"):
            wanted |= {key: "", f"filter.{name}.required": "false"}
        elif section == "diff" and variable in ("textconv", "command"):
            wanted[key] = ""
        elif section == "hook" and name:
            wanted |= {f"hook.{name}.enabled": "false", f"hook.{name}.command": "true"}
        elif key in FILE_KEYS and is_own(scope) and not is_inside(value, top):
            wanted[key] = ""
    return wanted


def is_inside(path: str, top: str) -> bool:
    """Return whether a path that a setting names is in the repository, after links."""
    return os.path.realpath(os.path.join(top, os.path.expanduser(path))).startswith(os.path.realpath(top) + os.sep)


def with_options(words: list[str], top: str, found: list[tuple[str, str, str]]) -> list[str]:
    """Return a command with options that make it ignore drivers, and files that the repository's settings include."""
    name, rest = words[0] if words else "", words[1:]
    if name == "config" and any(is_own(scope) and key.startswith("include") for scope, key, _ in found):
        return [name, "--no-includes", *rest]
    named = [value for scope, key, value in found if is_own(scope) and key == "blame.ignorerevsfile"]
    if name == "blame" and not all(is_inside(value, top) for value in named):
        raise GitRefusal("its configuration names a file outside (blame.ignoreRevsFile)")
    options = WITHOUT_DRIVERS.get(name, ())
    if name == "reflog":
        rest = rest if rest[:1] == ["show"] else ["show", *rest]
    if name in ("reflog", "stash"):
        return [name, *rest[:1], *options, *rest[1:]]
    return [name, *options, *rest] if name else []


def loader_of(program: str) -> list[str] | None:
    """Return the loader that an ELF program names, as a list of at most one; None if it is no program of 64 bits."""
    with open(program, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return None
        start, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        for number in range(count):
            file.seek(start + number * size)
            kind, offset, length = struct.unpack("<I4xQ16xQ", file.read(40))
            if kind == 3:
                file.seek(offset)
                return [os.fsdecode(file.read(length).rstrip(b"\0"))]
    return []


def beginning_of(path: str) -> str:
    """Return the first characters of a small file, or ''."""
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read(8_192)
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
