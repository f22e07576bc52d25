"""Plan the handling of a new result, and of all results of one message before it is sent. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from math import inf
from typing import Any, Final, TypeAlias, cast

from ...conversation.entries import USER
from ...conversation.tokens.estimate import estimate_block
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...values import record
from .content import (
    Content,
    Output,
    ResultForms,
    empty_text,
    has_media,
    is_empty,
    persisted_text,
    repeated_text,
    result_forms,
    size_chars,
    text_of,
)
from .policy import OffloadPolicy, limit_chars

RESULTS: Final = "tool-results"
_CHARS_A_TOKEN: Final = 4
_SHORT_CHARS: Final = 100_000
_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,160}\Z")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_Key: TypeAlias = str | bytes


@record
class KeepResult:
    """A plan to keep a result as it is; the budget of its whole message may still move it to disk."""

    content: Content


@record
class Offload:
    """A plan to move a result's bytes to a file, with their SHA-256 hash."""

    tool_use_id: str
    form: ResultForms
    sha256: str
    whole: bool = False
    """Whether the view shows the full content; the file then exists only because the bytes are not valid text."""


@record
class Placeholder:
    """A plan to replace an empty result by a text that says so."""

    content: Content
    text: str


@record
class Duplicate:
    """A plan to replace a result by a text that refers to ``first``, the call whose equal result is in view."""

    content: Content
    first: str
    text: str


Plan: TypeAlias = KeepResult | Offload | Placeholder | Duplicate


@record
class Aggregate:
    """The results of the next message that move to disk and those that stay, to fit one budget if possible."""

    offloads: tuple[Offload, ...]
    kept: tuple[str, ...]
    """Ids of the newly decided results that stay; layer 1 never offloads them later."""
    chars: int
    """Characters of all results of the message that stay in full."""


@record
class _Fresh:
    tool_use_id: str
    content: Content
    chars: int


def plan_result(
    tool: str,
    tool_use_id: str,
    output: Output,
    policy: OffloadPolicy,
    view: View,
    declared: float | None = None,
    *,
    known: SeenResults | None = None,
) -> Plan:
    """Return the plan for one result before it enters the view: keep, offload, placeholder or duplicate.

    ``declared`` is the tool's own limit in characters; ``known`` is an index of the view, if the caller keeps one.
    """
    form = result_forms(output)
    content = form.content
    limit = limit_chars(policy, tool, declared)
    is_large = limit is not None and _chars(content, policy) > limit
    if is_empty(content) and not is_large:
        return Placeholder(content, empty_text(tool))
    if has_media(content):
        return KeepResult(content)
    first = _repeated(form, tool_use_id, policy, view, known)
    if first is not None:
        use = view.tool_call(first)
        said = repeated_text(first, use.name if use is not None else "", size_bytes=len(form.data), handle=tool_use_id)
        return Duplicate(content, first, said)
    if is_large:
        return offload_of(tool_use_id, form)
    return offload_of(tool_use_id, form, whole=True) if form.media == "bytes" else KeepResult(content)


def stays_in_view(tool: str, output: Output, policy: OffloadPolicy, declared: float | None = None) -> bool:
    """Say whether one result is a text so short that its plan neither stores it nor takes long."""
    if not isinstance(output, str) or len(output) > _SHORT_CHARS:
        return False
    limit = limit_chars(policy, tool, declared)
    return limit is None or _chars(output, policy) <= limit


def plan_aggregate(
    view: View, policy: OffloadPolicy, *, folder: str = "", root: str = "", unwritable: Collection[str] = ()
) -> Aggregate:
    """Return which results of the last message move to disk so that the others fit ``policy.aggregate_chars``.

    Earlier decisions are final: replaced results stay replaced, kept ones stay in full. Of the others, the largest move
    to disk until the rest fits the budget. If the results that must stay exceed the budget alone, they stay.
    """
    fresh: list[_Fresh] = []
    movable: list[_Fresh] = []
    total = 0
    for tool, called, content in _last_results(view):
        if called in view.overrides.results:
            continue
        chars = _chars(content, policy)
        total += chars
        if view.is_kept(called):
            continue
        fresh.append(_Fresh(called, content, chars))
        pinned = called in view.facts.pinned or called in unwritable
        if not pinned and not has_media(content) and limit_chars(policy, tool) is not None:
            movable.append(fresh[-1])
    offloads: list[Offload] = []
    for one in sorted(movable, key=lambda one: -one.chars):
        if total <= policy.aggregate_chars:
            break
        offload = offload_of(one.tool_use_id, result_forms(one.content))
        if len(shown_text(offload, policy, result_key(folder, offload), root=root)) < one.chars:
            offloads.append(offload)
            total -= one.chars
    gone = {offload.tool_use_id for offload in offloads}
    return Aggregate(tuple(offloads), tuple(one.tool_use_id for one in fresh if one.tool_use_id not in gone), total)


def offload_of(tool_use_id: str, form: ResultForms, *, whole: bool = False) -> Offload:
    """Return the plan to move a result to disk; ``whole`` makes the view still show its full content."""
    return Offload(tool_use_id, form, hashlib.sha256(form.data).hexdigest(), whole)


