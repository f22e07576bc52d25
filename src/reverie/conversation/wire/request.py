"""Building of requests: ``build_request`` returns a request that the provider accepts, for every possible log.

It may have to add or remove content for that: a placeholder for a missing result, a line after a final reply, images
beyond the limit. ``repairs`` returns these changes as decisions, so that the session logs them before it sends the
request and sent bytes never change later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ...values import replace
from ..boundary import CLEAR_RESULTS, CLEARS, ClearedRange
from ..decisions import NO_PREFIX, Cause, Decision, Image, ImagesDropped, PrefixAmended, PrefixRendered, ResultStubbed
from ..entries import Message
from ..view import View
from .blocks import IMAGE_GONE, STUB, Block, as_blocks, block_as_text, is_signed_summary, is_text_call, placeholder
from .flatten import NO_MESSAGE, missing_result_block, render
from .images import NO_IMAGES, ImageTotals, image_totals, max_media_chars, media_in
from .options import opening_of, tools_of
from .thinking_rules import is_manual, open_round, round_fault

_Measured: TypeAlias = tuple[Image, ImageTotals]
KEPT_IMAGES: Final = 0.6
"""The share of the limit that is left after images were dropped, so that the prefix changes rarely."""
CONTINUE: Final = "Continue."
SYSTEM_MESSAGES: Final = "system_messages"
"""The capability of a model that takes messages of the role ``system``."""
_SERVER_USES: Final = ("server_tool_use", "mcp_tool_use")
_NOTHING: Final = "[Nothing has been said yet.]"


def build_request(view: View, prefix: PrefixRendered | None = None) -> dict[str, Any]:
    """Return a new request for this view, valid for every possible log; ``prefix`` overrides the view's own."""
    facts = view.facts
    messages = _messages(view, prefix or facts.prefix)
    capabilities = (prefix or facts.prefix or NO_PREFIX).capabilities
    if facts.has_system_messages and SYSTEM_MESSAGES not in capabilities:
        messages = _without_system_role(messages)
    opening = facts.opening if prefix is None or prefix is facts.prefix else None
    if opening is None or "tools" not in opening:
        called = () if facts.amendments and _adds_tools(messages) else view.tool_names()
        opening = opening_of(prefix or facts.prefix or NO_PREFIX, called)
    if facts.amendments and SYSTEM_MESSAGES not in capabilities:
        opening = _with_added_tools(opening, facts.prefix, [amended for _, amended in facts.amendments])
    if facts.edits:
        messages = _edited(messages, able="cache_edits" in capabilities)
    request = _with_clearing({**opening, "messages": messages}, view.clearing if CLEARS in capabilities else None)
    if facts.drops_refused_thinking and "preserved_thinking" in capabilities:
        request = _with_dropped_blocks(request, facts.drops_refused_thinking)
    _drop_unfit_options(request, view)
    if view.length and view.group(0).is_compaction:
        request = _without_threshold_edits(request)
    # All requests of a prefix share the opening, so lists that callers may extend are copied.
    for key in ("system", "tools"):
        if isinstance(request.get(key), list):
            request[key] = request[key].copy()
    return request


def _drop_unfit_options(request: dict[str, Any], view: View) -> None:
    """Delete the options of a new request that do not fit its last messages."""
    if "compaction" in request and as_blocks(request["messages"][-1])[-1]["type"] in _SERVER_USES:
        del request["compaction"]  # an unfinished reply cannot be summarized
    if round_fault(request) is not None or _lacks_thinking(request, view):
        del request["thinking"]  # a tool round that lacks its first thinking ends with thinking off


def _lacks_thinking(request: dict[str, Any], view: View) -> bool:
    """Say whether a decision dropped thinking of the tool round that a request with a thinking budget continues."""
    if not view.overrides.thinking or not is_manual(request):
        return False
    going_on = set(open_round(request["messages"]))
    replies = (group for at, group in zip(request_indexes(view), view.groups, strict=True) if at in going_on)
    return any(piece.uuid in view.overrides.thinking for group in replies for piece in group.pieces)


def _adds_tools(messages: list[Message]) -> bool:
    system = (message for message in messages if message["role"] == "system")
    return any(block["type"] == "tool_addition" for message in system for block in as_blocks(message))


def messages_added_before(view: View) -> int:
    """Return 1 where a request has a message of the user before the view's first message, else 0."""
    first = view.group(0) if view.length else None
    return 1 if first is not None and first.role == "assistant" and not first.is_compaction else 0


def request_indexes(view: View) -> list[int]:
    """Return the index in a request of each message of the view; a system message may be part of the one before."""
    prefix = view.facts.prefix
    able = prefix is not None and SYSTEM_MESSAGES in prefix.capabilities
    at, indexes = messages_added_before(view) - 1, list[int]()
    for number in range(view.length):
        at += 1 if able or view.group(number).role != "system" else 0
        indexes.append(at)
    return indexes


