"""Memory alone: no session, no model, plain Markdown files, and every change can be undone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from reverie import Memory

with tempfile.TemporaryDirectory() as folder:
    memory = Memory.open(folder, home=Path(folder, "home"))
    saved = memory.save(
        "Use the real database in tests, never a mock.",
        type="feedback",
        why="a mock hid a broken migration in March",
        name="Real database in tests",
        description="Tests of the repository layer use the real database, not a mock",
    )
    print(Path(memory.path, saved.file).read_text())
    print([one.name for one in memory.list()], memory.index().shown.strip())
    memory.forget(saved.file, why="we moved to an in-memory database")
    print(len(memory.list()), "left")
    memory.undo()
    print(len(memory.list()), "after undo, by", memory.log()[0].who)
