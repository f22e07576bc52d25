"""The author of each message, for any format of log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from log_script import call, text
from random_logs import random_log
from reverie.conversation.authorship import own_words, utterances
from reverie.conversation.entries import ASSISTANT, USER, Entry


def entry(kind: str, content: Any, **body: Any) -> Entry:
    role = "assistant" if kind == ASSISTANT else "user"
    return Entry("e", None, "", "s", kind, {"message": {"role": role, "content": content}, **body})


def test_calls_and_results_of_tools_are_told_apart_from_words() -> None:
    made = entry(ASSISTANT, [text("Looking."), call("t1", "Read", file_path="/a.py")])
    assert [(one.kind, one.text, one.tool, one.id) for one in utterances(made)] == [
        ("told", "Looking.", "", ""),
        ("call", "", "Read", "t1"),
    ]
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": [text("x"), text("y")], "is_error": True}
    (result,) = utterances(entry(USER, [answer]))
    assert (result.kind, result.id, result.text, result.failed) == ("result", "t1", "x\ny", True)


@pytest.mark.parametrize(
    "output",
    [
        "<returncode>1</returncode>\n<output>\nboom\n</output>",
        "<task-notification>\n<status>completed</status>",
        "[File: /a/b.py (1 lines total)]\n1:",
        "hello\n(Open file: n/a)\n(Current directory: /repo)\nbash-$",
        "The user ran `ls`:\n```\nREADME.md\n```",
        "<local-command-stdout>done</local-command-stdout>",
    ],
)
def test_output_in_a_user_message_is_a_result_and_nobodys_words(output: str) -> None:
    made = entry(USER, output)
    assert own_words(made) == ""
    assert [one.kind for one in utterances(made)] == ["result"]


@pytest.mark.parametrize(
    "words",
    ["Fix the bug", "We're solving an issue.\nISSUE:\nit breaks\n(Open file: n/a)\n(Current directory: /r)\nbash-$"],
)
def test_a_request_is_a_persons_words_even_with_a_prompt_at_its_end(words: str) -> None:
    assert own_words(entry(USER, words)) == words


def test_what_programs_wrap_around_words_is_left_out() -> None:
    wrapped = "<system-reminder>be good</system-reminder>\nMend the fence"
    assert own_words(entry(USER, [text(wrapped)])) == "Mend the fence"
    assert own_words(entry(USER, "look, a demonstration", demo=True)) == ""
    command = (
        "<command-message>init</command-message>\n<command-name>/init</command-name>\n<command-args></command-args>"
    )
    assert own_words(entry(USER, command)) == "/init"


def test_a_fenced_command_is_a_call_where_the_agent_has_no_tools() -> None:
    told = "I look first:\n```python\nprint('no command')\n```\nthen\n```bash\nls -la\n```\n"
    assert [one.input for one in utterances(entry(ASSISTANT, told)) if one.kind == "call"] == [{"command": "ls -la"}]
    both = [text(told), call("t1", "Bash", command="pwd")]
    assert [one.input for one in utterances(entry(ASSISTANT, both)) if one.kind == "call"] == [{"command": "pwd"}]


def test_nothing_in_a_random_log_makes_it_raise() -> None:
    for seed in range(200):
        for one in random_log(Random(seed), disorder=0.6):
            assert all(said.kind for said in utterances(one))
            assert own_words(one) is not None
