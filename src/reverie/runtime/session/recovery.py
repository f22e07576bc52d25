"""Recover from a provider's refusal: change the view by a logged decision, so that the next request is another one."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ...cache.usage import usage_of
from ...conversation.decisions import Cause, Image, ImagesDropped, ThinkingDropped, ThinkingRepaired, WindowLearned
from ...conversation.thinking import replies_with_thinking, thinking_tokens
from ...conversation.view import View
from ...conversation.wire.blocks import IMAGE_GONE, Block, as_blocks
from ...conversation.wire.images import image_problem, media_in
from ...conversation.wire.request import build_request, visible_images
from ...errors import (
    CompactionError,
    ImageRefused,
    ModelError,
    PromptTooLong,
    StorageConflict,
    StorageError,
    ThinkingRefused,
)
from ...events import FellBack
from ...model_facts import ModelFacts
from ...ports import Storage
from ...values import object_of
from .compact.draft import CompactionReport
from .log import SessionLog
from .parts import SessionParts

KEY: Final = "windows.json"
_LEAST_TOKENS: Final = 1_024
"""No model that can be an agent has a smaller window: a smaller number in an error is about something else."""


async def recover(log: SessionLog, parts: SessionParts, error: ModelError) -> bool:
    """Change the view after a refusal of the last request; return False if that cannot help, so that it stays."""
    match error:
        case ImageRefused():
            return await _drop_image(log, parts.policy.facts, error)
        case PromptTooLong():
            await learn_window(log, parts, error)
            try:
                await make_room(log, parts, error)
            except CompactionError:
                return False
            return True
        case ThinkingRefused():
            field = "" if parts.policy.messages_only else parts.policy.facts.binding_fields[0]
            return await _repair_thinking(log, error, field)
        case _:
            return False


async def make_room(log: SessionLog, parts: SessionParts, error: PromptTooLong | None) -> CompactionReport:
    """Learn the window from a refusal and compact below its limit; without one, compact a window that is full.

    Raise ``CompactionError`` if that frees too little: each success makes the prompt shorter, so refusals end.
    """
    if error is None:
        return await parts.compact.reactively(None, None)
    await learn_window(log, parts, error)
    return await parts.compact.reactively(error.tokens, error.limit)


async def _repair_thinking(log: SessionLog, error: ThinkingRefused, field: str) -> bool:
    """Ask the provider from now on to drop thinking that it would refuse; without that option, drop all thinking.

    ``field`` is the name of the option, empty if options do not reach the provider. This happens once; return False
    if thinking was refused although it was repaired before.
    """
    view = log.view
    why = "the provider refused a thinking block"
    prefix = view.facts.prefix
    thinking: Any = prefix.options.get("thinking") if prefix is not None else None
    checks = prefix is not None and "preserved_thinking" in prefix.capabilities
    can_drop = field and checks and (thinking is None or thinking.get("type") in ("adaptive", "enabled"))
    if can_drop and not view.facts.drops_refused_thinking:
        await log.decide(ThinkingRepaired(Cause("request", why, moves_prefix=True), str(error), field))
    else:
        left = replies_with_thinking(view)
        if not left:
            return False
        cause = Cause("request", f"{why}, and it cannot be asked to drop such blocks", moves_prefix=True)
        await log.decide(ThinkingDropped(cause, left, tokens=thinking_tokens(view, left)))
    log.emit(FellBack(log.name, "thinking", f"{why}; repaired for the rest of this session: {error}"))
    return True


async def _drop_image(log: SessionLog, facts: ModelFacts, error: ImageRefused) -> bool:
    """Log that an image which the provider refused is no longer sent; return False if there is no image to drop.

    Each refusal drops at least one image, so refusals come to an end.
    """
    view = log.view
    places = _refused_places(view, facts, error)
    if not places:
        return False
    newest = {piece.uuid for piece in view.final.pieces} if view.final is not None else set[str]()
    moves = any(place.message not in newest for place in places)
    await log.decide(
        ImagesDropped(Cause("request", "the provider refused an image", moves_prefix=moves), places, IMAGE_GONE)
    )
    log.emit(FellBack(log.name, "images", f"an image is no longer sent: {error}"))
    return True


def _refused_places(view: View, facts: ModelFacts, error: ImageRefused) -> list[Image]:
    """Return the images that a refusal may mean: the one it names, else those with a fault, else the newest."""
    held = visible_images(view)
    named = _named_images(view, error)
    near = [one for one in held if any(one[1] is block for block in named)] or held
    many = len(held) > facts.many_images
    faulty = [one for one in near if image_problem(one[1], facts, many) is not None]
    return [place for place, _ in faulty or near[-1:]]


def _named_images(view: View, error: ImageRefused) -> list[Block]:
    """Return the image at the place that a refusal names; all images of its message if the place has none."""
    messages: list[Any] = build_request(view)["messages"]
    if error.message_index >= len(messages):
        return []
    blocks = as_blocks(messages[error.message_index])
    block: Any = blocks[error.block_index] if error.block_index < len(blocks) else {}
    if error.part_index is not None:
        content: Any = block.get("content")
        parts = cast("list[Block]", content) if isinstance(content, list) else []
        block = parts[error.part_index] if error.part_index < len(parts) else {}
    return [block] if block.get("type") in ("image", "document") else [one for _, one in media_in(blocks)]


def learned_windows(storage: Storage) -> dict[str, int]:
    """Return the windows that refusals taught, by model; empty if they cannot be read. This may block."""
    return _read(storage)[0]


async def read_windows(log: SessionLog, parts: SessionParts) -> None:
    """Give the session's policy the windows that earlier sessions learned."""
    for model, tokens in (await log.run_blocking(lambda: learned_windows(parts.storage))).items():
        parts.policy.learn_window(model, tokens)


