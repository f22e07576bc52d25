"""Bash, BashOutput and KillShell: run a command, read a background command's output, and stop it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import anyio.to_thread

from ..errors import SandboxUnavailable
from ..settings import AgentPolicy
from .context import ToolContext
from .shell.shells import Shell
from .tool import Access, NoPreview, Output, error_output, object_schema

# There is no person to page through output or to type a password.
_ENVIRONMENT: Final = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}
# Newline and tab are part of commands; half a surrogate pair is no text.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_WALL: Final = "[without asking, a command reads only the directories of this session, and no file that a rule denies]"
_HIDDEN: Final = "[a file that a rule denies can be opened only by a command that another rule allows]"
_SHELL_ID: Final[dict[str, Any]] = {"type": "string", "description": "The id that Bash returned, such as shell_1"}


_BASH_INPUT: Final = object_schema(
    ("command",),
    command={"type": "string", "minLength": 1, "description": "The command line"},
    description={"type": "string", "description": "Its purpose in a few words, for the user"},
    timeout_seconds={"type": "number", "exclusiveMinimum": 0, "description": "When to stop it"},
    run_in_background={
        "type": "boolean",
        "description": "Return at once with an id; for servers, watchers and long builds",
    },
)
_FOREGROUND_INPUT: Final = {
    **_BASH_INPUT,
    "properties": {key: value for key, value in _BASH_INPUT["properties"].items() if key != "run_in_background"},
}


class Bash(NoPreview):
    """The tool Bash: runs a command with bash in the working directory, or starts it in the background."""

    name = "Bash"
    max_chars = 30_000.0
    beside: Mapping[str, str] = {
        "BashOutput KillShell": "To keep one running use run_in_background, then BashOutput and KillShell.",
        "Read Grep Glob": "Use Read, Grep and Glob instead of cat, grep and find.",
        "Edit Write": "Use Edit and Write instead of sed and echo.",
    }

    def __init__(self, policy: AgentPolicy | None = None, *, background: bool = True) -> None:
        """Take the time limits of ``policy``; without ``background`` no command can be started in the background."""
        limits = policy or AgentPolicy()
        self.input_schema = _BASH_INPUT if background else _FOREGROUND_INPUT
        self.description = (
            "Run a command with bash: build, test, git, and anything no other tool does. It starts in the working "
            "directory every time (a cd lasts for that command only), with no input; stdout and stderr come together, "
            f"and the exit code where it is not 0. It is stopped after {limits.bash_timeout_seconds:g} seconds unless "
            f"timeout_seconds says otherwise (at most {limits.bash_max_timeout_seconds:g}). Processes left running "
            "with '&' are ended with it."
        )

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``run`` with the command line as its target."""
        return Access("run", str(input.get("command", "")))

    async def check(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return why a command with control characters does not run, in any mode; '' for others."""
        found = _CONTROL.search(str(input.get("command", "")))
        if found is None:
            return ""
        number = ord(found.group())
        return (
            f"the command holds the control character U+{number:04X} at position {found.start()}, which could hide a "
            f"part of it from the user; write it as text that bash expands ($'\\x{number:02x}'), or leave it out"
        )

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Run a command, or start it in the background, and return its output; end its group at the time limit."""
        command = str(input["command"])
        if problem := await self.check(input, context):
            return error_output(problem)
        background = bool(input.get("run_in_background"))
        if background and context.shells.full:
            return error_output("too many commands run in the background; stop one with KillShell first")
        try:
            argv, path = await _argv(command, context)
            shell = Shell(argv, cwd=context.cwd, env={**os.environ, **_ENVIRONMENT, **path}, command=command)
        except SandboxUnavailable as error:
            return error_output(f"the command may run only in a sandbox: {error}")
        except OSError as error:
            return error_output(f"bash could not be started in {context.cwd}: {error.strerror}; check that directory")
        if background:
            name = context.shells.keep(shell)
            return Output(
                f"Running in the background as {name}. Read its output with BashOutput, stop it with KillShell."
            )
        wall = _WALL if context.reads_inside else _HIDDEN if context.hides_denied else ""
        with context.shells.awaiting(shell):
            return await _run_to_end(shell, _timeout(input, context.policy), wall)


_BASH_OUTPUT_INPUT: Final = object_schema(
    ("shell_id",),
    shell_id=_SHELL_ID,
    wait_seconds={"type": "number", "minimum": 0, "description": "How long to wait for news"},
)


class _BackgroundShellTool(NoPreview):
    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: the command was allowed when this agent started it."""
        return Access("none", str(input.get("shell_id", "")))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Find the background command by its id and act on it; return an error output for an unknown id."""
        name = str(input["shell_id"])
        shell = context.shells.get(name)
        if shell is None:
            return error_output(_unknown_shell_text(name, context))
        return await self._act(shell, name, input, context)

    async def _act(self, shell: Shell, name: str, input: Mapping[str, Any], context: ToolContext) -> Output:
        raise NotImplementedError


class BashOutput(_BackgroundShellTool):
    """The tool BashOutput: returns the output of a background command that was not returned before."""

    name = "BashOutput"
    max_chars = 30_000.0
    description = (
        "Read the new output of a command that runs in the background, and whether it still runs. With wait_seconds it "
        "waits that long for something new instead of returning at once."
    )
    input_schema = _BASH_OUTPUT_INPUT

    async def _act(self, shell: Shell, name: str, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the output since the last call, and whether the command still runs; wait for news if asked to."""
        wait = min(float(input.get("wait_seconds") or 0.0), context.policy.bash_max_timeout_seconds)
        if wait:
            await shell.wait_for_news(wait)
        shell.is_end_told = not shell.running
        state = shell.end_text if shell.is_end_told else "still running"
        return Output(f"{_lines(shell.new_output())}[{name}: {state}]")


_KILL_SHELL_INPUT: Final = object_schema(("shell_id",), shell_id=_SHELL_ID)


class KillShell(_BackgroundShellTool):
    """The tool KillShell: stops a background command and everything the command started."""

    name = "KillShell"
    description = "Stop a command that runs in the background, with everything it started."
    input_schema = _KILL_SHELL_INPUT

    async def _act(self, shell: Shell, name: str, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Stop the command and return a text that says whether it has ended."""
        is_late = not shell.running
        await shell.stop()
        shell.is_end_told = not shell.running
        if is_late:
            return Output(f"{name} has ended already: {shell.end_text}.")
        return Output(f"{name} was stopped." if not shell.running else f"{name} does not react, not even to SIGKILL.")


async def _argv(command: str, context: ToolContext) -> tuple[list[str], dict[str, str]]:
    """Return the words that run a command, and the search path if it is another one than ours."""
    argv = ["bash", "-c", command]
    if not (context.restricted or context.hides_denied):
        return argv, {}
    from .files.readable import read_scope
    from .shell.computed import judged_line
    from .shell.read_places import hidden_paths, read_places, search_path
    from .shell.sandbox import confined_command, hiding_command

    def confined() -> tuple[list[str], dict[str, str]]:
        if not context.restricted:
            return hiding_command(argv, hidden_paths(read_scope(context))), {}
        scope, judged = read_scope(context), judged_line(command)
        places = read_places(scope, judged.names) if context.reads_inside else ()
        watched = scope.roots if judged.is_computed else ()
        return confined_command(argv, cwd=context.cwd, reads=places, watched=watched), {"PATH": search_path(scope)}

    return await anyio.to_thread.run_sync(confined)  # it probes the sandbox once, and looks for denied files


def _timeout(input: Mapping[str, Any], policy: AgentPolicy) -> float:
    asked = float(input.get("timeout_seconds") or policy.bash_timeout_seconds)
    return min(asked, policy.bash_max_timeout_seconds)


async def _run_to_end(shell: Shell, timeout_seconds: float, wall: str) -> Output:
    try:
        in_time = await shell.wait(timeout_seconds)
    finally:
        if shell.running:
            await shell.stop()
    text, lines = shell.all_output(), shell.output.total_lines
    if not in_time:
        advice = "give a longer timeout_seconds, or run it in the background"
        said = f"{_lines(text)}[stopped after {timeout_seconds:g} seconds: {advice}]"
        return Output(said, is_error=True, lines=lines + 1)
    notes = ""
    if shell.left_running:
        notes = "[processes it left running were ended with it; use run_in_background for long-running ones]"
    if wall and "Permission denied" in text:
        notes += wall
    if shell.returncode == 0:
        return Output(_lines(text) + notes, lines=lines + 1) if notes else Output(text, lines=lines)
    return Output(f"{_lines(text)}[{shell.end_text}]{notes}", is_error=True, lines=lines + 1)


def _lines(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _unknown_shell_text(name: str, context: ToolContext) -> str:
    running = ", ".join(context.shells.running) or "nothing"
    return f"there is no {name}; running in the background: {running}"
