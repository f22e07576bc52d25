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
    r"(?:agents|claude|gemini|codex|qwen|crush|warp|skill|copilot-instructions)(?:[.-].*)?\.mdc?"
    r"|(?:mise|rtx|devbox|flake|lefthook|devcontainer|pre-commit-config)(?:\..*)?\.(?:toml|json|nix|ya?ml)"
)


def is_protected(path: str, roots: Sequence[str]) -> bool:
    """Return whether an absolute path is hidden below a root, or a file that agents obey or programs run unasked."""
    root = max((one for one in roots if path == one or path.startswith(one.rstrip("/") + "/")), key=len, default="/")
    # Letters of either case: on some file systems .GIT is .git.
    parts = os.path.relpath(path, root).casefold().split("/")
    hidden = any(part.startswith(".") and part not in _HARMLESS for part in parts)
    return hidden or _OBEYED.fullmatch(parts[-1]) is not None