def ends_with_reply(view: View) -> bool:
    """Say whether the view ends with a finished reply, so that a user message must follow it."""
    ending = _ending_of_reply(view)
    return ending is not None and ending not in _SERVER_USES


def awaits_provider(view: View) -> bool:
    """Say whether the view ends with a call that the provider paused; a message behind it would give the call up."""
    return _ending_of_reply(view) in _SERVER_USES


def _ending_of_reply(view: View) -> str | None:
    """Return the type of the last block of a reply that ends the view and waits for no result of the caller."""
    group = view.final
    if group is None or group.role != "assistant" or group.uses:
        return None
    return as_blocks(render(group, view.overrides, last=True))[-1]["type"]


def repairs(view: View) -> list[Decision]:
    """Return a list of the decisions to log before this view is sent: placeholders for results, dropped images."""
    planned: list[Decision] = [
        ResultStubbed(Cause("request", "the tool call was interrupted"), called, STUB) for called in view.unanswered()
    ]
    cause = Cause("request", "a call the provider had paused was given up", moves_prefix=True)
    planned += [ResultStubbed(cause, called, STUB) for called in _given_up(view)]
    if view.images.excess(view.facts.prefix):
        planned.append(_images_to_drop(view, view.facts.prefix or NO_PREFIX))
    return planned


def _given_up(view: View) -> list[str]:
    """Return the ids of provider-run calls in the last reply that got no result, although the conversation went on.

    Such a call ends a piece of the reply, and was sent as it is while the provider could still resume it. A call that
    is already logged as given up does not count.
    """
    group = next((view.group(at) for at in range(view.length - 1, -1, -1) if view.group(at).role == "assistant"), None)
    if group is None:
        return []
    answered = {block.get("tool_use_id") for piece in group.pieces for block in as_blocks(piece.message)}
    waiting = group.pieces[-1] if group is view.final and not group.uses else None
    found: list[str] = []
    for piece in group.pieces:
        blocks = as_blocks(piece.message)
        if any(block["type"] == "tool_use" for block in blocks):  # next to its caller's calls a provider never pauses
            break
        called = blocks[-1]
        if called["type"] in _SERVER_USES and called["id"] not in answered and piece is not waiting:
            found.append(called["id"])
    return [called for called in dict.fromkeys(found) if called not in view.facts.given_up]


def _messages(view: View, limits: PrefixRendered | None) -> list[Message]:
    messages = view.messages()
    if not messages:
        return [{"role": "user", "content": _NOTHING}]
    final = view.final
    if final is not None and final.role == "assistant":
        waiting = [missing_result_block(called, view.overrides) for called in final.uses if not is_text_call(called)]
        if waiting or final.uses:
            messages.append({"role": "user", "content": waiting or CONTINUE})
        elif ends_with_reply(view):
            messages.append({"role": "user", "content": CONTINUE})
    if view.images.excess(limits):
        messages = _fewer_images(view, messages, limits)
    if view.group(0).is_compaction:
        messages = _with_one_summary(messages, view.threshold_summaries)
    if messages_added_before(view):
        messages.insert(0, {"role": "user", "content": NO_MESSAGE})
    return messages


def _without_system_role(messages: list[Message]) -> list[Message]:
    """Return the messages with system messages as text of the user's message before them."""
    out: list[Message] = []
    for message in messages:
        if message["role"] != "system":
            out.append(message)
            continue
        texts = [block for block in as_blocks(message) if block["type"] == "text"]
        if texts:
            out[-1] = {"role": "user", "content": [*as_blocks(out[-1]), *texts]}
    return out


def _with_added_tools(
    opening: Mapping[str, Any], prefix: PrefixRendered | None, amendments: list[PrefixAmended]
) -> Mapping[str, Any]:
    """Return the opening with the tools that system messages changed, for a model that takes no such messages."""
    told = [amended for amended in amendments if amended.message.get("role") == "system"]
    if prefix is None or not told or told[-1].tools == prefix.tools:
        return opening
    return {**opening, "tools": tools_of(replace(prefix, tools=told[-1].tools))}


