"""Grep: search the text of files, or of a stored tool result."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from ..errors import InputError, StorageError
from ..paths import closed_after
from ..text.globs import path_regex
from .context import ToolContext
from .files.readable import is_beneath, read_scope
from .files.search_root import label_of, rules_above
from .files.stored_results import access_to_text, stored_result
from .files.workspace import open_folder, open_plain_file, resolved_path
from .read import not_found
from .tool import Access, NoPreview, Output, error_output

SECONDS: Final = 60.0
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "c": (".c", ".h"),
    "cpp": (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx", ".h"),
    "cs": (".cs",),
    "css": (".css", ".scss", ".sass", ".less"),
    "go": (".go",),
    "html": (".html", ".htm"),
    "java": (".java",),
    "js": (".js", ".jsx", ".mjs", ".cjs"),
    "json": (".json", ".jsonl"),
    "kotlin": (".kt", ".kts"),
    "md": (".md", ".markdown"),
    "php": (".php",),
    "py": (".py", ".pyi"),
    "ruby": (".rb",),
    "rust": (".rs",),
    "sh": (".sh", ".bash", ".zsh"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "ts": (".ts", ".tsx", ".mts", ".cts"),
    "txt": (".txt",),
    "xml": (".xml",),
    "yaml": (".yaml", ".yml"),
}
_MODES: Final = ("content", "files_with_matches", "count")
_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "minLength": 1, "description": "Regular expression (Python's)"},
        "path": {"type": "string", "description": "File, directory or handle to search; default: working directory"},
        "output_mode": {"enum": list(_MODES), "description": "files_with_matches if left out"},
        "glob": {"type": "string", "description": "Only files whose path matches, such as *.{ts,tsx} or !**/test_*"},
        "type": {"enum": sorted(TYPES), "description": "Only files of this kind"},
        "-i": {"type": "boolean", "description": "Ignore case"},
        "-n": {"type": "boolean", "description": "Line numbers in content; on unless false"},
        "-A": {"type": "integer", "minimum": 0, "description": "Lines after each match, in content"},
        "-B": {"type": "integer", "minimum": 0, "description": "Lines before each match, in content"},
        "-C": {"type": "integer", "minimum": 0, "description": "Lines around each match, in content"},
        "multiline": {"type": "boolean", "description": "Let a match stretch over lines; '.' matches newlines too"},
        "head_limit": {"type": "integer", "minimum": 1, "description": "Show only so many lines or files"},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}
_CHILD: Final = "import sys; sys.path.append(sys.argv[1]); from reverie.tools.files.search_program import main; main()"
_POSIX: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": r"\s",
    "upper": "A-Z",
    "lower": "a-z",
}


class Grep(NoPreview):
    """The tool Grep: searches the text of files, or of a stored tool result, by a regular expression."""

    name = "Grep"
    max_chars: float | None = 20_000.0
    description = (
        "Search the text of files with a regular expression. Returns the paths of files that match, or with "
        "output_mode content the lines (path:line:text), or with count how many lines; sorted by path. Narrow it "
        "down with path, glob or type. Hidden, binary and ignored files (.gitignore) are left out unless path "
        "names them or their directory; symbolic links are not followed. path may be the handle or path of an earlier "
        "result that was saved or cleared."
    )
    beside: Mapping[str, str] = {"Bash": "Use this rather than grep or rg in Bash."}
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return read access to the path; an access of kind ``none`` for a stored tool result."""
        return access_to_text(str(input.get("path") or "."), context)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Search in a separate process and return the matches; kill it at the time limit or on cancellation."""
        path = str(input.get("path") or ".")
        try:
            request = _request(input)
            stored = await anyio.to_thread.run_sync(stored_result, path, context)
            if stored is not None:
                request |= {"label": path, "text": stored.decode("utf-8", "replace")}
                return _output(await _search(request, ()), request)
            return _output(await _search_files(path, request, context), request)
        except (InputError, StorageError) as error:
            return error_output(error)
        except OSError as error:
            return error_output(not_found(path, error, context))


def find_ripgrep() -> str:
    """Return the path of the program ``rg``, next to this Python or on PATH; an empty text if there is none.

    A relative directory on PATH may be one of a repository, so it does not count.
    """
    beside = Path(sys.executable).with_name("rg")
    path = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("rg", path=path) or ""


def _request(input: Mapping[str, Any]) -> dict[str, Any]:
    around = int(input.get("-C") or 0)
    glob = str(input.get("glob") or "")
    if glob:
        path_regex(glob.lstrip("!"))
    return {
        "pattern": _pattern(str(input["pattern"])),
        "mode": input.get("output_mode") or "files_with_matches",
        "ignore_case": bool(input.get("-i")),
        "multiline": bool(input.get("multiline")),
        "numbers": input.get("-n") is not False,
        "before": int(input.get("-B") or around),
        "after": int(input.get("-A") or around),
        "head_limit": input.get("head_limit"),
        "globs": [glob] if glob else [],
        "endings": list(TYPES.get(str(input.get("type")), ())),
        "hidden": any(part.startswith(".") for part in glob.lstrip("!").split("/")),
        "ripgrep": find_ripgrep(),
        "text": None,
        "folder": "",
        "scope": ["/", "/", (), ()],
        "linked": True,
    }


def _pattern(pattern: str) -> str:
    """Return a pattern in Python's syntax (POSIX classes, named groups, ``\\z``); raise if it is not valid."""
    pattern = re.sub(r"\[:(\w+):\]", lambda found: _POSIX.get(found[1], found[0]), pattern)
    pattern = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern).replace(r"\z", r"\Z")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(
            f"{pattern!r} is no regular expression ({error}); put a backslash before ( ) [ ] {{ }} . * + ? | ^ $ that "
            "are meant as they are"
        ) from None
    return pattern


