"""Read removed content back: by call, path, message or cut; in parts, and by search."""

from __future__ import annotations

import msgspec
import pytest

from log_script import Script, call, text
from reverie.conversation.decisions import Cause, Compacted, Replacement, ResultsCleared, Snipped
from reverie.conversation.entries import USER, encode_entry
from reverie.errors import InputError, StorageError
from reverie.layers.l1_offload import OffloadPolicy, ResultStore, offload_aggregate, offload_result
from reverie.runtime.session.offload.read_back import ReadBack, TextLine
from reverie.storage.in_memory import InMemoryStorage

CAUSE = Cause("test", "test")
FOLDER = "projects/app/s"


def back(script: Script, storage: InMemoryStorage) -> ReadBack:
    for entry in script.entries[len((storage.load(f"{FOLDER}.jsonl") or b"").splitlines()) :]:
        storage.append(f"{FOLDER}.jsonl", encode_entry(entry))
    return ReadBack(storage, FOLDER, script.view)


@pytest.fixture
def storage() -> InMemoryStorage:
    return InMemoryStorage()


@pytest.fixture
def script(storage: InMemoryStorage) -> Script:
    """A session with a stored result, a cleared one and one in blocks."""
    script = Script()
    script.user("first words")
    script.reply(call("stored", "Bash"), call("cleared", "Bash"), call("blocks", "mcp__a__b"))
    output = "".join(f"line {number}\n" for number in range(1, 10_001))
    made = offload_result(ResultStore(storage, FOLDER), "Bash", "stored", output, OffloadPolicy(), script.view)
    for decision in made.before:
        script.decide(decision)
    script.result("stored", made.content)
    script.result("cleared", "old news\r\nof yesterday")
    script.result("blocks", [text("one\ntwo"), text("three")])
    script.decide(ResultsCleared(CAUSE, [Replacement("cleared", "[cleared]", "cleared")]))
    return script


@pytest.mark.requirement("L1.4")
@pytest.mark.parametrize(
    "handle",
    [
        "stored",
        "stored.txt",
        "tool-results/stored.txt",
        "projects/app/s/tool-results/stored.txt",
        "/home/me/.local/share/reverie/projects/app/s/tool-results/stored.txt",
    ],
)
def test_a_stored_result_is_read_by_its_call_or_its_path(script: Script, storage: InMemoryStorage, handle: str) -> None:
    found = back(script, storage).find(handle)
    assert (found.source, found.path) == ("file", "projects/app/s/tool-results/stored.txt")
    assert found.data.endswith(b"line 9999\nline 10000\n")


@pytest.mark.requirement("L1.4")
def test_it_can_be_read_in_parts_by_lines_and_by_bytes_and_searched(script: Script, storage: InMemoryStorage) -> None:
    reader = back(script, storage)
    assert reader.lines("stored", first=5_000, count=2) == [TextLine(5_000, "line 5000"), TextLine(5_001, "line 5001")]
    assert reader.lines("stored", first=10_000) == [TextLine(10_000, "line 10000")]
    assert reader.lines("stored", first=10_001) == []
    assert reader.lines("stored", first=0, count=1) == [TextLine(1, "line 1")]
    assert reader.read("stored", offset=7, limit=6) == b"line 2"
    assert reader.read("stored", offset=10**9) == b""
    assert reader.search("stored", r"^line 99\d7$")[:2] == [TextLine(9_907, "line 9907"), TextLine(9_917, "line 9917")]
    assert reader.search("blocks", "t") == [TextLine(2, "two"), TextLine(3, "three")]
    assert reader.lines("cleared") == [TextLine(1, "old news\r"), TextLine(2, "of yesterday")]
    with pytest.raises(InputError, match="no regular expression"):
        reader.search("stored", "(")


def test_what_was_cleared_or_given_in_blocks_is_read_from_the_log(script: Script, storage: InMemoryStorage) -> None:
    reader = back(script, storage)
    assert reader.read("cleared") == b"old news\r\nof yesterday"
    assert reader.read("blocks") == msgspec.json.encode([text("one\ntwo"), text("three")])


def test_messages_are_read_by_their_uuid_in_view_or_not(script: Script, storage: InMemoryStorage) -> None:
    script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 10, "e0", None))
    reader = back(script, storage)
    assert "first words" not in str(script.messages)
    assert reader.read("e0") == b"first words"
    assert "old news" in reader.find("e4").text
    assert reader.read("stored", limit=6) == b"line 1"


