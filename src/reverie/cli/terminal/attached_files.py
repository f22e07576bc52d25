"""Files that a prompt names with ``@``, whose content is attached before the prompt, and pasted images."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from ...runtime.agent.agent import Agent

_MOST_FILES: Final = 20
_NAMED: Final = re.compile(r"(?:^|(?<=\s))@((?:\\.|\S)+)")
_END: Final = ".,;:!?)]}\"'"
_FILE: Final = re.compile(r"(?:~?/|\.{1,2}/)?[\w./-]*\w(\.\w+)")
_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_CLIPBOARDS: Final = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_PNG: Final = b"\x89PNG\r\n\x1a\n"


def named_files(prompt: str, cwd: Path) -> list[str]:
    """Return the existing files that a prompt names, each once; other words with ``@`` are words."""
    found: dict[str, None] = {}
    for name in _NAMED.findall(prompt):
        plain = re.sub(r"\\(.)", r"\1", name)
        for path in dict.fromkeys((plain, plain.rstrip(_END))):
            if path and os.path.isfile(os.path.join(cwd, os.path.expanduser(path))):
                found[path] = None
                break
    return list(found)[:_MOST_FILES]


def missing_files(prompt: str, cwd: Path) -> list[str]:
    """Return the words with ``@`` that name a file by its ending, and no file or folder that exists.

    The ending is one that Python knows or that another file of the folder has; else the word may be a decorator, a
    person or a package.
    """
    from mimetypes import MimeTypes

    words = dict.fromkeys(name.rstrip(_END) for name in _NAMED.findall(prompt))
    endings = {name: found.group(1) for name in words if (found := _FILE.fullmatch(name))}
    gone = [name for name in endings if not os.path.exists(os.path.join(cwd, os.path.expanduser(name)))]
    known = MimeTypes().types_map[True].keys() | {Path(name).suffix for name in (os.listdir(cwd) if gone else ())}
    return [name for name in gone if endings[name] in known][:_MOST_FILES]


async def attach_files(agent: Agent, prompt: str, note: Callable[[str, bool], None]) -> None:
    """Attach the files that a prompt names; report each, also a missing one, by a line, and whether it is a problem."""
    for path in named_files(prompt, agent.cwd):
        problem = await agent.attach_file(path)
        note(f"{path} was not attached: {problem}" if problem else f"attached {path}", bool(problem))
    for path in missing_files(prompt, agent.cwd):
        note(f"{path} does not exist", True)


def attachment(path: str) -> str:
    """Return the word that names a file in a prompt."""
    return "@" + re.sub(r"(\s|\\)", r"\\\1", path)


def image_path(text: str) -> str:
    """Return the word that attaches the image whose path a text is, as terminals paste a dropped file; else ''."""
    try:
        [path] = shlex.split(text.strip()) if "\n" not in text.strip() else []
    except ValueError:
        return ""
    path = unquote(path.removeprefix("file://")) if path.startswith("file://") else os.path.expanduser(path)
    is_image = path.lower().endswith(_IMAGES) and os.path.isabs(path) and os.path.isfile(path)
    return f"{attachment(path)} " if is_image else ""


def pasted_image(folder: Path) -> Path | None:
    """Write the image in the clipboard into a new file of a folder, and return its path; None if there is none."""
    for command in _CLIPBOARDS:
        try:
            data = subprocess.run(command, capture_output=True, timeout=5, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if data.startswith(_PNG):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = folder / f"image-{len(list(folder.iterdir())) + 1}.png"
            path.write_bytes(data)
            return path
    return None
