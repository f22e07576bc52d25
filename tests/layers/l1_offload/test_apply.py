"""Results that move to disk: exact bytes, files before decisions, one copy, and final decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixes import extends
from reverie.conversation.decisions import ResultOffloaded, ResultsCleared, ResultsKept
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.errors import StorageError, UnsafePath
from reverie.layers.l1_offload import OffloadPolicy, ResultStore, offload_result, read_stored
from reverie.storage.files import FileStorage
from reverie.storage.in_memory import InMemoryStorage

MakeDesk = Callable[..., Any]
SMALL = OffloadPolicy(
    default_limit_chars=600,
    declared_chars={},
    ceiling_chars={},
    preview_bytes=80,
    aggregate_chars=1_500,
    duplicate_min_bytes=40,
    duplicate_max_bytes=600,
)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def exact(output: Any) -> bytes:
    """Return the bytes that must come back."""
    if isinstance(output, list):
        return msgspec.json.encode(output)
    return output if isinstance(output, bytes) else output.encode("utf-8", "surrogateescape")


OUTPUTS: dict[str, Any] = {
    "empty": "",
    "empty bytes": b"",
    "blank": " \r\n\t ",
    "short": "ok",
    "long": "line of output\n" * 5_000,
    "one long line": "x" * 100_000,
    "CRLF": "line\r\n" * 20_000,
    "ANSI": "\x1b[31mred\x1b[0m \x1b]0;title\x07\n" * 5_000,
    "NUL": "a\0b\n" * 20_000,
    "binary": bytes(range(256)) * 400,
    "binary, short": bytes(range(256)),
    "invalid UTF-8": b"caf\xe9 au lait\n" * 10_000,
    "invalid UTF-8, short": b"caf\xe9",
    "bytes cut in a character": "漢字".encode()[:-1] * 1,
    "surrogates for bytes": b"caf\xe9\n".decode("utf-8", "surrogateescape") * 20_000,
    "surrogates for bytes, short": b"caf\xe9".decode("utf-8", "surrogateescape"),
    "line separators": "a\u2028b\x0bc\x85d\n" * 20_000,
    "blocks": [{"type": "text", "text": "words \x1b[1m é 漢 \0\n" * 9_000}, {"type": "text", "text": "more"}],
    "blocks, short": [{"type": "text", "text": "words"}],
    "byte order mark": "\ufeff" + "x" * 60_000,
}


@pytest.mark.requirement("L1.3", "L1.8")
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_result_comes_back_byte_for_byte(make_desk: MakeDesk, tmp_path: Path, name: str) -> None:
    output = OUTPUTS[name]
    for storage in (InMemoryStorage(), FileStorage(tmp_path)):
        desk = make_desk(storage)
        desk.ask("toolu_1")
        desk.give("toolu_1", output)
        desk.send()
        assert desk.fallbacks == []
        assert desk.back().read("toolu_1") == exact(output)
        decision = desk.view.offloaded("toolu_1")
        if decision is not None:
            assert decision.sha256 == sha256(exact(output))
            assert decision.size == len(exact(output))
            assert desk.storage.read(decision.path).data == exact(output)
        assert problems(build_request(desk.view)) == []


@pytest.mark.requirement("L1.3")
def test_a_huge_result_comes_back_byte_for_byte_and_the_log_holds_only_its_preview(
    make_desk: MakeDesk, tmp_path: Path, torture: bool
) -> None:
    size = 100_000_000 if torture else 8_000_000
    output = (b"0123456789abcde\n" * (size // 16))[: size - 3] + b"\xff\0\n"
    desk = make_desk(FileStorage(tmp_path))
    desk.ask("toolu_1")
    made = desk.give("toolu_1", output)
    desk.send()
    assert sha256(desk.back().read("toolu_1")) == sha256(output)
    assert (tmp_path / desk.folder / "tool-results" / "toolu_1.txt").stat().st_size == size
    assert len(desk.log_bytes()) < 20_000
    (decision,) = made.before
    assert desk.shown("toolu_1") == made.content == decision.text
    assert decision.cause.frees > size // 8
    assert not decision.cause.moves_prefix


@pytest.mark.requirement("L1.3")
@given(output=st.binary(max_size=2_000) | st.text(max_size=900).map(lambda text: text * 3))
def test_any_bytes_and_any_text_come_back(make_desk: MakeDesk, output: Any) -> None:
    desk = make_desk(policy=SMALL)
    desk.ask("toolu_1")
    desk.give("toolu_1", output)
    assert desk.back().read("toolu_1") == exact(output)


@pytest.mark.requirement("L1.3")
def test_files_are_named_after_their_call_and_private(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(FileStorage(tmp_path))
    desk.ask("a", "b")
    desk.give("a", "x" * 60_000)
    desk.give("b", [{"type": "text", "text": "y" * 60_000}])
    folder = tmp_path / desk.folder / "tool-results"
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "b.json"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("L1.3")
def test_the_view_names_where_a_reader_of_files_finds_it(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(FileStorage(tmp_path))
    desk.ask("a")
    made = offload_result(
        ResultStore(desk.storage, desk.folder, str(desk.storage.root)),
        "Bash",
        "a",
        "x" * 60_000,
        desk.policy,
        desk.view,
    )
    (decision,) = made.before
    (named,) = [word for word in decision.text.split() if word.endswith("a.txt")]
    assert Path(named).read_bytes() == b"x" * 60_000
    assert decision.path == f"{desk.folder}/tool-results/a.txt"


@pytest.mark.requirement("L1.3")
def test_a_name_that_is_taken_by_other_content_gets_the_hash_added(make_desk: MakeDesk) -> None:
    desk = make_desk()
    taken = f"{desk.folder}/tool-results/a.txt"
    desk.storage.write(taken, b"somebody else's")
    desk.ask("a")
    desk.give("a", "x" * 60_000)
    path = desk.view.offloaded("a").path
    assert path == f"{desk.folder}/tool-results/a-{sha256(b'x' * 60_000)}.txt"
    assert desk.storage.read(taken).data == b"somebody else's"
    assert desk.back().read("a") == b"x" * 60_000
    assert desk.back().read(path) == b"x" * 60_000


def test_where_both_names_are_taken_by_other_content_the_result_passes_whole(make_desk: MakeDesk) -> None:
    desk = make_desk()
    for name in ("a", f"a-{sha256(b'x' * 60_000)}"):
        desk.storage.write(f"{desk.folder}/tool-results/{name}.txt", b"damaged")
    desk.ask("a")
    desk.give("a", "x" * 60_000)
    assert desk.shown("a") == "x" * 60_000
    assert len(desk.fallbacks) == 1


@pytest.mark.requirement("L1.10")
def test_the_same_content_is_stored_once_and_shown_again_from_the_same_file(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.ask("a", "b", "c")
    for called, output in (("a", "x" * 60_000), ("b", b"x" * 60_000), ("c", "y" * 60_000)):
        desk.give(called, output)
    names = [key.rsplit("/", 1)[1] for key in desk.storage.list(f"{desk.folder}/tool-results")]
    assert names == ["a.txt", "c.txt"]
    assert [desk.back().read(called)[:1] for called in "abc"] == [b"x", b"x", b"y"]
    assert "Preview" in desk.shown("b")


@pytest.mark.requirement("L1.10")
def test_a_first_copy_that_was_lost_is_not_relied_on(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.ask("a", "b")
    desk.give("a", "x" * 60_000)
    desk.storage.write(f"{desk.folder}/tool-results/a.txt", b"damaged")
    desk.give("b", "x" * 60_000)
    assert desk.back().read("b") == b"x" * 60_000
    with pytest.raises(StorageError, match="changed since"):
        desk.back().read("a")


@pytest.mark.requirement("L1.10")
def test_a_repeat_is_shown_as_a_reference_and_kept_in_the_log(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.ask("a")
    desk.give("a", "same\n" * 200)
    desk.send()
    desk.ask("b")
    made = desk.give("b", "same\n" * 200)
    assert isinstance(made.before[0], ResultsCleared)
    assert made.before[0].cause.layer == "offload"
    assert made.before[0].cause.frees > 50
    assert desk.shown("a") == "same\n" * 200
    assert "Identical to the result of Bash call a" in desk.shown("b")
    assert desk.back().read("b") == b"same\n" * 200
    assert list(desk.storage.list(desk.folder)) == []


def test_reading_a_stored_result_stays_among_results(desk: Any) -> None:
    desk.storage.write("config.toml", b"secret")
    with pytest.raises(UnsafePath):
        read_stored(desk.storage, "config.toml", sha256(b"secret"))
    with pytest.raises(StorageError, match="is gone"):
        read_stored(desk.storage, "projects/p/s/tool-results/x.txt", "")


# -- decided is decided


@pytest.mark.requirement("L1.6")
def test_results_left_whole_are_marked_when_the_message_is_made_ready_and_only_then(desk: Any) -> None:
    desk.ask("a", "b")
    desk.give("a", "one")
    desk.give("b", "two")
    assert not desk.view.is_kept("a")
    (decision,) = desk.send().before
    assert isinstance(decision, ResultsKept)
    assert decision.tool_use_ids == ["a", "b"]
    assert desk.send().before == ()


class Crash(BaseException):
    """The process dies here."""


class Dying(InMemoryStorage):
    """A store whose process dies at the Nth write, before anything is safe."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        self.left -= 1
        if self.left == 0:
            raise Crash
        return super().write(key, data, expect=expect, create=create)


