"""Keep the sessions of other agents: a session that grew is extended, and one that its agent deleted stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLE = Path(__file__).parent / "sessions" / "sample.jsonl"


def keep(home: str) -> dict[str, object]:
    """Run ``reverie keep`` for the user with this home directory and return its counts."""
    command = [sys.executable, "-m", "reverie.cli.start", "keep", "--json"]
    done = subprocess.run(command, env={**os.environ, "HOME": home}, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    return {name: report[name] for name in ("kept", "added", "grown", "gone")}


with tempfile.TemporaryDirectory() as folder:
    os.environ["REVERIE_HOME"] = f"{folder}/library"
    session = Path(folder, ".claude", "projects", "-home-mara-tidetable", SAMPLE.name)
    session.parent.mkdir(parents=True)
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    session.write_bytes(b"".join(lines[: len(lines) // 2]))
    print("first", keep(folder))
    session.write_bytes(b"".join(lines))
    print("grown", keep(folder))
    session.unlink()
    print("deleted", keep(folder))
