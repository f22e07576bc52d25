"""Files without sentences: a dream and the figures leave them alone, report them, and spend no time on them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.dream.facts import oversized
from reverie.runtime.memory.memory import Memory
from reverie.runtime.reports.stats import pollution_of
from reverie.settings import Settings

_HEAD = b"---\nname: n\ndescription: Something about deploys\ntype: project\n---\n"


@pytest.mark.parametrize("body", [b"a" * 70_000, b"1-" * 3_000, b"[" * 5_000, b" " * 5_000, b"\n" * 300])
def test_what_could_keep_a_dream_busy_is_left_alone_and_put_to_review(body: bytes, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", memory_dir=tmp_path / "memory")
    memory = Memory(tmp_path / "memory")
    memory.save("The release train leaves on Tuesdays at noon", type="project", why="customers are told so")
    (tmp_path / "memory" / "odd.md").write_bytes(_HEAD + body)
    memory.reindex()

    report = anyio.run(lambda: Dreams(memory, settings, project=tmp_path).run())

    assert report.state == "completed"
    assert [one.files for one in report.questions if one.topic == "unreadable"] == [("odd.md",)]
    assert (tmp_path / "memory" / "odd.md").read_bytes() == _HEAD + body
    assert "odd.md" in (tmp_path / "memory" / "MEMORY.md").read_text()
    found = pollution_of(settings, now=datetime.now(UTC))
    assert found is not None
    assert found.memories == 2
    assert found.reasons.get("wrong", 0) >= 1


def test_an_ordinary_memory_is_dreamt_about() -> None:
    text = b"The pipeline of the billing service is broken, so it goes out by hand.\n\n**Why:** a release was lost.\n"
    assert oversized({"a.md": _HEAD + text * 100}) == {}
