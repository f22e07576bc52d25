"""Files that programs run or agents obey: writing them asks, because they control later commands and instructions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from ...tools.shell.read_only.options import words_of

# Hidden files and folders hold settings, hooks and instructions of programs; only these are known to hold neither.
_HARMLESS: Final = words_of(
    ".gitignore .gitattributes .gitkeep .keep .dockerignore .editorconfig .npmignore .prettierignore .eslintignore "
    ".nojekyll .env.example .env.sample .env.template .python-version .nvmrc .node-version .ruby-version"
)
_OBEYED: Final = re.compile(
    # instructions, tools and servers of agents
    r"(?:agents?|claude|gemini|codex|qwen|crush|warp|skill|copilot-instructions)(?:[.-].*)?\.mdc?"
    r"|(?:opencode|crush)\.jsonc?"
    # programs that a prompt, an editor or a commit starts
    r"|(?:mise|rtx|devbox|flake|lefthook|devcontainer|pre-commit-config)(?:[.-].*)?\.(?:toml|json|nix|ya?ml)"
    r"|(?:shell|default|devenv)\.nix|.*\.code-workspace"
    # a folder with this file and a configuration is a repository for git
    r"|head"
    # jobs that run with the keys of a service as soon as they are pushed
    r"|jenkinsfile|(?:azure|bitbucket)-pipelines\.ya?ml"
)
_SHORT_GIT: Final = re.compile(r"git~[0-9]")
"""The name of ``.git`` on file systems with short names."""


_MISE: Final = ["mise", "config.toml"]


def is_protected(path: str, roots: Sequence[str]) -> bool:
    """Return whether an absolute path is hidden below a root, or a file that agents obey or programs run unasked."""
    root = max((one for one in roots if path == one or path.startswith(one.rstrip("/") + "/")), key=len, default="/")
    # Letters of either case: on some file systems .GIT is .git.
    parts = os.path.relpath(path, root).casefold().split("/")
    return any(map(_is_hidden, parts)) or _OBEYED.fullmatch(parts[-1]) is not None or parts[-2:] == _MISE


def _is_hidden(part: str) -> bool:
    # Some file systems ignore letters that no screen shows.
    is_odd = not part.isprintable() or _SHORT_GIT.fullmatch(part) is not None
    return is_odd or (part.startswith(".") and part not in _HARMLESS)
