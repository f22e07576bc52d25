"""Glob: find files by a pattern for their paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import anyio.from_thread

from ..errors import InputError
from ..paths import closed_after
from ..text.globs import literal_prefix, path_regex
from .context import ToolContext
from .files.ignore_rules import parse_ignore_rules
from .files.readable import read_scope
from .files.search_root import label_of, rules_above
from .files.tree_walk import walk
from .files.workspace import access_to, open_folder
from .read import path_output
from .tool import Access, NoPreview, Output, object_schema

MAX_FOUND: Final = 1_000
_INPUT: Final = object_schema(
    ("pattern",),
    pattern={"type": "string", "minLength": 1, "description": "Such as **/*.py or src/**/*.{ts,tsx}"},
    path={"type": "string", "description": "Directory to start from; the working directory if left out"},
)


class Glob(NoPreview):
    """The tool Glob: finds files whose path matches a pattern, newest first."""

    name = "Glob"
    description = (
        "Find files by name, newest first. '*' and '?' stay within a name, '**' matches any directories, {a,b} is "
        "a choice: '*.py' is only the top directory, '**/*.py' all of them. Hidden files are found only where the "
        "pattern names them ('.github/**'), files that .gitignore names only where it names their directory; symbolic "
        "links are not followed."
    )
    beside: Mapping[str, str] = {"Grep": "To search in files use Grep."}
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return read access to the directory where the search starts."""
        return access_to("read", _start(input)[0], context)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the matching paths, one per line, at most ``MAX_FOUND``; an error output if the search fails."""
        return await path_output(lambda: Output(_glob(input, context)), _start(input)[0], context)


def _start(input: Mapping[str, Any]) -> tuple[str, str]:
    """Return the directory to start from and the part of the pattern that applies beneath that directory."""
    pattern, path = str(input.get("pattern", "")), str(input.get("path") or ".")
    head, rest = literal_prefix(pattern)
    if pattern.startswith("~/") or pattern.startswith("/"):
        return head, rest
    return (os.path.join(path, head) if head else path), rest


def _glob(input: Mapping[str, Any], context: ToolContext) -> str:
    start, pattern = _start(input)
    if ".." in pattern.split("/"):
        raise InputError("'..' cannot follow a wildcard; name the directory in path")
    wanted = path_regex(pattern)
    hidden = any(part.startswith(".") for part in pattern.replace("{", "/").replace(",", "/").split("/"))
    found: list[tuple[int, str]] = []
    scope = read_scope(context)
    with open_folder(start, context) as (folder, target):
        label = label_of(target, context)
        rules = rules_above(target, context)
        above = [parse_ignore_rules(text, prefix=prefix) for prefix, text in rules or ()]
        with closed_after(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)) as readable:
            files = walk(
                readable,
                hidden=hidden,
                ignore=rules is not None,
                above=above,
                between=anyio.from_thread.check_cancelled,
            )
            for walked in files:
                if wanted.fullmatch(walked.path) and not scope.is_hidden(os.path.join(target, walked.path), target):
                    changed = os.stat(walked.name, dir_fd=walked.folder, follow_symlinks=False).st_mtime_ns
                    found.append((-changed, os.path.join(label, walked.path)))
    found.sort()
    if not found:
        return f"No files match {input['pattern']} under {target}."
    shown = "\n".join(path for _, path in found[:MAX_FOUND])
    more = len(found) - MAX_FOUND
    return shown if more <= 0 else f"{shown}\n[{more:,} older ones are left out: narrow the pattern or give a path]"
