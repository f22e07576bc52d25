"""Accounting: every token in exactly one category, duplicate reads by path, metrics that never fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.tokens.accounting import Accounting, DuplicateRead, account, metrics
from reverie.conversation.tokens.estimate import estimate_block


def use(id: Any, name: Any, **given: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": given}]}


def result(id: Any, content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]}


def by_hundreds(block: Any) -> float:
    """Weigh every block at a hundred tokens."""
    return 100


texts = st.text(max_size=60) | st.just("<local-command-stdout>built</local-command-stdout>")
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, texts),
    st.builds(
        lambda id, name, path: {"type": "tool_use", "id": id, "name": name, "input": {"file_path": path}},
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["Read", "Bash", "read", None]),
        st.sampled_from(["x.py", "y.py", None]),
    ),
    st.builds(
        lambda id, text: {"type": "tool_result", "tool_use_id": id, "content": text},
        st.sampled_from(["a", "b", "c", None]),
        texts,
    ),
    st.sampled_from([{"type": "image"}, {"type": "document"}, {"type": "novelty"}, {}, None, 7, "text"]),
)
messages = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        texts | st.lists(blocks, max_size=5) | st.none() | st.integers(),
    ),
    max_size=8,
)


def check_sums(accounting: Accounting, said: list[dict[str, Any]]) -> None:
    parts = [
        block
        for message in said
        if message["content"] is not None
        for block in (message["content"] if isinstance(message["content"], list) else [message["content"]])
    ]
    assert accounting.total == sum(estimate_block(part) for part in parts)
    assert accounting.total == sum(accounting.by_category().values())
    assert all(tokens >= 0 for tokens in accounting.by_category().values())
    assert 0 <= accounting.duplicate_tokens <= sum(accounting.tool_results.values())


@pytest.mark.requirement("T3")
@given(messages)
@pytest.mark.slow
def test_every_block_is_in_exactly_one_category(said: list[dict[str, Any]]) -> None:
    check_sums(account(said), said)


@pytest.mark.requirement("T3")
def test_the_sum_check_catches_an_accounting_that_drops_local_commands() -> None:
    said = [{"role": "user", "content": "<local-command-stdout>built</local-command-stdout>"}]
    with pytest.raises(AssertionError):
        check_sums(Accounting(human=0, local_command=0), said)


@pytest.mark.requirement("T3")
def test_tokens_go_to_whoever_put_them_there() -> None:
    said = [
        {"role": "user", "content": "please look"},
        {"role": "user", "content": [{"type": "text", "text": "x <local-command-stdout>ls</local-command-stdout>"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]},
        use("a", "Bash", command="ls"),
        result("a", "files"),
        use("b", "Grep", pattern="x"),
        result("b", "hits"),
        result("lost", "from before the view"),
        {"role": "user", "content": [{"type": "image"}, {"type": "document"}]},
        {"role": "assistant", "content": "about <local-command-stdout> tags"},
        {"role": "user", "content": [{"type": "text", "text": "Today is Tuesday."}]},
        {"role": "system", "content": "Plan mode is on."},
    ]
    found = account(said, weigh=by_hundreds, context={"Today is Tuesday."})
    assert found.by_category() == {
        "human": 100,
        "context": 200,
        "assistant": 300,
        "local_command": 100,
        "tool_requests": 200,
        "tool_results": 300,
        "other": 200,
    }
    assert found.tool_requests == {"Bash": 100, "Grep": 100}
    assert found.tool_results == {"Bash": 100, "Grep": 100, "unknown": 100}
    assert account([result("gone", "x")], weigh=by_hundreds).tool_results == {"unknown": 100}


@pytest.mark.requirement("T3")
@pytest.mark.parametrize(("name", "key"), [("Read", "file_path"), ("read", "path"), ("view", "path")])
def test_a_path_read_n_times_wastes_all_but_one_read_at_the_mean_size(name: str, key: str) -> None:
    sizes = iter([100, 50, 35])
    said = [message for id in "abc" for message in (use(id, name, **{key: "x.py"}), result(id, "text"))]
    said += [
        use("d", name, **{key: "once.py"}),
        result("d", "text"),
        use("e", "Bash", file_path="x.py"),
        result("e", "t"),
    ]

    def weigh(block: Any) -> float:
        return next(sizes, 7) if block["type"] == "tool_result" else 1

    (duplicate,) = account(said, weigh=weigh).duplicate_reads
    assert duplicate == DuplicateRead("x.py", 3, 185)
    assert duplicate.wasted_tokens == 122


@pytest.mark.requirement("T3")
def test_which_tools_read_files_is_a_setting() -> None:
    said = [message for id in "ab" for message in (use(id, "Peek", where="x.py"), result(id, "text"))]
    assert account(said).duplicate_reads == ()
    assert [read.path for read in account(said, read_tools={"peek": ("where",)}).duplicate_reads] == ["x.py"]


@pytest.mark.requirement("T3")
def test_attachments_are_numbered_by_type() -> None:
    attachments: list[dict[str, Any]] = [
        {"type": "todo"},
        {"attachment": {"type": "todo"}},
        {"attachment": {"type": "file"}},
        {},
        {"attachment": {"type": None}},
    ]
    assert account([], attachments).attachments == {"todo": 2, "unknown": 2, "file": 1}


@pytest.mark.requirement("T4")
def test_metrics_name_totals_tools_duplicates_and_whole_percents() -> None:
    said = [message for id in "ab" for message in (use(id, "Read", file_path="x.py"), result(id, "text"))]
    said.append({"role": "user", "content": "go"})
    said.append({"role": "user", "content": "<local-command-stdout>x</local-command-stdout>"})
    found = metrics(account(said, weigh=by_hundreds))
    assert found["total_tokens"] == 600
    assert found["tool_request_tokens_by_tool"] == {"Read": 200}
    assert found["tool_result_tokens_by_tool"] == {"Read": 200}
    assert (found["duplicate_read_tokens"], found["duplicate_read_files"]) == (100, 1)
    percents = {key: value for key, value in found.items() if key.endswith("_percent")}
    assert percents == {
        "human_percent": 17,
        "context_percent": 0,
        "assistant_percent": 0,
        "local_command_percent": 17,
        "tool_requests_percent": 33,
        "tool_results_percent": 33,
        "duplicate_read_percent": 17,
    }
    assert all(isinstance(value, int) for value in percents.values())


@pytest.mark.requirement("T4")
def test_nothing_has_no_percents() -> None:
    found = metrics(account([]))
    assert found["total_tokens"] == 0
    assert "note" not in found
    assert not [key for key in found if key.endswith("_percent")]


@pytest.mark.requirement("T4")
def test_a_failure_in_metrics_is_noted_and_stops_nothing() -> None:
    broken: Any = {"Read": "many"}
    assert "incomplete" in metrics(Accounting(tool_requests=broken))["note"]
