"""Images by their first bytes: type, pixels, tokens, and the reason for a refusal."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pictures import gif_head, image_block, jpeg_head, png, webp_head
from reverie.conversation.wire.images import ImageHead, decoded_head, image_head, image_problem, image_tokens
from reverie.model_facts import facts_of

pytestmark = pytest.mark.requirement("V8")

CHECKED = facts_of("claude-opus-5-5")
OLDER = facts_of("claude-haiku-4-5")
BEDROCK = facts_of("us.anthropic.claude-opus-5-5-v1:0")
FORMATS: dict[str, tuple[str, Callable[[int, int], bytes]]] = {
    "png": ("image/png", png),
    "jpeg": ("image/jpeg", jpeg_head),
    "photo": ("image/jpeg", lambda width, height: jpeg_head(width, height, before_bytes=200_000)),
    "gif": ("image/gif", gif_head),
    "VP8": ("image/webp", lambda width, height: webp_head("VP8 ", width, height)),
    "VP8L": ("image/webp", lambda width, height: webp_head("VP8L", width, height)),
    "VP8X": ("image/webp", lambda width, height: webp_head("VP8X", width, height)),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (300, 7), (1280, 9000)])
def test_type_and_size_are_read_from_the_first_bytes(kind: str, size: tuple[int, int]) -> None:
    media, made = FORMATS[kind]
    data = made(*size)
    assert image_head(data) == ImageHead(media, *size)
    assert decoded_head(base64.b64encode(data).decode()).head == ImageHead(media, *size)


@given(st.binary(max_size=64), st.sampled_from(sorted(FORMATS)), st.integers(0, 40))
def test_any_bytes_are_an_image_or_none_and_never_an_error(tail: bytes, kind: str, kept: int) -> None:
    head = image_head(FORMATS[kind][1](3, 4)[:kept] + tail)
    assert head is None or (head.width > 0 and head.height > 0)
    assert decoded_head(base64.b64encode(tail).decode()).valid is bool(tail)


@pytest.mark.parametrize("text", ["", "QUI", "QU=I", "=QUI", "QUJD\n", "QU-_", "Q===", "QUJDé==="])
def test_a_text_that_is_not_base64_is_told(text: str) -> None:
    assert not decoded_head(text).valid
    assert image_problem(image_block(text), CHECKED, many=False) == "invalid base64 data"


@pytest.mark.parametrize(
    ("block", "many", "said"),
    [
        (image_block(png(1280, 9000)), False, "max allowed size: 8000 pixels"),
        (image_block(png(2560, 1440)), True, "many-image requests: 2000 pixels"),
        (image_block(png(8, 8, at_least_bytes=7_600_000)), False, "image exceeds 10 MB maximum"),
        (image_block(png(8, 8), "image/jpeg"), False, "does not match the provided media type image/jpeg"),
        (image_block(b"no image at all"), False, "Could not process image"),
    ],
)
def test_the_reason_of_a_refusal_is_known_before_it(block: dict[str, object], many: bool, said: str) -> None:
    assert said in (image_problem(block, CHECKED, many) or "")


@pytest.mark.parametrize(
    ("block", "many"),
    [
        (image_block(png(8000, 3)), False),
        (image_block(png(2000, 2000)), True),
        (image_block(png(2560, 1440)), False),
        (image_block(png(8, 8, at_least_bytes=5_000_000)), True),
        ({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}, True),
    ],
)
def test_an_image_within_the_limits_has_no_problem(block: dict[str, object], many: bool) -> None:
    assert image_problem(block, CHECKED, many) is None


def test_the_limit_in_bytes_is_that_of_the_platform() -> None:
    block = image_block(png(8, 8, at_least_bytes=4_000_000))
    assert image_problem(block, CHECKED, many=False) is None
    assert "5 MB" in (image_problem(block, BEDROCK, many=False) or "")


@pytest.mark.parametrize(
    ("size", "older", "newer"),
    [((200, 200), 64, 64), ((1000, 1000), 1296, 1296), ((28, 29), 2, 2), ((3840, 2160), 1568, 4784)],
)
def test_tokens_are_patches_up_to_the_models_limit(size: tuple[int, int], older: int, newer: int) -> None:
    assert image_tokens(*size, OLDER) == older
    assert image_tokens(*size, CHECKED) == newer
    assert image_tokens(10_000, 10_000, CHECKED) <= CHECKED.image_tokens