def test_a_cut_gives_all_that_it_took(script: Script, storage: InMemoryStorage) -> None:
    snip = script.decide(Snipped(CAUSE, ["e0"], handle="snip-1"))
    script.user("later words")
    cut = script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 10, None, None))
    reader = back(script, storage)
    assert reader.read(snip) == reader.read("snip-1")
    (taken,) = [msgspec.json.decode(line) for line in reader.read(snip).splitlines()]
    assert taken == {"uuid": "e0", "kind": USER, "content": "first words"}
    found = reader.find(cut)
    assert "first words" not in found.text
    assert "later words" in found.text
    assert "old news" in found.text


@pytest.fixture
def nested(script: Script, storage: InMemoryStorage) -> ReadBack:
    """A session that was compacted twice, so that the second summary covers the first one."""
    script.decide(Compacted(CAUSE, "auto", "full", "The first summary.", 10, None, None, handle="cut-1"))
    script.user("words between\nand more")
    script.reply(text("a reply"))
    script.decide(Compacted(CAUSE, "auto", "full", "The second summary.", 10, None, None, handle="cut-2"))
    return back(script, storage)


def handles_in(listing: str) -> list[str]:
    return [line.split()[0] for line in listing.split("\n")[2:] if line and not line.startswith("[")]


@pytest.mark.requirement("B2")
def test_a_handle_opens_at_the_words_that_are_looked_for_with_call_result_and_next_calls(
    storage: InMemoryStorage,
) -> None:
    script = Script()
    script.user("Run the checks")
    script.reply(call("checks", "Bash", command="make check"))
    filler = "".join(f"ok step {number}\n" for number in range(2_000))
    script.result("checks", f"{filler}FAIL walrus_gate in line 7\n{filler}")
    script.reply(call("mend", "Edit", path="gate.py", text="walrus"))
    script.result("mend", "done")
    script.user("Thanks")
    script.reply(call("later", "Bash", command="ls"))
    reader = back(script, storage)
    for handle in ("checks", "e1", "e2"):
        shown = reader.expand(handle, about="which walrus failed?")
        assert shown.startswith("Bash make check -> ")
        assert "FAIL walrus_gate in line 7" in shown
        assert len(shown) < 1_500
    assert "e3  Edit gate.py" in reader.expand("e2", about="walrus")  # and not the call after the user's next words
    assert "Bash ls" not in reader.expand("e2", about="walrus")
    assert "FAIL" not in reader.expand("e2")[:1_500]  # without the words it opens at the beginning


def test_words_of_the_user_open_with_the_changes_that_followed_however_much_was_read_before(
    storage: InMemoryStorage,
) -> None:
    script = Script()
    asked = script.user("Mend the walrus gate")
    for number in range(30):
        script.reply(call(f"read{number}", "Read", file_path=f"/r/{number % 12}.py"))
        script.result(f"read{number}", "walrus")
    for number in range(2):
        script.reply(call(f"mend{number}", "Edit", file_path="/r/gate.py", old_string="a", new_string="b"))
        script.result(f"mend{number}", "done")
    script.reply(call("shell", "Bash", command="sed -i s/a/b/ /r/gate.py"))
    script.result("shell", "")
    shown = back(script, storage).expand(asked, about="walrus").splitlines()
    calls = [line.split(maxsplit=1)[1] for line in shown if " /r/" in line]
    assert calls == [
        *(f"Read /r/{number}.py" for number in range(6)),
        "Edit /r/gate.py",
        "Bash sed -i s/a/b/ /r/gate.py",
    ]


def test_a_stored_result_opens_at_the_words_in_the_file_and_not_in_its_preview(
    script: Script, storage: InMemoryStorage
) -> None:
    assert "line 7345\n" in back(script, storage).expand("stored", about="7345")


@pytest.mark.requirement("B2")
def test_a_summary_opens_one_level_and_each_part_opens_again(nested: ReadBack) -> None:
    outer = nested.expand("cut-2")
    assert outer.startswith("cut-2 covers 3 messages, ")
    first, said, answer = handles_in(outer)
    assert first == "cut-1"
    assert outer.split("\n")[2].endswith("tokens  The first summary.")
    assert "The first summary." in nested.find("cut-2").text
    assert "user" in outer.split("\n")[3]
    assert outer.split("\n")[3].endswith("tokens  words between")
    assert "old news" not in outer  # one level, not two
    assert nested.expand(said) == "words between\nand more"
    assert nested.expand(answer) == "a reply"
    inner = nested.expand(first)
    assert "result of Bash" in inner
    assert "assistant, calls Bash, Bash, mcp__a__b" in inner
    leaf = next(line.split()[0] for line in inner.split("\n") if "old news" in line)
    assert nested.expand(leaf) == "old news\r\nof yesterday"