async def _search_files(path: str, request: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    target = resolved_path(path, context).target
    if target and _is_file(target):
        opened = await anyio.to_thread.run_sync(open_plain_file, path, context)
        with closed_after(opened.descriptor) as file:
            request |= {"descriptor": file, "is_folder": False, "label": label_of(opened.target, context)}
            return await _search(request, (file,))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with (
        open_folder(path, context) as (folder, target),
        closed_after(os.open(".", flags, dir_fd=folder)) as readable,
    ):
        rules = await anyio.to_thread.run_sync(rules_above, target, context)
        request |= {"descriptor": readable, "is_folder": True, "label": label_of(target, context)}
        request |= {"rules": rules or [], "ignore": rules is not None, "folder": target}
        scope = read_scope(context)
        request |= {"scope": [scope.cwd, scope.home, scope.roots, scope.denied]}
        request |= {"linked": is_beneath(target, context.granted)}
        return await _search(request, (readable,))


def _is_file(target: str) -> bool:
    with suppress(OSError):
        return not stat.S_ISDIR(os.lstat(target).st_mode)
    return False


async def _search(request: dict[str, Any], descriptors: tuple[int, ...]) -> dict[str, Any]:
    folder = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        start_new_session=True,
    )
    data = json.dumps(request).encode()
    # The thread ends with the process, and the process is always ended below.
    limiter = anyio.CapacityLimiter(1)
    try:
        with anyio.fail_after(SECONDS):
            out, err = await anyio.to_thread.run_sync(
                process.communicate, data, abandon_on_cancel=True, limiter=limiter
            )
    except TimeoutError:
        raise InputError(f"the search took more than {SECONDS:g} seconds; narrow it by path, glob or type") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        last = err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        raise InputError(f"the search failed ({last}); try a simpler pattern, or Bash")
    return json.loads(out)


def _output(answer: dict[str, Any], request: dict[str, Any]) -> Output:
    rows: list[str] = answer["rows"]
    notes: list[str] = []
    if answer["more"]:
        notes.append(f"[only the first {len(rows):,} are shown: narrow it down, or raise head_limit]")
    if answer["too_large"]:
        notes.append(f"[too large to search, use Bash: {', '.join(answer['too_large'][:5])}]")
    if answer["linked"]:
        first = ", ".join(answer["linked"][:5])
        notes.append(
            f"[not searched, {len(answer['linked']):,} with other names (hard links); name one in path: {first}]"
        )
    if not rows:
        notes.insert(0, f"No matches for {request['pattern']!r}.")
    return Output("\n".join([*rows, *notes]))
