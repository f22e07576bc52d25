"""Real coding agents through the gateway: the same work, and their sessions recorded whole: ``pytest --hosts``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from host_programs import PROGRAMS, make_world
from loopback_namespace import LoopbackNamespace
from reverie import FileStorage, Library

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode"])
@pytest.mark.requirement("G1", "G2")
def test_a_real_agent_works_as_before_and_its_session_is_recorded_whole(name: str, tmp_path: Path) -> None:
    program = next(one for one in PROGRAMS if one.host == name)
    if program.path() is None:
        pytest.skip(f"no program {program.program} on PATH or in the folder bin of REVERIE_HOSTS")
    if missing := LoopbackNamespace.missing():
        pytest.skip(missing)
    with LoopbackNamespace() as namespace:
        model, namespace.url = namespace.url, "http://127.0.0.1:8787"
        world = make_world(program, namespace, tmp_path / name)
        wait = "until grep -q 'gateway is at' gateway.out; do sleep 0.1; done"
        start = f"reverie gateway --upstream {model} > gateway.out 2>&1 & {wait}"
        assert world.run(["sh", "-c", start]).code == 0
        for number, resume in ((1, False), (2, True)):
            done = world.ask(f"Say hello.\n{program.call(f'echo word-{number}')}", resume=resume)
            assert done.code == 0, done.err
        sent = world.sent()
        assert len(sent) == 4
        assert all(f"word-{number}" in sent[-1] for number in (1, 2))
        texts = recorded(tmp_path / name / "reverie")
        world.reverie("keep")
        assert main_sessions(tmp_path / name / "reverie") == main_sessions(tmp_path / name / "reverie", "/gateway-")
    assert all(f"word-{number}" in texts for number in (1, 2))
    assert texts.count("Finished the task.") == 2


def main_sessions(home: Path, name: str = "") -> list[str]:
    """Return the keys of the sessions that are no agents of others."""
    return [key for key in sorted(Library(FileStorage(home)).keys()) if name in key and ".agent-" not in key]


def recorded(home: Path) -> str:
    """Wait until the main session has both results and both replies, and return it as text."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        library = Library(FileStorage(home))
        texts = [str(library.view(key).messages()) for key in main_sessions(home, "/gateway-")]
        if len(texts) == 1 and texts[0].count("Finished the task.") == 2:
            return texts[0]
        time.sleep(0.2)
    raise AssertionError(f"not recorded whole: {[text[-500:] for text in texts]}")
