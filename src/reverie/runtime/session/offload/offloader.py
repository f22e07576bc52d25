"""Layer 1 at work in a session: where results go, by which policy, and what is known of earlier ones."""

from __future__ import annotations

from ....conversation.view import View
from ....layers.l1_offload import Applied, Known, OffloadPolicy, Output, offload_aggregate, offload_result
from ....ports import Storage

__all__ = ["Offloading"]


class Offloading:
    """Runs layer 1 for one session: on each result as it comes, and on all of a message before it is sent."""

    def __init__(self, storage: Storage, folder: str, policy: OffloadPolicy, *, root: str = "") -> None:
        self._storage = storage
        self._folder = folder
        self.policy = policy
        self._root = root
        self._known = Known()

    def result(self, view: View, tool: str, handle: str, output: Output, max_chars: float | None) -> Applied:
        """Decide on one result before it enters the view."""
        return offload_result(
            self._storage,
            self._folder,
            tool,
            handle,
            output,
            self.policy,
            view,
            root=self._root,
            declared=max_chars,
            known=self._known,
        )

    def message(self, view: View) -> Applied:
        """Decide on the results of the message that is about to be sent, together."""
        return offload_aggregate(self._storage, self._folder, view, self.policy, root=self._root, known=self._known)

    def restart(self) -> None:
        """Look through the whole view at the next result, because old ones have come back into it."""
        self._known.restart()
