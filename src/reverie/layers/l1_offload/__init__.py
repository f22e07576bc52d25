"""Layer 1, offload: big tool results move to disk, and a preview stays in the view.

It runs on every tool result before the result enters the view, and once more on all results of a message before the
message is first sent. It costs disk space and no model call. It never changes the cached prefix: it decides only on
bytes that were never sent, and a decision is final. If the disk fails, the full result stays in the view and the caller
gets the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .content import OPENING, Content, result_forms, text_of
    from .images import CheckedImage, check_document, check_image
    from .offload import OffloadResult, ResultStore, kept_whole, offload_aggregate, offload_result, read_stored
    from .plan import RESULTS, SeenResults, plan_aggregate, stays_in_view
    from .policy import OffloadPolicy, fitted_policy


__getattr__ = lazily_from(__name__, "policy", "content", "plan", "offload", "images")
