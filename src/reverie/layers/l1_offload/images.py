"""Check an image or a PDF before it enters the view: it is shown, or a copy that fits, or a text with a handle."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...conversation.decisions import Cause, ResultOffloaded
from ...conversation.wire.blocks import Block, text_block
from ...conversation.wire.documents import PDF, document_pages, pdf_data, pdf_problem
from ...conversation.wire.images import ImageTotals, base64_head, image_data, image_problem, image_totals, is_media
from ...errors import StorageConflict, StorageError
from ...model_facts import ModelFacts
from ...values import record
from .content import image_text, scaled_text
from .offload import LAYER, ResultStore
from .plan import RESULTS

Scale: TypeAlias = Callable[[bytes, int, int], bytes | None]
"""Return a copy of an image within a side in pixels and a number of bytes; None if it cannot be made."""
_ENDINGS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", PDF: "pdf"}
_NAMES: Final = {"image": "an image", "document": "a document"}


@record
class CheckedImage:
    """The blocks to log in place of an image, and the decision that keeps its original, to log before them."""

    blocks: tuple[Block, ...]
    decision: ResultOffloaded | None = None
    fallback: str = ""
    """The reason why the original could not be stored; empty if it was, or if the image is shown as it is."""

    @property
    def pictures(self) -> ImageTotals:
        """The totals of the images and documents that are shown."""
        return image_totals(block for block in self.blocks if is_media(block))


def check_image(
    store: ResultStore, block: Block, facts: ModelFacts, held: ImageTotals, scale: Scale | None
) -> CheckedImage:
    """Return an image as a provider accepts it, now and beside many others; ``held`` are the images in the view.

    Without ``scale``, an image that is too large is shown as a text. On a model that checks earlier content, images in
    the view stay, so a new one that would be too much for a request is shown as a text too.
    """
    fixed = _fixed(block)
    given = image_data(fixed)
    wanted = image_problem(fixed, facts, many=True)
    shown, problem = fixed, image_problem(fixed, facts, many=False)
    if wanted is not None and scale is not None and given is not None:
        smaller = _scaled(given[0], facts, scale)
        if smaller is not None:
            shown, problem = smaller, None
    if problem is None:
        problem = _no_room(image_totals([shown]), facts, held)
    if problem is None and shown is fixed:
        return CheckedImage((fixed,))
    if given is None:  # the image is at an address, and there is nothing to store
        return CheckedImage((text_block(image_text(problem or "", str(fixed.get("source")))),))
    return _stored(store, given, shown, problem)


def check_document(store: ResultStore, block: Block, facts: ModelFacts, held: ImageTotals) -> CheckedImage:
    """Return a PDF document as a provider accepts it beside the media in the view, ``held``; else a text."""
    data = pdf_data(block)
    one = image_totals([block])
    alone = one.excess(facts)
    problem = pdf_problem(block) or (f"it has {alone}" if alone else _no_room(one, facts, held))
    if problem is None:
        return CheckedImage((block,))
    if data is None:  # the document is at an address, and there is nothing to store
        return CheckedImage((text_block(image_text(problem, str(block.get("source")), kind="document")),))
    return _stored(store, (data, PDF), block, problem)


def _fixed(block: Block) -> Block:
    """Return an image block without white space in its data, and with the type that its bytes have."""
    given = image_data(block)
    if given is None:
        return block
    data = given[0]
    head = base64_head(data)
    if head is None or any(char in data for char in "\n\r \t"):
        data = "".join(data.split())
        head = base64_head(data)
    media = given[1] if head is None else head.media_type
    if (data, media) == given:
        return block
    return {**block, "source": {"type": "base64", "media_type": media, "data": data}}


def _scaled(text: str, facts: ModelFacts, scale: Scale) -> Block | None:
    """Return an image block with a smaller copy of the image, or None if no copy can be made that fits."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    made = scale(data, facts.many_images_side, facts.max_image_bytes // 4 * 3)
    if made is None:
        return None
    source: dict[str, Any] = {"type": "base64", "media_type": "", "data": base64.b64encode(made).decode()}
    smaller = _fixed({"type": "image", "source": source})
    return smaller if image_problem(smaller, facts, many=True) is None else None


def _no_room(one: ImageTotals, facts: ModelFacts, held: ImageTotals) -> str | None:
    over = (held + one).excess(facts)
    if over and (facts.checks_thinking or (one.wide and held.count >= facts.many_images)):
        return f"the request would have {over}"
    return None


def _stored(store: ResultStore, given: tuple[str, str], shown: Block, problem: str | None) -> CheckedImage:
    """Store an image's original and return the text, or the smaller copy, that is shown with its handle."""
    text, media = given
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = text.encode("utf-8", "surrogatepass")
    kind, sha256 = "document" if media == PDF else "image", hashlib.sha256(data).hexdigest()
    about = f"{media}{_size(text, shown)}, {len(data):,} bytes"
    handle = f"{kind}-{sha256[:16]}"
    path = f"{store.folder}/{RESULTS}/{handle}.{_ENDINGS.get(media, 'bin')}"
    place, fallback = f"{store.root.rstrip('/')}/{path}" if store.root else path, ""
    try:
        _write(store, path, data)
    except StorageError as error:
        handle, fallback = "", f"the original of {_NAMES[kind]} ({about}) could not be stored: {error}"
    if problem is None:
        copy = base64_head(shown["source"]["data"])
        assert copy is not None  # the copy was checked
        said = scaled_text(about, f"{copy.width} x {copy.height}", place, handle)
        blocks = shown, text_block(said)
    else:
        said = image_text(problem, about, place, handle, kind)
        blocks = (text_block(said),)
    if not handle:
        return CheckedImage(blocks, fallback=fallback)
    reason = "an image was scaled down" if problem is None else f"{_NAMES[kind]} cannot be sent: {problem}"
    return CheckedImage(blocks, ResultOffloaded(Cause(LAYER, reason), handle, said, path, sha256, len(data), "bytes"))


def _size(text: str, shown: Block) -> str:
    """Return the pixels of an image or the pages of a document, in words that follow its type."""
    if shown["type"] == "document":
        return f", {document_pages(shown)} pages"
    head = base64_head(text)
    return "" if head is None else f", {head.width} x {head.height} pixels"


def _write(store: ResultStore, path: str, data: bytes) -> None:
    try:
        store.storage.write(path, data, create=True)
    except StorageConflict:
        document = store.storage.read(path)
        if document is None or document.data != data:
            raise StorageError(
                f"cannot store at {path}: other content is there; move that file away", path=path
            ) from None
