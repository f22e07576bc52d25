"""Layer 1 in a session: move big tool results to disk as they arrive and before a request."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, cast

from ....conversation.decisions import Collapsed, Compacted, CompactionUndone, ResultsRestored, Snipped
from ....conversation.wire.blocks import Block
from ....conversation.wire.documents import has_pages
from ....conversation.wire.images import ImageTotals
from ....events import DecisionMade, Event, FellBack
from ....extras import install_command
from ....layers.l1_offload import (
    CheckedImage,
    Content,
    OffloadPolicy,
    OffloadResult,
    ResultStore,
    SeenResults,
    check_document,
    check_image,
    kept_whole,
    offload_aggregate,
    offload_result,
    plan_aggregate,
    stays_in_view,
)
from ....model_facts import ModelFacts
from ....ports import Storage
from ..log import SessionLog
from ..replies import result_content

if TYPE_CHECKING:
    from PIL.Image import Image

_REDRAWS = (Collapsed, Compacted, CompactionUndone, ResultsRestored, Snipped)
_QUALITIES: Final = (85, 70, 50)
_SMALLEST_SIDE: Final = 64


class Offloader:
    """Runs layer 1 for one session: on each result as it arrives, and on all results of a message together."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        policy: OffloadPolicy,
        facts: Callable[[], ModelFacts],
        *,
        root: str = "",
    ) -> None:
        """Store results under a session's folder; ``root`` is the directory where a person finds the storage.

        ``facts`` returns the limits of the model in use.
        """
        self.policy = policy
        self.enabled = True
        self._store = ResultStore(storage, folder, root)
        self.images = ImageIntake(self._store, facts)
        self._known = SeenResults()

    def on_event(self, event: Event) -> None:
        """Restart the index of earlier results after a decision that changes which results the view shows."""
        if isinstance(event, DecisionMade) and isinstance(event.decision, _REDRAWS):
            self._known.restart()

    async def result(self, log: SessionLog, tool: str, handle: str, output: Any, max_chars: float | None) -> Content:
        """Move a big result to disk, log the decision about it, and return the content to log as the result."""
        content = await self.images.admitted(log, result_content(output))
        if not self.enabled:
            return content
        given = bytes(output) if isinstance(output, (bytes, bytearray)) else content

        def offload() -> OffloadResult:
            return offload_result(
                self._store, tool, handle, given, self.policy, log.view, declared=max_chars, known=self._known
            )

        stays = stays_in_view(tool, given, self.policy, max_chars)
        await self._log(log, applied := offload() if stays else await log.run_blocking(offload))
        assert applied.content is not None  # only the results of a whole message have none
        return applied.content

    async def before_request(self, log: SessionLog) -> None:
        """Offload results of the message about to be sent until together they fit the budget of a message."""
        if not self.enabled:
            return

        def offload() -> OffloadResult:
            return offload_aggregate(self._store, log.view, self.policy, known=self._known)

        plan = plan_aggregate(log.view, self.policy)
        if plan.offloads:
            await self._log(log, await log.run_blocking(offload))
        else:
            await log.decide_all(kept_whole(plan), sync=False)

    async def _log(self, log: SessionLog, applied: OffloadResult) -> None:
        if applied.fallback is not None:
            log.emit(FellBack(log.name, "offload", applied.fallback))
        await log.decide_all(applied.before, sync=False)


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


def can_scale() -> bool:
    """Say whether Pillow is installed."""
    return find_spec("PIL") is not None


def scaled(data: bytes, max_side: int, max_bytes: int) -> bytes | None:
    """Return an upright copy of an image with sides and bytes within limits, as PNG or JPEG; None if that fails."""
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(data)) as opened:
            opened.draft("RGB", (max_side, max_side))
            image = ImageOps.exif_transpose(opened)
        lossless = opened.format != "JPEG"
        while max(image.size) >= _SMALLEST_SIDE:
            image.thumbnail((max_side, max_side))
            made = _encoded(image, max_bytes, lossless)
            if made is not None:
                return made
            max_side = max(image.size) // 2
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):  # SyntaxError: a broken PNG
        pass
    return None


def _encoded(image: Image, max_bytes: int, lossless: bool) -> bytes | None:
    """Return an image as the first of PNG (if ``lossless``) and JPEG of falling quality that fits; else None."""
    if lossless:
        plain = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGBA")
        made = BytesIO()
        plain.save(made, "PNG")
        if made.tell() <= max_bytes:
            return made.getvalue()
    from PIL import Image

    opaque = image.convert("RGBA")
    flat = Image.new("RGB", image.size, "white")
    flat.paste(opaque, mask=opaque.getchannel("A"))
    for quality in _QUALITIES:
        made = BytesIO()
        flat.save(made, "JPEG", quality=quality)
        if made.tell() <= max_bytes:
            return made.getvalue()
    return None