def _with_dropped_blocks(request: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the request with the option of this name, which drops thinking that the provider would refuse."""
    thinking: dict[str, Any] = request.get("thinking") or {"type": "adaptive"}
    if thinking.get("type") not in ("adaptive", "enabled"):
        return request
    binding: dict[str, Any] = {**(thinking.get("block_binding") or {}), name: "drop_block"}
    return {**request, "thinking": {**thinking, "block_binding": binding}}


def _with_clearing(request: dict[str, Any], cleared: ClearedRange | None) -> dict[str, Any]:
    """Return the request with the edit that leaves results out; a request with an edit of its own stays as it is."""
    edits: list[dict[str, Any]] = request.get("context_management", {}).get("edits", [])
    if cleared is None or "compaction" in request or any(edit["type"] == CLEAR_RESULTS for edit in edits):
        return request
    return {**request, "context_management": {"edits": [*edits, cleared.edit()]}}


def _with_one_summary(messages: list[Message], places: list[int]) -> list[Message]:
    """Return messages that begin with a signed summary without those that were made at a threshold, at ``places``."""
    for at in places:
        blocks = as_blocks(messages[at])
        if any(block["type"] == "compaction" for block in blocks) and not is_signed_summary(blocks[0]):
            kept = [block if block["type"] != "compaction" else block_as_text(block) for block in blocks]
            messages[at] = {**messages[at], "content": kept}
    return messages


def _without_threshold_edits(request: dict[str, Any]) -> dict[str, Any]:
    """Return a request that begins with a signed summary without the option that asks for summaries at a threshold."""
    if "context_management" not in request:
        return request
    edits: list[dict[str, Any]] = request["context_management"]["edits"]
    others = [edit for edit in edits if edit["type"] != "compact_20260112"]
    return {**request, "context_management": {"edits": others}} if len(others) < len(edits) else request


def _edited(messages: list[Message], *, able: bool) -> list[Message]:
    """Return the messages with the cache edits that this provider accepts.

    A provider without cache edits gets none; others get those for results before the edit, since a cut may have
    removed some.
    """
    seen: set[str] = set()
    out: list[Message] = []
    for message in messages:
        blocks = as_blocks(message)
        seen.update(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
        if all(block["type"] != "cache_edits" for block in blocks):
            out.append(message)
            continue
        kept = [_edit(block, seen if able else set()) if block["type"] == "cache_edits" else block for block in blocks]
        content = [block for block in kept if block is not None]
        out.append({"role": message["role"], "content": content or [placeholder(message["role"])]})
    return out


def _edit(block: Block, seen: set[str]) -> Block | None:
    ids = [called for called in block["tool_use_ids"] if called in seen]
    return {**block, "tool_use_ids": ids} if ids else None


def visible_images(view: View) -> list[tuple[Image, Block]]:
    """Return the images and PDF documents of a view with their places, oldest first."""
    found: list[tuple[Image, Block]] = []
    for group in view.groups:
        for piece in group.pieces:
            gone = view.overrides.images.get(piece.uuid, frozenset())
            for ordinal, block in media_in(as_blocks(piece.message)):
                if ordinal not in gone:
                    found.append((Image(piece.uuid, ordinal), block))
    return found


def _images_to_drop(view: View, limits: PrefixRendered) -> ImagesDropped:
    """Return the decision to drop images until the others fit a request, the oldest first and many at once.

    Where earlier content has to stay as it was, the newest go instead, as long as they were never sent.
    """
    measured = [(place, image_totals([block])) for place, block in visible_images(view)]
    unsent: set[str] = set()
    if "preserved_thinking" in limits.capabilities and view.final is not None and view.final.role == "user":
        unsent = {piece.uuid for piece in view.final.pieces}
    kept = _without_newest(measured, unsent, limits)
    if sum((totals for _, totals in kept), NO_IMAGES).excess(limits):
        kept = _without_oldest(measured, limits)
    stays = {place for place, _ in kept}
    gone = [place for place, _ in measured if place not in stays]
    moves = any(place.message not in unsent for place in gone)
    return ImagesDropped(Cause("request", view.images.excess(limits), moves_prefix=moves), gone, IMAGE_GONE)


def _without_newest(measured: list[_Measured], unsent: set[str], limits: PrefixRendered) -> list[_Measured]:
    """Return the images without the newest ones that were never sent, as many as have to go."""
    kept = measured.copy()
    while kept and kept[-1][0].message in unsent and sum((totals for _, totals in kept), NO_IMAGES).excess(limits):
        kept.pop()
    return kept


def _without_oldest(measured: list[_Measured], limits: PrefixRendered) -> list[_Measured]:
    """Return the images without those that are too large, and without the oldest if the others are still too many."""
    many = sum((totals for _, totals in measured), NO_IMAGES).is_many(limits)
    kept = [
        one
        for one in measured
        if one[1].largest <= limits.max_image_bytes and one[1].pages <= limits.max_images and not (many and one[1].wide)
    ]
    count = sum(totals.count + totals.pages for _, totals in kept)
    chars, most_chars = sum(totals.chars for _, totals in kept), max_media_chars(limits)
    first = 0
    if count > limits.max_images or chars > most_chars:
        while count > limits.max_images * KEPT_IMAGES or chars > most_chars * KEPT_IMAGES:
            gone = kept[first][1]
            count, chars = count - gone.count - gone.pages, chars - gone.chars
            first += 1
    return kept[first:]


def _fewer_images(view: View, messages: list[Message], limits: PrefixRendered | None) -> list[Message]:
    """Return the messages with text in place of the images that ``_images_to_drop`` names."""
    gone = _images_to_drop(view, limits or NO_PREFIX).images
    shown = view.overrides.without_images((image.message, image.ordinal) for image in gone)
    groups = view.groups
    redrawn = [render(group, shown, last=at == len(groups) - 1) for at, group in enumerate(groups)]
    return [*redrawn, *messages[len(groups) :]]
