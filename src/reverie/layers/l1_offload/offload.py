"""Move results to disk: a file is durable before its decision exists; on failure the full result stays."""

from __future__ import annotations

import hashlib
from typing import Final

from ...conversation.decisions import Cause, Decision, Replacement, ResultOffloaded, ResultsCleared, ResultsKept
from ...conversation.view import View
from ...errors import StorageConflict, StorageError, UnsafePath
from ...ports import Storage
from ...values import record
from .content import Content, Output
from .plan import (
    RESULTS,
    Aggregate,
    Duplicate,
    KeepResult,
    Offload,
    Placeholder,
    SeenResults,
    frees,
    plan_aggregate,
    plan_result,
    result_key,
    shown_text,
)
from .policy import OffloadPolicy

LAYER: Final = "offload"


@record
class ResultStore:
    """A session's folder in a storage, in which its results are stored.

    ``root`` is the directory of the storage on disk; empty if the storage does not use files.
    """

    storage: Storage
    folder: str
    root: str = ""


@record
class OffloadResult:
    """The content to log for one result (None for a whole message), and the decisions to log before it.

    ``fallback`` is the reason why a result stayed whole although it should have moved to disk; None if none did.
    """

    content: Content | None = None
    before: tuple[Decision, ...] = ()
    fallback: str | None = None


def offload_result(
    store: ResultStore,
    tool: str,
    tool_use_id: str,
    output: Output,
    policy: OffloadPolicy,
    view: View,
    *,
    declared: float | None = None,
    known: SeenResults | None = None,
) -> OffloadResult:
    """Plan one result before it enters the view, store it if the plan says so, and return the content to log.

    ``declared`` is the tool's own limit in characters. ``known`` is an index that follows the session; without it
    the whole view is read. If storing fails, the full content is returned with a ``fallback``.
    """
    known = known or SeenResults()
    plan = plan_result(tool, tool_use_id, output, policy, view, declared, known=known)
    match plan:
        case KeepResult():
            return OffloadResult(plan.content)
        case Placeholder():
            return OffloadResult(plan.content, (_replaced(tool_use_id, plan, "an empty result"),))
        case Duplicate():
            return OffloadResult(
                plan.content, (_replaced(tool_use_id, plan, f"identical to {plan.first}, which is in view"),)
            )
        case Offload():
            try:
                path = _store(store, plan, known.follow(view))
            except StorageError as error:
                return OffloadResult(plan.form.content, fallback=_fallback(plan, error))
            reason = "its bytes are no text" if plan.whole else "over the limit of its tool"
            decision = _offloaded(plan, policy, path, store.root, reason)
            return OffloadResult(decision.text, (decision,))


def offload_aggregate(
    store: ResultStore, view: View, policy: OffloadPolicy, *, known: SeenResults | None = None
) -> OffloadResult:
    """Store the largest results of the last message until the others fit; return the decisions to move or keep."""
    known = known or SeenResults()
    stored: dict[str, ResultOffloaded] = {}
    failures: dict[str, str] = {}
    while True:
        plan = plan_aggregate(view, policy, folder=store.folder, root=store.root, unwritable=failures)
        failed = False
        for offload in plan.offloads:
            if offload.tool_use_id in stored:
                continue
            try:
                path = _store(store, offload, known.follow(view))
            except StorageError as error:
                failures[offload.tool_use_id] = _fallback(offload, error)
                failed = True
                break
            reason = f"the results of one message were over {policy.aggregate_chars:,} characters"
            stored[offload.tool_use_id] = _offloaded(offload, policy, path, store.root, reason)
        if not failed:
            break
    moved = (stored[offload.tool_use_id] for offload in plan.offloads)
    return OffloadResult(before=(*moved, *kept_whole(plan)), fallback="; ".join(failures.values()) or None)


def kept_whole(plan: Aggregate) -> list[Decision]:
    """Return the decision that the results which a plan leaves whole stay in the view; an empty list without any."""
    return [ResultsKept(Cause(LAYER, "seen and left whole"), list(plan.kept))] if plan.kept else []


def read_stored(storage: Storage, path: str, sha256: str) -> bytes:
    """Return the bytes of a stored result; raise ``StorageError`` if the path, the file or its hash is wrong."""
    if path.split("/")[-2:-1] != [RESULTS]:
        raise UnsafePath(f"{path!r} is no place where results are kept; give a path under {RESULTS}/", path=path)
    document = storage.read(path)
    if document is None:
        raise StorageError(f"the result stored at {path} is gone; restore that file from a backup", path=path)
    if hashlib.sha256(document.data).hexdigest() != sha256:
        raise StorageError(
            f"the result stored at {path} has been changed since; restore that file from a backup", path=path
        )
    return document.data


def _store(store: ResultStore, offload: Offload, known: SeenResults) -> str:
    """Store the bytes durably and return their path; bytes that the session stored before keep their path."""
    storage, folder = store.storage, store.folder
    before = known.path(f"{folder}/{RESULTS}", offload.sha256)
    if before is not None and _is_stored(storage, before, offload):
        return before
    keys = result_key(folder, offload), result_key(folder, offload, hashed=True)
    for key in keys:
        try:
            storage.write(key, offload.form.data, create=True)
        except StorageConflict:
            if not _is_stored(storage, key, offload):
                continue
        known.stored(key, offload.sha256)
        return key
    raise StorageError(f"cannot store at {keys[1]}: other content is there; move that file away", path=keys[1])


def _is_stored(storage: Storage, key: str, offload: Offload) -> bool:
    document = storage.read(key)
    return document is not None and document.data == offload.form.data


def _offloaded(offload: Offload, policy: OffloadPolicy, path: str, root: str, reason: str) -> ResultOffloaded:
    text = shown_text(offload, policy, path, root=root)
    cause = Cause(LAYER, reason, frees(offload.form.content, text))
    form = offload.form
    return ResultOffloaded(cause, offload.tool_use_id, text, path, offload.sha256, len(form.data), form.media)


def _replaced(tool_use_id: str, plan: Placeholder | Duplicate, reason: str) -> ResultsCleared:
    tokens = frees(plan.content, "")
    cause = Cause(LAYER, reason, frees(plan.content, plan.text))
    return ResultsCleared(cause, [Replacement(tool_use_id, plan.text, tool_use_id, tokens)])


def _fallback(offload: Offload, error: StorageError) -> str:
    lost = "; bytes that are no UTF-8 are shown as U+FFFD" if offload.form.media == "bytes" else ""
    return f"the result of {offload.tool_use_id} passes whole: {error}{lost}"