async def learn_window(log: SessionLog, parts: SessionParts, error: PromptTooLong) -> bool:
    """Lower the window of the model in use to the limit of a refusal, log and keep it; return whether it changed."""
    policy = parts.policy
    tokens = _taught(error, log.view)
    if not _LEAST_TOKENS <= tokens < policy.window_tokens:
        return False
    is_named = error.window is not None
    why = "the provider named it in a refusal" if is_named else "the provider refused a request of about this size"
    model = policy.model_name
    await log.decide(WindowLearned(Cause("compact", why), model, tokens, is_named))
    policy.learn_window(model, tokens)
    parts.fit_window()
    if is_named:
        try:
            await log.run_blocking(lambda: _keep(parts.storage, model, tokens))
        except StorageError as problem:
            log.emit(FellBack(log.name, "window", f"the window of {model} holds in this session only: {problem}"))
    return True


def _taught(error: PromptTooLong, view: View) -> int:
    """Return the window that a refusal names, or one below the refused count and not below an accepted one."""
    if error.by_bytes or (error.tokens is not None and error.limit is not None and error.tokens <= error.limit):
        return 0
    if error.window is not None:
        return error.window
    call = view.facts.last_call
    accepted = usage_of(call.usage).input if call is not None and view.token_count.known else 0
    return max(accepted, view.token_count.tokens * 9 // 10)


def _read(storage: Storage) -> tuple[dict[str, int], str | None]:
    """Return the learned windows by model, and the version of their document; none if it cannot be read."""
    try:
        document = storage.read(KEY)
    except StorageError:
        return {}, None
    if document is None:
        return {}, None
    try:
        found: Any = msgspec.json.decode(document.data)
    except (msgspec.DecodeError, ValueError):  # also for a byte that is no UTF-8
        found = {}
    windows = {name: one for name, one in object_of(found).items() if isinstance(one, int) and one >= _LEAST_TOKENS}
    return windows, document.version


def _keep(storage: Storage, model: str, tokens: int) -> None:
    """Write a learned window beside those of other models; another process may write at the same time."""
    for _ in range(8):
        windows, version = _read(storage)
        data = msgspec.json.format(msgspec.json.encode({**windows, model: tokens}), indent=2)
        try:
            storage.write(KEY, data, expect=version, create=version is None)
        except StorageConflict:
            continue
        return
