"""``reverie stop`` asks the process that has a session open, and only a running one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from reverie import FileStorage, Session, load_settings
from reverie.cli.agents.stop import stop_session
from reverie.errors import SessionError
from reverie.runtime.places.projects import inbox_key, project_slug

Reverie = Callable[..., tuple[int, str, str]]


def test_a_session_that_runs_gets_one_command_and_a_dry_run_sends_none(reverie: Reverie, home: Path) -> None:
    found: list[tuple[int, str, str]] = []

    async def run() -> int:
        async with Session.open("alpha", settings=load_settings()) as session:
            await session.say("hello")
            for options in (["--dry-run"], ["--json"]):
                found.append(await anyio.to_thread.run_sync(lambda options=options: reverie("stop", "alpha", *options)))
            return len(list(FileStorage(load_settings().home).list(inbox_key(project_slug(Path.cwd()), "alpha"))))

    assert anyio.run(run) == 1
    assert found[0][1].startswith("would ask alpha to stop (")
    assert json.loads(found[1][1])["queued"]
    code, _, err = reverie("stop", "alpha")
    assert (code, "does not run" in err) == (2, True)
    with pytest.raises(SessionError, match="does not run"):
        stop_session("alpha", load_settings())
