"""Make an environment for each peer, because their requirements conflict, and run a peer in it.

A peer runs without a network if the system allows it (``unshare``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

__all__ = ["PEERS", "is_ready", "is_sealed", "run", "set_up"]

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
HOME = Path(platformdirs.user_cache_dir("reverie")) / "benchmark-peers"
PEERS = {
    "langchain": "LangChain SummarizationMiddleware",
    "deepagents": "deepagents",
    "openhands": "OpenHands condenser",
}


def _python(peer: str) -> Path:
    return HOME / peer / "bin" / "python"


def is_ready(peer: str) -> bool:
    """Say whether a peer has been set up."""
    return (HOME / peer / "ready").exists()


def set_up(peer: str, python: str) -> str | None:
    """Make a peer's environment from its group in pyproject.toml; return the error, if any."""
    folder = HOME / peer
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([python, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        return made.stderr.strip()
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    command = [str(_python(peer)), "-m", "pip", "install", "--quiet", str(REPOSITORY), *groups[f"bench-{peer}"]]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        return installed.stderr.strip()[-800:]
    found = subprocess.run([str(_python(peer)), "-c", f"import {peer}"], capture_output=True, text=True, check=False)
    if found.returncode:  # a package that needs a newer Python is not installed
        return f"{peer} is not available for {python}; pass a newer Python by --python"
    (folder / "ready").touch()
    return None


def is_sealed() -> bool:
    """Say whether processes can run without a network here."""
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0


def run(peer: str, conversation: dict[str, Any], *, sealed: bool) -> dict[str, Any]:
    """Let a peer play a conversation and return its report."""
    with tempfile.TemporaryDirectory() as folder:
        given, wanted = Path(folder) / "conversation.json", Path(folder) / "played.json"
        given.write_text(json.dumps(conversation), encoding="utf-8")
        command = [str(_python(peer)), str(HERE / f"{peer}_peer.py"), str(given), str(wanted)]
        done = subprocess.run(
            ["unshare", "-rn", *command] if sealed else command, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{PEERS[peer]} failed: {done.stderr.strip()[-800:]}")
        return json.loads(wanted.read_text(encoding="utf-8"))
