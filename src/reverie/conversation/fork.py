"""Forks: a side question on a branch of the view, which reuses the cached prefix of the parent's requests.

A branch is a view of its own: the parent's view, a placeholder for each call the parent has not answered yet, the same
for every call and every fork, and one directive. Replies and results are folded into it as into any view, so that
every request of a fork comes from the one builder. Forks of the same moment differ in their directive alone.

A branch repeats the conversation unchanged, so its thinking stays valid. A fork on another model strips nothing: its
provider leaves out the thinking that this model cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ..model_facts import ModelFacts
from ..values import record, replace
from .decisions import Cause, PrefixRendered, ThinkingDropped, body_of
from .entries import ASSISTANT, DECISION, USER, Entry, Message, new_uuid
from .side_query import adapted
from .view import View
from .wire.blocks import Block, as_blocks
from .wire.request import SYSTEM_MESSAGES, build_request

PLACEHOLDER: Final = "[This call runs in the conversation this question branched off from; its result is not here.]"
FORK_TAG: Final = "<reverie-fork "
"""The beginning of a directive's text, for its reader; the mark of a fork is in the entry's body."""
_MARK: Final = "fork"
_OWN_REPLIES: Final = ("stream", "output_format", "compaction")  # the form of the conversation's own replies


@record
class ForkBase:
    """The part that all forks of one moment share: the view they branch off from, and the options of their requests."""

    view: View
    model: str
    facts: ModelFacts
    answer_tokens: int
    """The limit of a reply's text; room for thinking is added where the model thinks."""

    def branch(self, directive: str, *, source: str) -> View:
        """Return a branch of the view that ends in this directive; open calls get a placeholder before it."""
        waiting = self.view.unanswered()
        results: list[Block] = [
            {"type": "tool_result", "tool_use_id": called, "content": PLACEHOLDER} for called in waiting
        ]
        view = self.view.branched()
        if results:
            view = with_results(view, results)
        text = f'{FORK_TAG}source="{source}">\n{directive}\n</reverie-fork>'
        return _folded(view, USER, {"message": {"role": USER, "content": text}, _MARK: source})

    def request(self, branch: View) -> dict[str, Any]:
        """Return the next request of a branch, for this model."""
        request = build_request(branch, self._prefix(branch))
        for own in _OWN_REPLIES:
            request.pop(own, None)
        config: Any = request.pop("output_config", None)
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", config) if isinstance(config, Mapping) else {}
        if kept := {key: value for key, value in fields.items() if key != "format"}:
            request["output_config"] = kept
        return adapted(request, self.facts, answer_tokens=self.answer_tokens)

    def _prefix(self, branch: View) -> PrefixRendered | None:
        """Return the prefix as another model takes it; None if the branch is for the conversation's own model."""
        prefix = branch.facts.prefix
        if prefix is None:  # the conversation has sent nothing yet
            return PrefixRendered(Cause("request", "a side question"), self.model)
        if prefix.model == self.model:
            return None
        knows_role = self.facts.system_messages
        able = [one for one in prefix.capabilities if knows_role or one != SYSTEM_MESSAGES]
        return replace(
            prefix,
            model=self.model,
            capabilities=able,
            max_images=self.facts.max_images,
            max_image_bytes=self.facts.max_image_bytes,
            max_body_bytes=self.facts.max_body_bytes,
            documents_are_images=self.facts.documents_are_images,
        )


def with_reply(branch: View, message: Message, rest: dict[str, Any]) -> View:
    """Return the branch after a reply: its message, and the other fields of the provider's answer."""
    return _folded(branch, ASSISTANT, {"message": message, "reply": rest})


def with_results(branch: View, results: Sequence[Block]) -> View:
    """Return the branch after the results of tool calls."""
    return _folded(branch, USER, {"message": {"role": USER, "content": list(results)}})


def without_thinking(branch: View, replies: Sequence[str]) -> View:
    """Return the branch without the thinking of these replies."""
    decision = ThinkingDropped(Cause("request", "content before it changed"), list(replies))
    return _folded(branch, DECISION, body_of(decision))


def is_forked(view: View) -> bool:
    """Say whether this view is a branch: an entry of its history is marked as a fork's directive."""
    return any(_MARK in item.entry.body for item in view.items_in_view())


def before_directive(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a fork's first request without the directive, the last block of the last message."""
    rest = as_blocks(messages[-1])[:-1]
    return [*messages[:-1], *([{**messages[-1], "content": rest}] if rest else [])]


def _folded(view: View, kind: str, body: dict[str, Any]) -> View:
    return view.fold(Entry(new_uuid(), view.last, "", "", kind, body))
