"""The recording that ``reverie demo`` plays: the log of an invented session, with prompt and tools in its metadata.

Write it again after a change of the generator: python tests/support/coding_session/demo_file.py
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from coding_session import SYSTEM, TOOLS, coding_session
from reverie.conversation.entries import encode_entry
from reverie.values import replace

FILE = Path(__file__).parents[3] / "src" / "reverie" / "cli" / "costs" / "demo_session.jsonl.gz"


def demo_log() -> bytes:
    """Return the lines of the demo's session."""
    first, *rest = coding_session()
    first = replace(first, body={**first.body, "system": SYSTEM, "tools": TOOLS})
    return b"".join(encode_entry(entry) + b"\n" for entry in (first, *rest))


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(demo_log(), 9, mtime=0))