def unreadable_after_crash(make_desk: MakeDesk, at: int, give: Callable[[Any, str, str], object]) -> list[str]:
    """Die at a write, resume from the log, and return the decided results that cannot be read back."""
    desk = make_desk(Dying(at), SMALL)
    ids = [f"t{number}" for number in range(6)]
    try:
        desk.ask(*ids)
        for number, called in enumerate(ids):
            give(desk, called, f"{number}" * (550 if number % 2 else 700))
        desk.send()
    except Crash:
        pass
    desk.writer.view = View().fold_all(parse_log(desk.log_bytes()).entries)
    lost: list[str] = []
    for called in ids:
        if desk.view.offloaded(called) is not None:
            try:
                desk.back().read(called)
            except StorageError:
                lost.append(called)
    return lost


def as_built(desk: Any, called: str, output: str) -> object:
    return desk.give(called, output)


def too_hasty(desk: Any, called: str, output: str) -> object:
    """Log the decision first and write the file afterwards."""
    made = offload_result(ResultStore(InMemoryStorage(), desk.folder), "Bash", called, output, desk.policy, desk.view)
    desk.log(made.before)
    return desk.give(called, output)


@pytest.mark.requirement("L1.6")
@pytest.mark.parametrize("at", range(1, 7))
def test_a_decision_in_the_log_has_its_file_whenever_the_process_dies(make_desk: MakeDesk, at: int) -> None:
    assert unreadable_after_crash(make_desk, at, as_built) == []