def shown_text(offload: Offload, policy: OffloadPolicy, path: str, *, root: str = "") -> str:
    """Return the text shown for an offloaded result: a preview with ``root/path``, or all of it if ``whole``."""
    text = text_of(offload.form.content)
    if offload.whole:
        return text
    return persisted_text(
        text,
        size_bytes=len(offload.form.data),
        path=f"{root.rstrip('/')}/{path}" if root else path,
        handle=offload.tool_use_id,
        preview_bytes=policy.preview_bytes,
    )


def frees(content: Content, text: str) -> int:
    """Estimate the tokens saved by showing a text in place of a content; never below 0."""
    return max(0, _tokens(content) - _tokens(text))


def _chars(content: Content, policy: OffloadPolicy) -> int:
    """Count the characters of a result; in a small window, dense text counts as four characters a token."""
    chars = size_chars(content)
    if policy.window_chars == inf or has_media(content):
        return chars
    return max(chars, _CHARS_A_TOKEN * _tokens(content))


def _tokens(content: Content) -> int:
    return estimate_block({"type": "tool_result", "content": content})


def result_key(folder: str, offload: Offload, *, hashed: bool = False) -> str:
    """Return the storage key of a result: its call id, made safe by a hash, and, if ``hashed``, its own hash."""
    called = offload.tool_use_id
    if not _PLAIN_ID.match(called):
        mark = hashlib.sha256(called.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        called = f"{_UNSAFE.sub('-', called)[:64]}-{mark}"
    name = f"{called}-{offload.sha256}" if hashed else called
    return f"{folder}/{RESULTS}/{name}.{'json' if offload.form.media == 'json' else 'txt'}"


def _repeated(
    form: ResultForms, tool_use_id: str, policy: OffloadPolicy, view: View, known: SeenResults | None
) -> str | None:
    if form.media == "bytes" or not policy.duplicate_min_bytes <= len(form.data) <= policy.duplicate_max_bytes:
        return None
    return (known or SeenResults()).follow(view).first(view, form.content, but=tool_use_id)


def _last_results(view: View) -> Iterator[tuple[str, str, Content]]:
    """Yield tool name, call id and content of each result in the last message that answers an awaited call."""
    group = view.final
    if group is None or group.role != USER:
        return
    waiting = set(group.expects)
    for piece in group.pieces:
        for block in as_blocks(piece.message):
            if block["type"] != "tool_result" or block["tool_use_id"] not in waiting:
                continue
            called: str = block["tool_use_id"]
            waiting.discard(called)
            use = view.tool_call(called)
            yield (use.name if use is not None else ""), called, block.get("content") or ""


class SeenResults:
    """Index of call ids by the content of their results in a view, and of storage paths by folder and hash.

    The index grows with the view and is rebuilt after a cut. It is derived from the view alone, so a resumed session
    builds it again.
    """

    def __init__(self) -> None:
        self._cuts = -1
        self._seen = 0
        self._calls: dict[_Key, list[str]] = {}
        self._paths: dict[tuple[str, str], str] | None = None

    def follow(self, view: View) -> SeenResults:
        """Add the results that the view gained since the last call, or all after a cut, and return this index."""
        if view.cuts != self._cuts:
            self._cuts, self._seen, self._calls = view.cuts, 0, {}
        for result in view.results_from(self._seen):
            self._seen += 1
            if result.tool_use_id in view.overrides.results or result.has_images:
                continue
            content: Any = as_blocks(result.piece.message)[0].get("content")
            if isinstance(content, (str, list)) and content:
                self._calls.setdefault(_key(cast(Content, content)), []).append(result.tool_use_id)
        if self._paths is None:
            self._paths = {}
            for decision in view.offloads():
                self.stored(decision.path, decision.sha256)
        return self

    def restart(self) -> None:
        """Make the next ``follow`` read the whole view again, because earlier results returned to it."""
        self._cuts = -1

    def first(self, view: View, content: Content, *, but: str = "") -> str | None:
        """Return the id of the first call except ``but`` whose result in view is exactly ``content``; else None.

        Leading calls whose results were replaced since then are dropped from the index here.
        """
        calls = self._calls.get(_key(content), [])
        while calls and not _is_shown(view, calls[0]):
            del calls[0]
        return next((called for called in calls if called != but and _is_shown(view, called)), None)

    def stored(self, path: str, sha256: str) -> None:
        """Remember the path at which bytes are stored; the first path for the same bytes wins."""
        if self._paths is None:
            self._paths = {}
        self._paths.setdefault((path.rpartition("/")[0], sha256), path)

    def path(self, place: str, sha256: str) -> str | None:
        """Return the path in this folder at which the same bytes are stored; None if there is none."""
        return (self._paths or {}).get((place, sha256))


def _key(content: Content) -> _Key:
    """Return the index key of a result: its text, which the view holds in memory anyway, or a digest of blocks."""
    return content if isinstance(content, str) else blake2b(result_forms(content).data, digest_size=32).digest()


def _is_shown(view: View, called: str) -> bool:
    """Say whether a call's result was neither replaced in the view nor cleared by the provider."""
    if called in view.overrides.results or called in view.facts.cleared_by_provider:
        return False
    return not any(called in edit.tool_use_ids for edit in view.facts.edits)
