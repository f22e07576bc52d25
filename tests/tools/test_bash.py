"""Bash: exact output and exit code, limits on time and memory, and no process left running."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.settings import AgentPolicy
from reverie.tools import Output, ToolContext
from reverie.tools.bash import Bash, BashOutput, KillShell
from reverie.tools.shell.shells import EDGE_BYTES, OutputBuffer


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(cwd=tmp_path)


def bash(context: ToolContext, command: str, **more: Any) -> Output:
    return anyio.run(Bash().run, {"command": command, **more}, context)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits to be reaped by somebody else does not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(listed.strip()) and not listed.strip().startswith("Z")


# How long a command may run before it is ended: long enough for its beginning, on a busy machine at the second try.
PATIENCE_SECONDS = (0.5, 5.0, 50.0)


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def left(folder: Path) -> list[int]:
    """Wait for the noted processes to be gone, and return those that are not: a killed one takes a moment to die."""
    until = time.monotonic() + 60
    while (found := [pid for pid in pids(folder) if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.01)
    return found


def test_both_streams_come_as_one_in_order_and_success_says_nothing_more(context: ToolContext) -> None:
    output = bash(context, "echo one; echo two >&2; echo three")
    assert output == Output("one\ntwo\nthree\n", lines=3)


def test_a_failure_is_an_error_that_names_the_exit_code(context: ToolContext) -> None:
    output = bash(context, "printf partial; exit 3")
    assert output.is_error
    assert output.content == "partial\n[exit code 3]"
    assert "ended by SIGSEGV" in str(bash(context, "kill -SEGV $$").content)


def test_every_command_starts_in_the_working_directory(context: ToolContext) -> None:
    (context.cwd / "sub").mkdir()
    assert bash(context, "cd sub && pwd").content == f"{context.cwd}/sub\n"
    assert bash(context, "pwd").content == f"{context.cwd}\n"


def test_nobody_is_there_to_type(context: ToolContext) -> None:
    assert bash(context, "cat; read -r line || echo no input").content == "no input\n"


def test_no_secret_of_ours_is_added_to_the_environment(context: ToolContext) -> None:
    shown = str(bash(context, "env -0 | tr '\\0' '\\n' | sed 's/=.*//'").content).split()
    ours = {"PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "TERM"}
    by_bash = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name for name in shown if name.isidentifier()} <= set(os.environ) | ours | by_bash


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended_with_all_its_children(context: ToolContext) -> None:
    command = "echo $$ > pids; sleep 300 & echo $! >> pids; echo begun; wait"
    for seconds in PATIENCE_SECONDS:
        output = bash(context, command, timeout_seconds=seconds)
        assert output.is_error
        assert f"[stopped after {seconds:g} seconds" in str(output.content)
        if str(output.content).startswith("begun\n"):
            break
    else:
        pytest.fail("the command never got so far")
    assert left(context.cwd) == []


@pytest.mark.slow
def test_children_that_were_forked_twice_and_ignore_the_first_signal_are_ended_too(context: ToolContext) -> None:
    stubborn = "trap '' TERM HUP; echo $BASHPID >> pids; while :; do sleep 0.05; done"
    both = 'until [ "$(wc -l < pids)" = 2 ]; do sleep 0.05; done'
    output = bash(context, f"touch pids; ( ( {stubborn} ) & ) & ( {stubborn} ) & {both}; echo done")
    assert "done" in str(output.content)
    assert "run_in_background" in str(output.content)
    assert len(pids(context.cwd)) == 2
    assert left(context.cwd) == []


def test_a_daemon_that_holds_the_output_open_does_not_hold_us(context: ToolContext) -> None:
    output = bash(context, "setsid sleep 600 & echo $! > pids; echo done", timeout_seconds=100)
    assert str(output.content).startswith("done")
    assert "stopped after" not in str(output.content)
    assert left(context.cwd) == []  # it left its group, and was found all the same


def test_cancelling_ends_the_whole_group(context: ToolContext) -> None:
    async def steps() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(Bash().run, {"command": "echo $$ > pids; sleep 300 & echo $! >> pids; wait"}, context)
            with anyio.fail_after(60):
                while not (context.cwd / "pids").exists() or len(pids(context.cwd)) < 2:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    anyio.run(steps)
    assert left(context.cwd) == []


@pytest.mark.slow
def test_output_without_end_is_cut_in_the_middle_and_takes_no_memory(context: ToolContext) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seconds in PATIENCE_SECONDS:
        text = str(bash(context, "echo first; yes", timeout_seconds=seconds).content)
        if "bytes left out here" in text:
            break
    assert text.startswith("first\ny\n")
    assert "bytes left out here" in text
    assert text.rstrip().endswith("in the background]")
    assert len(text) <= 2 * EDGE_BYTES + 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KiB


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 25), st.data())
def test_the_beginning_and_the_end_of_an_output_are_kept_exactly(
    chunks: list[bytes], edge: int, data: st.DataObject
) -> None:
    kept = OutputBuffer(edge)
    whole = b""
    seen = 0
    for chunk in chunks:
        kept.add(chunk)
        whole += chunk
        if data.draw(st.booleans()):
            new = kept.new()
            fresh = whole[seen:]
            assert new == fresh or (b"left out here" in new and fresh.endswith(new.rsplit(b"...]\n", 1)[1]))
            seen = len(whole)
    if len(whole) <= 2 * edge:
        assert kept.all() == whole
    else:
        assert kept.all().startswith(whole[:edge])
        assert kept.all().endswith(whole[-edge:])
        assert f"{len(whole) - 2 * edge:,} bytes".encode() in kept.all()


def test_a_time_limit_is_never_longer_than_the_policy_allows(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path, policy=AgentPolicy(bash_max_timeout_seconds=0.3))
    assert "stopped after 0.3 seconds" in str(bash(context, "sleep 600", timeout_seconds=1_000).content)


def test_a_background_command_is_read_as_it_goes_and_stopped(context: ToolContext) -> None:
    async def steps() -> None:
        command = "echo $$ > pids; echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; sleep 300"
        started = await Bash().run({"command": command, "run_in_background": True}, context)
        assert "shell_1" in str(started.content)
        first = await BashOutput().run({"shell_id": "shell_1", "wait_seconds": 60}, context)
        assert first.content == "one\n[shell_1: still running]"
        nothing = await BashOutput().run({"shell_id": "shell_1"}, context)
        assert nothing.content == "[shell_1: still running]"
        (context.cwd / "go").touch()
        second = await BashOutput().run({"shell_id": "shell_1", "wait_seconds": 60}, context)
        assert second.content == "two\n[shell_1: still running]"
        assert context.shells.running == ["shell_1"]
        assert "was stopped" in str((await KillShell().run({"shell_id": "shell_1"}, context)).content)
        last = await BashOutput().run({"shell_id": "shell_1"}, context)
        assert last.content == "[shell_1: ended by SIGTERM]"
        assert "ended already" in str((await KillShell().run({"shell_id": "shell_1"}, context)).content)
        assert context.shells.running == []

    anyio.run(steps)
    assert left(context.cwd) == []


def test_the_end_of_a_background_command_is_told(context: ToolContext) -> None:
    async def steps() -> None:
        await Bash().run({"command": "exit 7", "run_in_background": True}, context)
        shell = context.shells.get("shell_1")
        assert shell is not None
        assert await shell.wait(60)
        assert (await BashOutput().run({"shell_id": "shell_1"}, context)).content == "[shell_1: exit code 7]"

    anyio.run(steps)


def test_an_unknown_shell_is_an_error_that_names_what_runs(context: ToolContext) -> None:
    for tool in (BashOutput(), KillShell()):
        output = anyio.run(tool.run, {"shell_id": "shell_9"}, context)
        assert output.is_error
        assert "nothing" in str(output.content)


def test_closing_ends_all_that_runs_in_the_background(context: ToolContext) -> None:
    async def steps() -> None:
        for _ in range(3):
            await Bash().run({"command": "echo $$ >> pids; sleep 300", "run_in_background": True}, context)
        for name, shell in context.shells:
            assert name.startswith("shell_")
            with anyio.fail_after(60):
                while len((context.cwd / "pids").read_text().split() if (context.cwd / "pids").exists() else []) < 3:
                    await anyio.sleep(0.01)
            assert shell.running
        await context.aclose()
        await context.aclose()

    anyio.run(steps)
    assert len(pids(context.cwd)) == 3
    assert left(context.cwd) == []


@pytest.mark.slow
def test_a_program_that_ends_takes_its_background_commands_with_it(tmp_path: Path) -> None:
    program = (
        "import anyio, sys\nfrom pathlib import Path\nfrom reverie.tools import ToolContext\n"
        "from reverie.tools.bash import Bash, BashOutput\n"
        "async def main():\n"
        "    context = ToolContext(cwd=Path(sys.argv[1]))\n"
        "    command = 'echo $$ > pids; echo up; sleep 300'\n"
        "    await Bash().run({'command': command, 'run_in_background': True}, context)\n"
        "    await BashOutput().run({'shell_id': 'shell_1', 'wait_seconds': 50}, context)\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    assert left(tmp_path) == []


def test_a_command_with_a_nul_or_in_a_directory_that_is_gone_is_refused(tmp_path: Path) -> None:
    assert "U+0000" in str(bash(ToolContext(cwd=tmp_path), "echo \0").content)
    output = bash(ToolContext(cwd=tmp_path / "gone"), "pwd")
    assert output.is_error
    assert "check that directory" in str(output.content)


def test_a_restricted_command_reads_but_writes_nothing(tmp_path: Path) -> None:
    from reverie.tools.shell.sandbox import available

    if not available().works:
        pytest.skip("no sandbox on this machine")
    (tmp_path / "a.txt").write_text("inside\n")
    context = ToolContext(cwd=tmp_path, restricted=True)
    assert bash(context, "cat a.txt").content == "inside\n"
    assert bash(context, "echo changed > a.txt").is_error
    assert (tmp_path / "a.txt").read_text() == "inside\n"


def test_an_ended_command_has_left_no_signal_for_a_stranger(context: ToolContext) -> None:
    """Stopping what has ended sends nothing: its number may be another process's by now."""

    async def steps() -> None:
        await Bash().run({"command": "true", "run_in_background": True}, context)
        shell = context.shells.get("shell_1")
        assert shell is not None
        assert await shell.wait(60)
        sent: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "killpg", lambda group, number: sent.append(number))
            await shell.stop()
        assert sent == []
        assert signal.SIGTERM not in sent

    anyio.run(steps)
