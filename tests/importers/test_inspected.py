"""The inspector opens the file of every known program directly, and nothing is imported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coding_session import coding_session
from filmed_requests import request_at
from played_sessions import played
from reverie import load_settings
from reverie.cli.sessions.recordings import with_agents
from reverie.conversation.entries import encode_entry
from reverie.importers import FORMATS
from reverie.servers.inspector.film import films_of
from reverie.servers.inspector.redaction import redacted

SAMPLES = Path(__file__).parent / "samples"
HISTORY = {"display": "look at the harbour", "project": "/home/ada", "timestamp": 1_790_000_000_000}


@pytest.fixture
def files(recordings: Any, database: Path, tmp_path: Path) -> dict[str, Path]:
    """Return a file of each program."""
    found = {re.sub(r"-(compacted|resumed|compressed)\.jsonl$", "", path.name): path for path in SAMPLES.iterdir()}
    made: dict[str, Path] = {}
    for name in ("pi", "mini-swe-agent", "swe-agent", "openhands"):
        made[name] = tmp_path / f"{name}.jsonl"
        made[name].write_bytes(recordings.bytes_of(name))
    made["history"] = tmp_path / "history.jsonl"
    made["history"].write_text(json.dumps(HISTORY) + "\n")
    made["opencode"] = database
    session, _ = played(coding_session(3, 20_000, compact_at=None))
    made["reverie"] = tmp_path / "own.jsonl"
    made["reverie"].write_bytes(b"".join(encode_entry(entry) + b"\n" for entry in session.entries))
    return {**found, **made}


@pytest.mark.requirement("I1", "I3")
@pytest.mark.parametrize("name", [one.name for one in FORMATS])
def test_a_file_of_every_program_opens_directly(files: dict[str, Path], name: str, home: Path) -> None:
    logs = with_agents(str(files[name]))
    films = films_of(logs, is_file=True)
    assert logs[0][0].format == name
    assert len(films) == len(logs)
    assert sum(len(film["requests"]) for film in films) > 0 or name == "history"
    for film, (session, _) in zip(films, logs, strict=True):
        assert film["title"] == session.title
        assert not any(act["command"] for act in film["acts"]), "no command reaches a file"
        for number, row in enumerate(film["requests"]):
            assert request_at(film, number)["messages"]
            assert row["usage"] is None or sum(row["window"]) == sum(row["usage"][:4])
        redacted(film, 1)
    assert list(load_settings().home.rglob("*.jsonl")) == []


def test_only_the_agents_of_a_file_have_a_parent(files: dict[str, Path], recordings: Any) -> None:
    films = films_of(with_agents(str(files["opencode"])), is_file=True)
    assert {bool(film["parent"]) for film in films} == {False, True}
