"""Run a ``!command`` of the user and attach its output to the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...conversation.tokens.accounting import LOCAL_COMMAND_TAG
from ...runtime.guard.hooks import kill_group
from ...values import record

KEPT_CHARS: Final = 30_000
LINE_BYTES: Final = 65_536


@record
class ShellOutput:
    """The output of a command, limited in length, and its exit code, which is negative for a signal."""

    command: str
    text: str
    exit_code: int
    cut_chars: int = 0


async def run_shell(command: str, cwd: Path, show: Callable[[str], None]) -> ShellOutput:
    """Run a shell command, pass each line to ``show``, return the output; cancelling kills its process group."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=LINE_BYTES,
    )
    kept: list[str] = []
    chars = 0
    assert process.stdout is not None
    try:
        while line := await _next_line(process.stdout):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            show(text)
            chars += len(text) + 1
            if chars <= KEPT_CHARS:
                kept.append(text)
        code = await process.wait()
    except BaseException:  # also a cancelled command leaves no process behind
        kill_group(process.pid)
        with suppress(ProcessLookupError):
            await process.wait()
        raise
    text = "\n".join(kept)
    return ShellOutput(command, text, code, max(0, chars - len(text) - 1) if chars > KEPT_CHARS else 0)


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as long:
        return await stream.read(long.consumed or LINE_BYTES)


def as_attachment(output: ShellOutput) -> str:
    """Return the command, its exit code and its output as text for the model."""
    text = output.text.replace(f"</{LOCAL_COMMAND_TAG}", f"<\\/{LOCAL_COMMAND_TAG}")
    if output.cut_chars:
        text += f"\n[{output.cut_chars:,} more characters were shown to the user only]"
    said = f"The user ran this command, and it ended with exit code {output.exit_code}: {output.command}"
    return f"{said}\n<{LOCAL_COMMAND_TAG}>\n{text}\n</{LOCAL_COMMAND_TAG}>"
