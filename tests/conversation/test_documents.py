"""PDF documents: their pages are counted without a PDF library, and a request never has more than it may."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, text
from pictures import image_block, pdf, pdf_block, png
from reverie.conversation.decisions import Cause, Image, ImagesDropped, PrefixRendered
from reverie.conversation.tokens.estimate import measure_message
from reverie.conversation.wire import images
from reverie.conversation.wire.documents import document_pages, pdf_page_count
from reverie.conversation.wire.request import build_request, repairs
from reverie.conversation.wire.validate import problems

pytestmark = [pytest.mark.requirement("V8"), pytest.mark.requirement("V10")]

OLDER = "claude-haiku-4-5"
BEDROCK = "us.anthropic.claude-opus-5-5-v1:0"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pages", [1, 2, 99, 700])
def test_pages_are_counted_also_in_compressed_objects(pages: int, packed: bool) -> None:
    assert pdf_page_count(pdf(pages, packed=packed)) == pages
    assert document_pages(pdf_block(pdf(pages, packed=packed))) == pages


def test_a_page_that_was_saved_again_counts_once() -> None:
    update = b"3 0 obj\n<< /Type /Page /Parent 2 0 R /Rotate 90 >>\nendobj\n"
    assert pdf_page_count(pdf(5) + update) == 5


def test_without_page_objects_the_number_in_the_page_tree_counts() -> None:
    assert pdf_page_count(b"%PDF-1.4\n2 0 obj << /Type /Pages /Count 12 >> endobj") == 12


@pytest.mark.parametrize(
    "block",
    [
        pdf_block(b"%PDF-1.4 and nothing more"),
        pdf_block("no base64"),
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ],
)
def test_a_document_whose_pages_are_unknown_counts_as_one(block: dict[str, Any]) -> None:
    assert document_pages(block) == 1


def test_a_document_of_text_has_no_pages() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    assert document_pages({"type": "document", "source": source}) == 0


@given(st.binary(max_size=80), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_damaged_bytes_give_a_count_and_never_an_error(noise: bytes, at: int, to: int, packed: bool) -> None:
    data = pdf(3, packed=packed)
    assert pdf_page_count(data[:at] + noise + data[to:]) >= 1


def test_a_small_file_cannot_fill_the_memory() -> None:
    page = b"<< /Type /Page >>"
    places = b"3 0 4 20 5 17000000 "
    stream = zlib.compress(places + page.ljust(20) + page.ljust(16_999_980) + page, 1)
    head = b"%%PDF-1.7\n9 0 obj << /Type /ObjStm /First %d /Filter /FlateDecode >>\nstream\n" % len(places)
    assert len(stream) < 200_000
    assert pdf_page_count(head + stream + b"\nendstream\nendobj") == 2  # the rest is not unpacked


def script_with(model: str = OLDER, **limits: Any) -> Script:
    script = Script()
    script.decide(PrefixRendered(Cause("request", "first"), model, **limits))
    return script


def test_the_oldest_documents_leave_when_there_are_too_many_pages() -> None:
    script = script_with(max_images=100)
    for _ in range(6):
        script.user([text("read this"), pdf_block(pdf(20))])
        script.reply(text("Yes."))
    assert script.view.images.pages == 120
    [planned] = repairs(script.view)
    assert isinstance(planned, ImagesDropped)
    script.decide(planned)
    assert script.view.images.pages == 60
    request = {"model": OLDER, "max_tokens": 100, **build_request(script.view)}
    assert problems(request) == []
    contents = [message["content"] for message in request["messages"] if message["role"] == "user"]
    assert [content[1]["type"] for content in contents[:6]] == ["text"] * 3 + ["document"] * 3
    assert contents[0][1]["text"] == "[PDF document]"


def test_numbers_of_images_are_those_of_older_logs_although_a_document_stands_before_them() -> None:
    script = script_with()
    said = script.user([pdf_block(pdf(1)), image_block(png(1, 1)), image_block(png(2, 2))])
    script.decide(ImagesDropped(Cause("request", "x"), [Image(said, 0)], "[image]"))
    content = script.messages[0]["content"]
    assert [block["type"] for block in content] == ["document", "text", "image"]
    assert content[2] == image_block(png(2, 2))


@pytest.mark.parametrize(
    ("blocks", "limits", "said"),
    [
        ([pdf_block(pdf(101))], {"max_images": 100}, "more than 100 images or PDF pages"),
        ([pdf_block(pdf(60)), *[image_block(png(1, 1))] * 41], {"max_images": 100}, "100 images or PDF pages"),
        ([pdf_block(pdf(1, at_least_bytes=6_000_000))] * 2, {"max_body_bytes": 20_000_000}, "more than 14 MB in all"),
        ([image_block(png(2_001, 1)), *[pdf_block(pdf(1))] * 20], {"documents_are_images": True}, "wider than 2000"),
    ],
)
def test_documents_and_images_keep_the_limits_together(blocks: list[Any], limits: dict[str, Any], said: str) -> None:
    script = script_with(**limits)
    script.user(blocks)
    [planned] = repairs(script.view)
    assert said in planned.cause.reason
    script.decide(planned)
    assert repairs(script.view) == []


def test_a_request_that_counts_no_pages_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin of the limit on pages."""
    monkeypatch.setattr(images, "document_pages", lambda _: 0)
    script = script_with(max_images=100)
    script.user([pdf_block(pdf(101))])
    assert repairs(script.view) == []
    request = {"model": OLDER, "max_tokens": 100, **build_request(script.view)}
    assert [problem.text for problem in problems(request)] == [
        "messages: Too much media: 0 images and 101 PDF pages > 100"
    ]


@pytest.mark.parametrize("data", [b"no PDF", "no base64", base64.b64encode(b"%PDF").decode()[:-1]])
def test_a_document_that_no_provider_accepts_becomes_text(data: bytes | str) -> None:
    script = script_with()
    script.user([pdf_block(data)])
    content = script.messages[0]["content"]
    assert content[0]["text"].startswith("[document that cannot be sent: ")


def test_each_page_is_estimated() -> None:
    one, ten = (measure_message({"role": "user", "content": [pdf_block(pdf(pages))]}) for pages in (1, 10))
    assert ten.total > 5 * one.total


def test_a_body_that_the_provider_takes_may_be_too_large_for_a_platform() -> None:
    request = {"max_tokens": 10, "messages": [{"role": "user", "content": "x" * 21_000_000}]}
    assert problems({"model": "claude-opus-5-5", **request}) == []
    assert [problem.status for problem in problems({"model": BEDROCK, **request})] == [413]
