"""``reverie read``: whole, in parts, by search; exact bytes in a pipe, cleaned text on a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from log_script import Script, call
from reverie.conversation.decisions import Cause, Compacted
from reverie.conversation.entries import encode_entry
from reverie.layers.l1_offload import OffloadPolicy, ResultStore, offload_result
from reverie.storage.files import FileStorage

OUTPUT = b"".join(b"line %d \x1b[31m\xff\n" % number for number in range(1, 5_001))


@pytest.fixture(autouse=True)
def session(home: Path) -> None:
    storage = FileStorage(home)
    script = Script()
    script.user("begin")
    script.reply(call("toolu_1", "Bash"), call("toolu_2", "Bash"))
    made = offload_result(
        ResultStore(storage, "projects/app/work"), "Bash", "toolu_1", OUTPUT, OffloadPolicy(), script.view
    )
    for decision in made.before:
        script.decide(decision)
    script.result("toolu_1", made.content)
    script.result("toolu_2", "short")
    script.decide(Compacted(Cause("compact", "full"), "auto", "full", "A summary.", 10, None, None, handle="cut-1"))
    for entry in script.entries:
        storage.append("projects/app/work.jsonl", encode_entry(entry))
    storage.close()


def read(*arguments: str) -> Any:
    command = [str(Path(sys.executable).with_name("reverie")), "read", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60)


@pytest.mark.requirement("L1.4")
@pytest.mark.slow
def test_into_a_pipe_every_byte_is_as_it_was() -> None:
    assert read("work", "toolu_1").stdout == OUTPUT
    assert read("work", "toolu_1", "--bytes", "--offset", "5", "--limit", "3").stdout == OUTPUT[5:8]
    assert read("work", "toolu_2").stdout == b"short"


@pytest.mark.requirement("B2")
def test_a_summary_is_opened_one_level() -> None:
    listed = read("work", "cut-1", "--expand").stdout.decode().split("\n")
    assert listed[0].startswith("cut-1 covers 4 messages, ")
    handle = next(line.split()[0] for line in listed if line.endswith("tokens  short"))
    assert read("work", handle, "--expand", "--offset", "1").stdout == b"short\n"
    assert b"is no handle of this session" in read("work", "cut-2", "--expand").stderr


@pytest.mark.requirement("L1.4")
def test_lines_and_matches_are_printed_harmlessly() -> None:
    done = read("work", "toolu_1.txt", "--offset", "4999", "--limit", "5")
    assert done.stdout.decode() == "line 4999 \N{REPLACEMENT CHARACTER}\nline 5000 \N{REPLACEMENT CHARACTER}\n"
    done = read("work", "toolu_1", "--search", "line 49[0-9]0", "--limit", "1")
    assert done.stdout.decode() == "4900:line 4900 \N{REPLACEMENT CHARACTER}\n"


@pytest.mark.slow
def test_json_says_where_it_was_and_what_it_is() -> None:
    whole = json.loads(read("work", "toolu_2", "--json").stdout)
    assert (whole["source"], whole["bytes"], whole["text"]) == ("log", 5, "short")
    part = json.loads(read("work", "toolu_1", "--json", "--offset", "2", "--limit", "1").stdout)
    assert part["path"] == "projects/app/work/tool-results/toolu_1.txt"
    assert part["total_lines"] == 5_000
    assert [line["number"] for line in part["lines"]] == [2]
    assert "base64" in json.loads(read("work", "toolu_1", "--json", "--bytes", "--limit", "20").stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ("work", "nothing"),
        ("nobody", "toolu_1"),
        ("work", "toolu_1", "--search", "("),
        ("work", "toolu_1", "--search", "x", "--bytes"),
        ("work", "toolu_1", "--offset", "-1"),
        ("work",),
    ],
)
def test_bad_input_is_one_line_and_2(arguments: tuple[str, ...]) -> None:
    done = read(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


def test_a_stored_result_that_was_altered_is_refused(home: Path) -> None:
    (home / "projects/app/work/tool-results/toolu_1.txt").write_bytes(b"altered")
    done = read("work", "toolu_1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"has been changed since" in done.stderr