def test_a_decision_logged_before_its_file_is_safe_is_caught(make_desk: MakeDesk) -> None:
    assert unreadable_after_crash(make_desk, 1, too_hasty) == ["t0"]


lengths = st.integers(0, 900)
turns = st.lists(st.lists(st.tuples(lengths, st.sampled_from("abc")), min_size=1, max_size=5), min_size=1, max_size=5)


def play(desk: Any, turns: list[list[tuple[int, str]]], send: Callable[[Any], object]) -> list[list[bytes]]:
    """Play turns of parallel results and return every request as its canonical blocks."""
    sent: list[list[bytes]] = []
    for turn, results in enumerate(turns):
        ids = [f"t{turn}_{at}" for at in range(len(results))]
        desk.ask(*ids)
        for called, (length, letter) in zip(ids, results, strict=True):
            desk.give(called, (letter * length)[:length])
        send(desk)
        request = build_request(desk.view)
        assert problems(request) == []
        sent.append(canonical(request))
    return sent


@pytest.mark.requirement("L1.5", "L1.6", "L1.7")
@given(turns=turns)
def test_no_byte_once_sent_is_changed_by_later_offloading(
    make_desk: MakeDesk, turns: list[list[tuple[int, str]]]
) -> None:
    desk = make_desk(policy=SMALL)
    sent = play(desk, turns, lambda desk: desk.send())
    for earlier, later in pairwise(sent):
        assert extends(earlier, later)
    # A resume, a fork, and another policy on top of either, show the same bytes.
    resumed = View().fold_all(parse_log(desk.log_bytes()).entries)
    assert canonical(build_request(resumed)) == sent[-1]
    desk.policy = replace(SMALL, aggregate_chars=1, default_limit_chars=1)
    assert desk.send().before == ()
    assert canonical(build_request(desk.view)) == sent[-1]


def test_offloading_that_decides_anew_on_old_messages_is_caught(make_desk: MakeDesk) -> None:
    def restless(desk: Any) -> None:
        desk.send()
        if len(desk.view.results) > 1:
            old = desk.view.results[0].tool_use_id
            made = offload_result(
                ResultStore(desk.storage, desk.folder), "Bash", old, "z" * 999, desk.policy, desk.view
            )
            desk.log(made.before)

    sent = play(make_desk(policy=SMALL), [[(500, "a")], [(500, "b")], [(500, "c")]], restless)
    assert not all(extends(earlier, later) for earlier, later in pairwise(sent))


@pytest.mark.requirement("L1.7")
def test_the_decision_carries_the_text_the_model_saw(desk: Any) -> None:
    desk.ask("a")
    (decision,) = desk.give("a", "first line\n" + "x" * 60_000).before
    assert isinstance(decision, ResultOffloaded)
    assert (decision.cause.layer, decision.media, decision.size) == ("offload", "text", 60_011)
    assert desk.shown("a") == decision.text
    assert "first line" in decision.text
    assert b"x" * 3_000 not in desk.log_bytes()


@pytest.mark.requirement("L1.7")
def test_a_decision_whose_message_was_lost_in_a_crash_still_shows_and_reads(desk: Any) -> None:
    desk.ask("a")
    made = offload_result(ResultStore(desk.storage, desk.folder), "Bash", "a", "x" * 60_000, desk.policy, desk.view)
    desk.log(made.before)
    (last,) = build_request(desk.view)["messages"][-1]["content"]
    assert last["content"] == made.content
    assert desk.back().read("a") == b"x" * 60_000
    assert desk.back().read("a.txt") == b"x" * 60_000