def test_the_list_of_a_summary_shows_words_calls_and_thinking_as_a_person_reads_them(
    script: Script, storage: InMemoryStorage
) -> None:
    thought = {"type": "thinking", "thinking": "The gate\nmust be shut.", "signature": "s"}
    script.reply(thought)
    script.reply(thought, text("I edit it."), call("c1", "Edit", file_path="gate.py"))
    script.result("c1", "done")
    script.reply(thought, call("c2", "Read", file_path="gate.py"))
    script.result("c2", "1 shut = True")
    script.decide(Compacted(CAUSE, "auto", "full", "A summary.", 10, None, None, handle="cut-1"))
    listed = [line.split(" tokens  ")[-1] for line in back(script, storage).expand("cut-1").splitlines()]
    assert listed[-5:] == ["The gate", "I edit it.", "done", "Read gate.py", "1 shut = True"]


@pytest.mark.requirement("B2")
def test_each_entry_that_a_log_ever_showed_is_reached_by_opening_summaries(nested: ReadBack) -> None:
    found: dict[str, str] = {}
    waiting = ["cut-2"]
    while waiting:
        listing = nested.find(waiting.pop()).listing
        for handle in handles_in(listing):
            if nested.find(handle).listing:
                waiting.append(handle)
            else:
                found[handle] = nested.find(handle).text
    uuids = {entry.uuid for entry in nested._view.entries()}  # pyright: ignore[reportPrivateUsage]
    assert len(found) == len(uuids)
    assert found.keys() - uuids == {"stored", "cleared", "blocks"}  # a single result opens by its call
    assert found["stored"].startswith("line 1\nline 2\n")  # the file, not its preview
    assert len(found["stored"].split("\n")) == 10_001


@pytest.mark.requirement("B2")
def test_long_content_opens_in_parts_that_together_are_the_whole(nested: ReadBack) -> None:
    whole = nested.find("stored").text
    parts: list[str] = []
    offset = 0
    while True:
        page = nested.expand("stored", offset=offset)
        assert len(page) <= 20_100
        text, _, more = page.rpartition("\n[")
        if "go on with offset" not in more:
            parts.append(page)
            break
        parts.append(text)
        offset = int(more.removesuffix("]").rsplit(" ", 1)[1])
    assert "".join(parts) == whole
    assert "nothing at offset" in nested.expand("stored", offset=10**9)


@pytest.mark.requirement("B2")
def test_an_unknown_handle_says_which_handles_there_are(nested: ReadBack) -> None:
    with pytest.raises(InputError, match="'toolu_nothing' is no handle of this session: give the id of a tool call"):
        nested.expand("toolu_nothing")


def test_a_stored_result_that_was_altered_is_refused_unless_the_log_has_it(storage: InMemoryStorage) -> None:
    script = Script()
    script.user("begin")
    ids = [f"t{at}" for at in range(5)]
    script.reply(*(call(called, "Glob") for called in ids))
    for called in ids:
        script.result(called, called * 24_000)
    for decision in offload_aggregate(ResultStore(storage, FOLDER), script.view, OffloadPolicy()).before:
        script.decide(decision)
    decision = script.view.offloaded("t0")
    assert decision is not None
    storage.write(decision.path, b"altered")
    assert back(script, storage).find("t0").source == "log"
    assert back(script, storage).read("t0") == b"t0" * 24_000


def test_an_altered_file_is_an_error_that_names_it(script: Script, storage: InMemoryStorage) -> None:
    storage.write("projects/app/s/tool-results/stored.txt", b"altered")
    with pytest.raises(StorageError, match=r"stored at projects/app/s/tool-results/stored\.txt has been changed"):
        back(script, storage).read("stored")


@pytest.mark.parametrize("handle", ["", "nobody", "../../etc/passwd", "/etc/passwd", "tool-results/none.txt", "\0"])
def test_what_is_no_handle_is_refused(script: Script, storage: InMemoryStorage, handle: str) -> None:
    with pytest.raises(InputError, match="no handle of this session"):
        back(script, storage).read(handle)
