"""Progress lines of a running agent, written by a model at intervals.

The cheaper of two ways is used: a fork reads the agent's whole conversation from the cache of its own model, and the
small model reads only the end of it, uncached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from anyio import to_thread

from ....cache.prices import Prices, prices_for
from ....conversation.entries import Message, seconds
from ....conversation.side_query import answer_problem, answer_text, side_request
from ....conversation.view import View
from ....conversation.wire.blocks import as_blocks
from ....errors import ReverieError
from ....events import FellBack
from ....layers.l7_relay import RelayPolicy, fork_is_cheaper, line_problem
from ....model_facts import facts_of
from ....ports import Model
from ...session.forks import Forks
from ...session.session import Session
from .roster import TeamMember
from .types import prompt_of

SOURCE: Final = "progress"
_MAX_TOKENS: Final = 64
_EXCERPT_CHARS: Final = 4_000
_EXCERPT_MESSAGES: Final = 6
_WARM_SECONDS: Final = 300.0


class Narrator:
    """Asks a model for a progress line about one agent's work at a fixed interval."""

    def __init__(
        self,
        member: TeamMember,
        session: Session,
        model: Callable[[], Model],
        small: Model | None,
        policy: RelayPolicy,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._member = member
        self._session = session
        self._model = model
        self._small = small
        self._policy = policy
        self._say = say
        self.refused: list[str] = []
        """The reasons why lines of the model were not shown."""

    async def run(self) -> None:
        """Write lines until cancelled; after a model error emit one event and return."""
        try:
            while True:
                await anyio.sleep(self._policy.progress_seconds)
                if self._session.view.last_reply_time:
                    await self.once()
        except ReverieError as error:
            self._session.log.emit(FellBack(self._session.name, "progress", f"lines are made from calls: {error}"))

    async def once(self) -> str:
        """Ask for one line and show it if it is valid; return the problem with the line, empty if none."""
        last = self._member.line
        directive = prompt_of("progress").replace("{last}", f" Not again: {last}" if last else "")
        line = (await self._answer_to(directive)).strip().split("\n")[0].strip().rstrip(".")
        problem = line_problem(line, last=last, named=self._member.names)
        if problem:
            self.refused.append(problem)
        else:
            self._say(line)
        return problem

    async def _answer_to(self, directive: str) -> str:
        excerpt = excerpt_of(self._session.view)
        if self._small is not None and not await to_thread.run_sync(lambda: self._is_fork_cheaper(len(excerpt) // 4)):
            model, facts = self._small.model_id, facts_of(self._small.model_id, self._session.settings.models)
            asked: Message = {"role": "user", "content": f"{excerpt}\n\n{directive}"}
            request = side_request(facts, [asked], model=model, answer_tokens=_MAX_TOKENS)
            await self._session.sync()
            reply = (await self._small.complete(request)).body
            await self._session.parts.host.record_call(reply, source=SOURCE)
            text = answer_text(reply.get("content"))
            return "" if answer_problem(reply, text) else text
        forks = Forks(self._session.parts.host, self._model())
        answered = await forks.ask(directive, source=SOURCE, max_tokens=_MAX_TOKENS)
        return "" if answered.problem else answered.text

    def _is_fork_cheaper(self, excerpt_tokens: int) -> bool:
        """Return whether a fork costs less than the small model on an excerpt; this may load the price table."""
        small = self._small
        view = self._session.view
        idle = self._session.log.clock() - seconds(view.last_reply_time) if view.last_reply_time else _WARM_SECONDS
        return fork_is_cheaper(
            _prices(self._model()),
            _prices(small) if small is not None else None,
            fork_tokens=view.token_count.tokens,
            small_tokens=excerpt_tokens,
            warm=idle < _WARM_SECONDS,
        )


def excerpt_of(view: View) -> str:
    """Return the agent's last texts and tool calls as text, for a model that has not seen the conversation."""
    lines: list[str] = []
    for message in view.messages()[-_EXCERPT_MESSAGES:]:
        for block in as_blocks(message):
            if block.get("type") == "tool_use":
                lines.append(f"calls {block.get('name')} with {str(block.get('input'))[:300]}")
            elif block.get("type") == "text" and message["role"] == "assistant":
                lines.append(f"says {str(block['text'])[:300]}")
    return "The last things an agent did:\n" + "\n".join(lines)[-_EXCERPT_CHARS:]


def _prices(model: Model) -> Prices | None:
    return prices_for(model.model_id)
