"""Check images and PDFs of results, messages and attachments as they enter a session, before their first send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ....conversation.wire.blocks import Block
from ....conversation.wire.documents import has_pages
from ....conversation.wire.images import ImageTotals
from ....events import FellBack
from ....extras import install_command
from ....layers.l1_offload import CheckedImage, ResultStore, check_document, check_image
from ....model_facts import ModelFacts
from ..log import SessionLog
from .image_copies import can_scale, scaled


class ImageIntake:
    """Replaces each new image or PDF that a provider would refuse by a smaller copy or by a text with a handle."""

    def __init__(self, store: ResultStore, facts: Callable[[], ModelFacts]) -> None:
        """Store originals in a session's folder; ``facts`` returns the limits of the model in use."""
        self._store = store
        self._facts = facts
        self._told = False

    async def admitted(self, log: SessionLog, content: str | list[Any]) -> str | list[Any]:
        """Return a message's or result's content with images that can be sent; log where their originals are."""
        if isinstance(content, str) or not any(map(_may_show, content)):
            return content
        checks: list[CheckedImage] = []
        blocks = await log.run_blocking(lambda: self._all(content, log.view.images, checks))
        for checked in checks:
            if checked.decision is not None:
                await log.decide(checked.decision)
            if checked.fallback:
                log.emit(FellBack(log.name, "images", checked.fallback))
        refused = [one.decision for one in checks if one.decision is not None and one.decision.path.count("/image-")]
        if refused and not can_scale() and not self._told:
            self._told = True
            log.emit(
                FellBack(log.name, "images", f"an image is not shown; to scale it down: {install_command('images')}")
            )
        return blocks

    def _all(self, content: list[Any], held: ImageTotals, checks: list[CheckedImage]) -> list[Any]:
        """Return blocks with every image checked, those in tool results too; ``checks`` gets the outcomes in order."""
        out: list[Any] = []
        for block in content:
            if not _may_show(block):
                out.append(block)
            elif block["type"] == "tool_result":
                out.append({**block, "content": self._all(block["content"], held, checks)})
            else:
                now = sum((checked.pictures for checked in checks), held)
                checks.append(self._one(block, now))
                out.extend(checks[-1].blocks)
        return out

    def _one(self, block: Block, held: ImageTotals) -> CheckedImage:
        if block["type"] == "document":
            return check_document(self._store, block, self._facts(), held)
        return check_image(self._store, block, self._facts(), held, scaled if can_scale() else None)


def _may_show(block: Any) -> bool:
    """Say whether a block is an image or a PDF, or a tool result that may have some."""
    if not isinstance(block, dict):
        return False
    fields = cast(Block, block)
    kind = fields.get("type")
    return kind == "image" or has_pages(fields) or (kind == "tool_result" and isinstance(fields.get("content"), list))
