"""Index of earlier tool results, to find a duplicate in constant time."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, TypeAlias, cast

from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from .content import Content, result_forms

_Key: TypeAlias = str | bytes


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
