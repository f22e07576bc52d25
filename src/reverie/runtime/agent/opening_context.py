"""The context of a conversation: working directory, date, instruction files and skills.

Text that may change never enters the cached prefix. It is attached when it is first known and when it changes.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from anyio import to_thread

from ...conversation.cuts import USER_CONTEXT
from ...conversation.decisions import Cause, InstructionsAttached
from ...conversation.entries import Entry
from ...events import CompactionEnded, Event, FellBack
from ...settings import Settings
from ...tools.context import ToolContext
from ...tools.skill import available_skills
from ...tools.skills import brief_listing
from ..guard.hooks import Hooks
from ..instructions.reader import InstructionSet, NestedInstructions, changed, gather, render
from ..places.projects import canonical_root
from ..places.trust import TrustList
from ..session.session import Session

__all__ = ["OpeningContext"]

DATE: Final = "date"
CHANGED: Final = "instructions"
_ATTACHED: Final = "instructions_attached"


class OpeningContext:
    """Attaches context to one session: at its start, at each prompt, and after the tools of each turn."""

    def __init__(
        self,
        session: Session,
        context: ToolContext,
        settings: Settings,
        hooks: Hooks,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.registered: set[str] = set()
        """Paths of nested instruction files that the view shows."""

        self._session = session
        self._context = context
        self._settings = settings
        self._hooks = hooks
        self._clock = clock
        self._consent = False
        self._gathered = InstructionSet()
        self._nested = NestedInstructions(context.cwd, self._gathered)
        self._day = ""

    async def enter(
        self,
        extra_text: Callable[[], Awaitable[str]],
        check: Callable[[str], None],
    ) -> None:
        """Attach the first context and run the start hooks.

        A resumed session gets only changed instructions. ``extra_text`` returns the end of a new session's first
        message, such as the memory index; ``check`` raises if the context does not fit the window.
        """
        new = not self._session.view.length
        self._session.listen(self._on_event)
        await to_thread.run_sync(self._read_instructions)
        self._nested = NestedInstructions(self._context.cwd, self._gathered, consent=self._consent)
        for problem in self._gathered.problems:
            self._session.log.emit(FellBack(self._session.name, "instructions", problem))
        if new:
            skills = brief_listing(await to_thread.run_sync(available_skills, self._context))
            listed = f"Skills you can load:\n{skills}" if skills else ""
            more = await extra_text()
            parts = [self._environment_text(), render(self._gathered), listed, more]
            context = "\n\n".join(part for part in parts if part)
            check(context)
            await self._session.attach(context, type=USER_CONTEXT)
        else:
            said = [_text(entry) for entry in self._session.view.history if entry.body.get("type") == USER_CONTEXT]
            check("\n\n".join(said))
            await self._resume()
        outcome = await self._hooks.run("session_start", {"source": "startup" if new else "resume"})
        if outcome.context:
            await self._session.attach(outcome.context, type="hook")

    async def attach(self, touched: Iterable[str] = ()) -> None:
        """Attach the date if it changed, and the nested instruction files near files that tools touched."""
        day = time.strftime("%A, %Y-%m-%d", time.localtime(self._clock()))
        if day != self._day:
            await self._session.attach(f"Today is {day}.", type=DATE)
            self._day = day
        self._nested.touched(touched)
        found = await to_thread.run_sync(lambda: self._nested.pending(self, self._readable))
        for problem in self._nested.problems:
            self._session.log.emit(FellBack(self._session.name, "instructions", problem))
        if found:
            cause = Cause("instructions", "a file near them was touched")
            paths = [one.path for one in found]
            try:
                await self._session.log.decide(InstructionsAttached(cause, paths, render(found)))
            except BaseException:
                self.registered.difference_update(paths)  # they were not logged, so the model has not seen them
                raise

    async def refresh(self) -> None:
        """Read the instruction files again and attach the changes since they were last read, if any."""
        before = self._gathered
        await to_thread.run_sync(self._read_instructions)
        said = changed(before, self._gathered)
        if said:
            await self._session.attach(said, type=CHANGED)

    async def leave(self) -> None:
        """Run the session-end hooks."""
        await self._hooks.run("session_end", {})

    def _readable(self, path: str) -> bool:
        """Return whether an instruction file may be read: in the tools' directories or a folder above ``cwd``."""
        roots = (self._context.cwd, *self._context.directories)
        above = {str(parent) for parent in self._context.cwd.parents}
        return any(_within(path, str(root)) for root in roots) or _folder_of(path) in above

    def _read_instructions(self) -> None:
        self._consent = TrustList.open(self._settings.home).is_trusted(self._context.cwd)
        self._context.project_skills = self._consent
        self._gathered = gather(self._context.cwd, home=self._settings.home, consent=self._consent)

    async def _resume(self) -> None:
        """Note the date and nested files that a resumed log shows, and attach instructions it does not show."""
        view = self._session.view
        shown = {piece.uuid for group in view.groups for piece in group.pieces}
        said = [_text(entry) for entry in view.history if entry.body.get("type") in (USER_CONTEXT, CHANGED)]
        for entry in view.history:
            if entry.body.get("type") == DATE:
                self._day = _text(entry).removeprefix("Today is ").rstrip(".")
            elif entry.body.get("decision") == _ATTACHED and entry.uuid in shown:
                self.registered.update(map(str, entry.body.get("paths") or ()))
        text = render(self._gathered)
        if text and not any(text in one for one in said):
            unsaid = [one for one in self._gathered.files if not any(one.text.strip() in text for text in said)]
            if unsaid:
                await self._session.attach(changed(InstructionSet(), InstructionSet(unsaid)), type=CHANGED)

    def _environment_text(self) -> str:
        cwd = self._context.cwd
        lines = [f"Working directory: {cwd}", f"System: {platform.system()} {platform.machine()}"]
        root = canonical_root(cwd)
        if (root / ".git").exists():
            lines.append(f"Git repository: {root}")
        return "Where you are:\n" + "\n".join(f"- {line}" for line in lines)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CompactionEnded):
            self.registered.clear()


def _folder_of(path: str) -> str:
    """Return the folder that an instruction file applies to; a file in ``.claude`` applies to the folder above."""
    return path.partition("/.claude/")[0] if "/.claude/" in path else path.rpartition("/")[0]


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _text(entry: Entry) -> str:
    message: Any = entry.message
    content = message.get("content") if message is not None else ""
    return content if isinstance(content, str) else ""
