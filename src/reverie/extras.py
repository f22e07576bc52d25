"""Optional parts of the package, and the command that installs one where Reverie is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "reverie"
"""The name of the distribution, which an index may force to differ from that of the command."""


@contextmanager
def needing(extra: str, problem: str, error: Callable[[str], Exception]) -> Generator[None]:
    """Raise an error with the problem, and the command that installs an extra, for a failed import of the block."""
    try:
        yield
    except ImportError as missing:
        raise error(f"{problem}: {install_command(extra)}") from missing


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this environment, as pip, pipx or uv made it."""
    from shlex import quote  # hooks load this module, and few others

    prefix = Path(sys.prefix)
    wanted = f"'{NAME}[{extra}]'"
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {quote(_with_known_extras(prefix / 'uv-receipt.toml', extra))}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx runpip {quote(prefix.name)} install {wanted}"
    if prefix.parent.name.startswith("archive-v"):  # the cache of uv, from which uvx runs a program
        return f"uvx --from {wanted} reverie"
    python = quote(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"


def _with_known_extras(receipt: Path, extra: str) -> str:
    """Return the requirement of a uv tool with one more extra, because a new installation replaces the old one."""
    import tomllib

    try:
        rows: list[dict[str, Any]] = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    except (OSError, ValueError, KeyError):
        rows = []
    row = next((row for row in rows if row.get("name") == NAME), dict[str, Any]())
    place = next((row[key] for key in ("path", "directory", "editable") if key in row), NAME)
    return f"{place}[{','.join(sorted({*row.get('extras', []), extra}))}]"
