"""Windows that refusals teach: logged in the session, and kept in the storage for the model."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...cache.usage import usage_of
from ...conversation.decisions import Cause, WindowLearned
from ...conversation.view import View
from ...errors import PromptTooLong, StorageConflict, StorageError
from ...events import FellBack
from ...ports import Storage
from ...values import object_of
from .log import SessionLog
from .parts import SessionParts

KEY: Final = "windows.json"
_LEAST_TOKENS: Final = 1_024
"""No model that can be an agent has a smaller window: a smaller number in an error is about something else."""


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
