"""One broken request per rule, with a twin that passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pictures import image_block, png, webp_head
from reverie.conversation.wire.validate import Limits, Problem, problems, too_long

Request = dict[str, Any]
Change = Callable[[Request], object]

PNG = image_block(png(1, 1))
WEBP = image_block(webp_head("VP8X", 1, 1), "image/webp")
TOOL = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object", "properties": {}}}


def use(found: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": found, "name": "Read", "input": {"path": "a"}, **more}


def result(found: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": found, "content": content, **more}


def text(words: str = "hello", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def marked(ttl: str | None = None) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}}


def sound() -> Request:
    """Return a request with something of everything, that every rule accepts."""
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [copy.deepcopy(TOOL)],
        "system": [text("You help.", **marked("1h"))],
        "messages": [
            {"role": "user", "content": "Look at the file."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "eHl6"},
                    text("Reading."),
                    use("toolu_1"),
                    use("toolu_2"),
                ],
            },
            {
                "role": "user",
                "content": [
                    result("toolu_1", [text("line"), copy.deepcopy(PNG)]),
                    result("toolu_2", "gone", is_error=True),
                    text("And?", **marked()),
                ],
            },
            {"role": "assistant", "content": [text("It says hello.")]},
            {"role": "user", "content": "Thanks."},
        ],
    }


def messages(request: Request) -> list[Any]:
    return request["messages"]


def content(request: Request, index: int) -> list[Any]:
    return request["messages"][index]["content"]


def put(path: str, value: Any) -> Change:
    """Return a change that sets what lies at a dotted path."""

    def change(request: Request) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        place: Any = request
        for step in steps:
            place = place[step]
        place[last] = value

    return change


def drop(path: str) -> Change:
    """Return a change that removes what lies at a dotted path."""

    def change(request: Request) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        place: Any = request
        for step in steps:
            place = place[step]
        del place[last]

    return change


def many_images(count: int) -> Change:
    return lambda request: content(request, 2).extend(copy.deepcopy(PNG) for _ in range(count - 1))


def marks(*ttls: str | None) -> Change:
    def change(request: Request) -> None:
        del request["system"][0]["cache_control"]
        content(request, 2)[2].pop("cache_control")
        content(request, 2).extend(text(f"mark {index}", **marked(ttl)) for index, ttl in enumerate(ttls))

    return change


def last_turn(*blocks: dict[str, Any]) -> Change:
    """Return a change that lets the model continue a reply, which it does only while it does not think."""

    def change(request: Request) -> None:
        del request["thinking"]
        messages(request).append({"role": "assistant", "content": list(blocks)})

    return change


SERVER_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

RULES: list[tuple[str, Change, Change | None, str]] = [
    ("model is required", drop("model"), None, "model: Field required"),
    ("model is not empty", put("model", ""), put("model", "m"), "model: "),
    ("max_tokens is required", drop("max_tokens"), None, "max_tokens: Field required"),
    ("max_tokens is positive", put("max_tokens", -1), put("max_tokens", 1025), "max_tokens: Input should be greater"),
    ("max_tokens is a number", put("max_tokens", True), None, "max_tokens: "),
    ("messages are required", drop("messages"), None, "messages: Field required"),
    ("messages are a list", put("messages", "hi"), None, "messages: Input should be a valid list"),
    ("messages are not empty", put("messages", []), None, "messages: at least one message is required"),
    ("a message is an object", put("messages.4", "hi"), None, "messages.4: Input should be a valid dictionary"),
    ("fields are known", put("mesages", []), put("metadata", {}), "mesages: Extra inputs are not permitted"),
    ("roles are known", put("messages.4.role", "robot"), None, "messages.4.role: Unexpected role 'robot'"),
    ("the first message is the user's", drop("messages.0"), None, 'messages: first message must use the "user" role'),
    (
        "roles alternate",
        lambda request: messages(request).append({"role": "user", "content": "Again."}),
        lambda request: messages(request).extend(
            [{"role": "assistant", "content": "Again?"}, {"role": "user", "content": "Again."}]
        ),
        "messages: roles must alternate",
    ),
    ("message keys are known", put("messages.4.id", "x"), None, "messages.4.id: Extra inputs are not permitted"),
    ("content is there", drop("messages.4.content"), None, "messages.4.content: Field required"),
    ("content is text or a list", put("messages.4.content", 7), None, "messages.4.content: Input should be"),
    ("content is not an empty string", put("messages.4.content", ""), None, "messages.4: all messages must have non-"),
    ("content is not an empty list", put("messages.4.content", []), None, "messages.4: all messages must have non-"),
    (
        "content is not blank",
        put("messages.4.content", " \n"),
        None,
        "messages: text content blocks must contain non-w",
    ),
    ("text is not empty", put("messages.3.content.0.text", ""), None, "messages.3.content.0.text.text: text content b"),
    ("text is not blank", put("messages.3.content.0.text", "\t"), None, "messages.3.content.0.text.text: text content"),
    ("text is a string", put("messages.3.content.0.text", 7), None, "messages.3.content.0.text.text: Input should be"),
    (
        "text in a result is not empty",
        put("messages.2.content.0.content.0.text", ""),
        put("messages.2.content.0.content", ""),
        "messages.2.content.0.tool_result.content.0.text.text: text content blocks must be non-empty",
    ),
    (
        "the system prompt is not empty",
        put("system", ""),
        put("system", "x"),
        "system: text content blocks must be non",
    ),
    ("system text is not blank", put("system.0.text", "  "), None, "system.0.text.text: text content blocks must cont"),
    ("the system prompt has only text", put("system.0", PNG), None, "system.0: `image` blocks are not allowed in sys"),
    ("a block is an object", put("messages.3.content.0", "hi"), None, "messages.3.content.0: Input should be a valid"),
    ("kinds are known", put("messages.3.content.0.type", "song"), None, "messages.3.content.0: Input tag 'song'"),
    ("block keys are known", put("messages.3.content.0.mood", 1), None, "messages.3.content.0.text.mood: Extra input"),
    ("optional keys pass", put("messages.3.content.0.song", 1), put("messages.3.content.0.citations", []), "messages"),
    ("needed keys are there", drop("messages.1.content.3.input"), None, "messages.1.content.3.tool_use.input: Field r"),
    (
        "users do not think",
        put("messages.2.content.2", {"type": "thinking", "thinking": "x", "signature": "y"}),
        None,
        "messages.2.content.2: `thinking` blocks are not allowed in user content",
    ),
    (
        "users do not use tools",
        put("messages.2.content.2", use("toolu_9")),
        None,
        "messages.2.content.2: `tool_use` blocks are not allowed in user content",
    ),
    (
        "assistants show no images",
        put("messages.3.content.0", PNG),
        put("messages.2.content.2", PNG),
        "messages.3.content.0: `image` blocks are not allowed in assistant content",
    ),
    (
        "assistants return no results",
        put("messages.3.content.0", result("toolu_1")),
        None,
        "messages.3.content.0: `tool_result` blocks are not allowed in assistant content",
    ),
    (
        "use ids follow the pattern",
        put("messages.1.content.3.id", "a b"),
        None,
        "messages.1.content.3.tool_use.id: Str",
    ),
    (
        "use ids do not end in a newline",
        put("messages.1.content.3.id", "a\n"),
        None,
        "messages.1.content.3.tool_use.id",
    ),
    (
        "tool names follow the pattern",
        put("messages.1.content.3.name", "a.b"),
        put("messages.1.content.3.name", "a-b"),
        "messages.1.content.3.tool_use.name: String should match pattern",
    ),
    (
        "tool names have at most 128 characters",
        put("messages.1.content.3.name", "a" * 129),
        put("messages.1.content.3.name", "a" * 128),
        "messages.1.content.3.tool_use.name: String should match",
    ),
    (
        "inputs are objects",
        put("messages.1.content.3.input", "{}"),
        put("messages.1.content.3.input", {}),
        "messages.1.content.3.tool_use.input: Input should be a valid dictionary",
    ),
    (
        "use ids are unique",
        lambda request: (
            put("messages.3.content.0", use("toolu_1"))(request),
            put("messages.4.content", [result("toolu_1")])(request),
        ),
        lambda request: (
            put("messages.3.content.0", use("toolu_3"))(request),
            put("messages.4.content", [result("toolu_3")])(request),
        ),
        "messages.3.content.0: `tool_use` ids",
    ),
    (
        "every use has its result",
        drop("messages.2.content.1"),
        None,
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_2.",
    ),
    (
        "a use at the very end has no result",
        last_turn(use("toolu_8")),
        last_turn(text("Bye.")),
        "messages.5: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_8.",
    ),
    (
        "results come first",
        lambda request: content(request, 2).insert(0, text("Wait.")),
        lambda request: content(request, 2).append(text("Wait.")),
        "messages.1: `tool_use` ids were found without",
    ),
    (
        "every result has its use",
        lambda request: content(request, 2).append(result("toolu_7")),
        None,
        "messages.2.content.3: unexpected `tool_use_id` found in `tool_result` blocks: toolu_7.",
    ),
    (
        "a result two messages late is an orphan",
        put("messages.4.content", [result("toolu_1")]),
        None,
        "messages.4.content.0: unexpected `tool_use_id`",
    ),
    (
        "a use has one result",
        lambda request: content(request, 2).insert(1, result("toolu_1")),
        None,
        "messages.2.content: each tool_use must have a single result",
    ),
    (
        "a failed result says something",
        put("messages.2.content.1.content", ""),
        put("messages.2.content.1.content", "x"),
        "messages.2.content.1.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        "a failed result is text",
        put("messages.2.content.1.content", [PNG]),
        put("messages.2.content.1.content", [text()]),
        "messages.2.content.1.tool_result: all content must be type `text`",
    ),
    (
        "is_error is true or false",
        put("messages.2.content.1.is_error", "yes"),
        drop("messages.2.content.1.is_error"),
        "messages.2.content.1.tool_result.is_error: Input should be a valid boolean",
    ),
    (
        "server uses have their result",
        put("messages.3.content", [SERVER_USE, text()]),
        put("messages.3.content", [SERVER_USE, SERVER_RESULT, text()]),
        "messages.3.content.0: `server_tool_use` without",
    ),
    (
        "only a paused turn leaves a server use open",
        last_turn(SERVER_USE, text("x")),
        last_turn(text("x"), SERVER_USE),
        "messages.5.content.0: `server_tool_use` without its result",
    ),
    (
        "server results have their use",
        put("messages.3.content", [SERVER_RESULT, text()]),
        None,
        "messages.3.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks",
    ),
    (
        "thinking is a string",
        put("messages.1.content.0.thinking", None),
        put("messages.1.content.0.thinking", ""),
        "messages.1.content.0.thinking.thinking: Input should be a valid string",
    ),
    (
        "thinking is signed",
        put("messages.1.content.0.signature", ""),
        None,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "thinking has a signature",
        drop("messages.1.content.0.signature"),
        None,
        "messages.1.content.0.thinking.signature: Field required",
    ),
    (
        "redacted thinking has data",
        put("messages.1.content.1.data", ""),
        None,
        "messages.1.content.1.redacted_thinking.data: Invalid",
    ),
    (
        "a prefill ends in a word",
        last_turn(text("So ")),
        last_turn(text("So")),
        "messages: final assistant content canno",
    ),
    ("tool blocks need tools", drop("tools"), None, "Requests which include `tool_use` or `tool_result` blocks must"),
    ("tools are a list", put("tools", {}), None, "tools: Input should be a valid list"),
    (
        "tool names are unique",
        lambda request: request["tools"].append(TOOL),
        lambda request: request["tools"].append({**TOOL, "name": "Other"}),
        "tools: Tool names must be unique.",
    ),
    ("declared names follow the pattern", put("tools.0.name", "a b"), None, "tools.0.custom.name: String should match"),
    ("schemas are objects", put("tools.0.input_schema", []), None, "tools.0.custom.input_schema: Input should be a"),
    (
        "schemas are of type object",
        put("tools.0.input_schema.type", "string"),
        None,
        "tools.0.custom.input_schema.type",
    ),
    (
        "tool keys are known",
        put("tools.0.color", "red"),
        put("tools.0.strict", True),
        "tools.0.custom.color: Extra inp",
    ),
    (
        "provider tools need no schema",
        put("tools.0", {"type": "custom", "name": "bash"}),
        put("tools.0", {"type": "bash_20250124", "name": "bash"}),
        "tools.0.custom.input_schema: Field required",
    ),
    ("at most four marks", marks(*[None] * 5), marks(*[None] * 4), "A maximum of 4 blocks with cache_control"),
    (
        "the automatic mark counts",
        lambda request: (marks(*[None] * 4)(request), request.update(marked())),
        lambda request: (marks(*[None] * 3)(request), request.update(marked())),
        "A maximum of 4 blocks with cache_cont",
    ),
    (
        "marks inside results count",
        lambda request: (marks(*[None] * 4)(request), content(request, 2)[0]["content"][0].update(marked())),
        lambda request: (marks(*[None] * 3)(request), content(request, 2)[0]["content"][0].update(marked())),
        "A maximum of 4 blocks with cache_control",
    ),
    ("lifetimes are known", marks("2h"), marks("1h"), "messages.2.content.3.cache_control.ephemeral.ttl: Input shoul"),
    (
        "long marks come before short ones",
        marks("5m", "1h"),
        marks("1h", "5m"),
        "messages.2.content.4.cache_control.tt",
    ),
    (
        "marks are ephemeral",
        put("messages.2.content.2.cache_control", {"type": "forever"}),
        None,
        "messages.2.content.2.cache_control: Input should be",
    ),
    (
        "thinking carries no mark",
        put("messages.1.content.0.cache_control", {"type": "ephemeral"}),
        None,
        "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
    ),
    (
        "empty text carries no mark",
        put("messages.2.content.2.text", ""),
        None,
        "messages.2.content.2.text: cache_control cannot be set for empty text blocks",
    ),
    ("at most 100 images", many_images(101), many_images(100), "messages: Too much media: 101 images > 100"),
    (
        "image kinds are known",
        put("messages.2.content.0.content.1.source.media_type", "image/bmp"),
        put("messages.2.content.0.content.1", WEBP),
        "messages.2.content.0.tool_result.content.1.image.source.base64.media_type: Input should be 'image/jpeg'",
    ),
    (
        "image data is there",
        put("messages.2.content.0.content.1.source.data", ""),
        None,
        "messages.2.content.0.tool_result.content.1.image.source.base64.data: Input should be a valid string",
    ),
    (
        "image sources are known",
        put("messages.2.content.0.content.1.source", {"type": "path", "path": "x"}),
        put("messages.2.content.0.content.1.source", {"type": "url", "url": "https://example.com/a.png"}),
        "messages.2.content.0.tool_result.content.1.image.source: Input tag 'path'",
    ),
    (
        "image files have an id",
        put("messages.2.content.0.content.1.source", {"type": "file"}),
        put("messages.2.content.0.content.1.source", {"type": "file", "file_id": "f"}),
        "messages.2.content.0.tool_result.content.1.image.source.file.file_id: Field required",
    ),
    (
        "image sources have no more keys",
        put("messages.2.content.0.content.1.source.width", 3),
        None,
        "messages.2.content.0.tool_result.content.1.image.source.base64.width: Extra inputs",
    ),
    (
        "documents have a source",
        put("messages.2.content.2", {"type": "document", "source": {"type": "text"}}),
        put(
            "messages.2.content.2",
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        ),
        "messages.2.content.2.document.source.text.data: Field required",
    ),
    (
        "search results hold text",
        put("messages.2.content.2", {"type": "search_result", "source": "s", "title": "t", "content": [PNG]}),
        put("messages.2.content.2", {"type": "search_result", "source": "s", "title": "t", "content": [text()]}),
        "messages.2.content.2.search_result.content.0: `image` blocks are not allowed",
    ),
    (
        "text is valid Unicode",
        put("messages.3.content.0.text", "\ud800"),
        put("messages.3.content.0.text", "\U0001f600"),
        "messages.3.content.0.text: the value cannot be sent as JSON",
    ),
    (
        "keys are valid Unicode",
        put("messages.1.content.3.input", {"\udfff": 1}),
        None,
        "messages.1.content.3.input: the value cannot be sent as JSON",
    ),
    (
        "numbers are finite",
        put("messages.1.content.3.input", {"n": float("nan")}),
        put("messages.1.content.3.input", {"n": 1.5e300}),
        "messages.1.content.3.input.n: the value cannot be sent",
    ),
    (
        "values are JSON",
        put("messages.1.content.3.input", {"n": b"raw"}),
        put("messages.1.content.3.input", {"n": [None, True, 2**80]}),
        "messages.1.content.3.input.n: the value cannot",
    ),
    (
        "budgets are at least 1,024",
        put("thinking.budget_tokens", 1023),
        None,
        "thinking.enabled.budget_tokens: Input sho",
    ),
    ("budgets stay below max_tokens", put("max_tokens", 1024), put("max_tokens", 1025), "`max_tokens` must be greater"),
    (
        "thinking modes are known",
        put("thinking.type", "deep"),
        put("thinking", {"type": "disabled"}),
        "thinking: Input t",
    ),
    (
        "tool choices are known",
        put("tool_choice", {"type": "some"}),
        put("tool_choice", {"type": "auto"}),
        "tool_choice: ",
    ),
    (
        "a chosen tool exists",
        put("tool_choice", {"type": "tool", "name": "No"}),
        lambda request: (request.pop("thinking"), put("tool_choice", {"type": "tool", "name": "Read"})(request)),
        "Tool 'No' not found in provided tools",
    ),
    (
        "edits are known",
        put("context_management", {"edits": [{"type": "x"}]}),
        put("context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]}),
        "context_management.edits.0: Input",
    ),
    (
        "thinking is cleared first",
        put(
            "context_management", {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015"}]}
        ),
        put(
            "context_management", {"edits": [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]}
        ),
        "context_management.edits.1: `clear_thinking_20251015` must be the first edit",
    ),
    (
        "clearing thinking needs thinking",
        lambda request: (
            put("context_management", {"edits": [{"type": "clear_thinking_20251015"}]})(request),
            put("thinking", {"type": "disabled"})(request),
        ),
        put("context_management", {"edits": [{"type": "clear_thinking_20251015"}]}),
        "`clear_thinking_20251015` strategy",
    ),
    (
        "edit fields are known",
        put("context_management", {"edits": [{"type": "clear_tool_uses_20250919", "keeps": 3}]}),
        put("context_management", {"edits": [{"type": "clear_tool_uses_20250919", "exclude_tools": ["Read"]}]}),
        "context_management.edits.0.clear_tool_uses_20250919.keeps: Extra inputs are not permitted",
    ),
    (
        "edit amounts say of what",
        put("context_management", {"edits": [{"type": "clear_tool_uses_20250919", "keep": 3}]}),
        put(
            "context_management",
            {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}}]},
        ),
        "context_management.edits.0.clear_tool_uses_20250919.keep: Input tag None",
    ),
    (
        "edit amounts are numbers",
        put(
            "context_management",
            {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": "x"}}]},
        ),
        put("context_management", {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
        "context_management.edits.0.clear_thinking_20251015.keep.thinking_turns.value: Input should be",
    ),
    (
        "diagnostics name a message",
        put("diagnostics", {"previous_message_id": 3}),
        put("diagnostics", {"previous_message_id": None}),
        "diagnostics.previous_message_id: Input should be a valid string",
    ),
    (
        "cache edits need the capability",
        put("messages.2.content.2", {"type": "cache_edits", "tool_use_ids": ["a"]}),
        None,
        "messages.2.content.2: Input tag 'cache_edits'",
    ),
]


@pytest.mark.requirement("K8")
@pytest.mark.parametrize(("broken", "twin", "expected"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_broken_request_is_named_and_its_twin_passes(broken: Change, twin: Change | None, expected: str) -> None:
    request = sound()
    broken(request)
    found = [problem.text for problem in problems(request)]
    assert any(line.startswith(expected) for line in found), found
    whole = sound()
    if twin is not None:
        twin(whole)
    assert problems(whole) == []


def test_the_sound_request_passes_and_is_left_as_it_was() -> None:
    request = sound()
    assert problems(request) == []
    assert request == sound()


def test_a_body_over_the_limit_is_too_large_and_one_at_the_limit_is_not() -> None:
    import msgspec

    request = sound()
    size = len(msgspec.json.encode(request))
    assert problems(request, limits=Limits(max_body_bytes=size)) == []
    found = problems(request, limits=Limits(max_body_bytes=size - 1))
    assert [(problem.status, problem.kind) for problem in found] == [(413, "request_too_large")]


def test_a_prompt_over_the_window_is_refused_in_the_providers_words() -> None:
    assert too_long(200_000, 200_000) is None
    assert too_long(200_001, 200_000) == Problem("", "prompt is too long: 200001 tokens > 200000 maximum")


def test_cache_edits_pass_where_the_provider_declares_them() -> None:
    request = sound()
    content(request, 2).append({"type": "cache_edits", "tool_use_ids": ["toolu_1"]})
    assert problems(request, limits=Limits(cache_edits=True)) == []
    content(request, 2)[-1]["tool_use_ids"] = []
    assert problems(request, limits=Limits(cache_edits=True)) != []


def test_a_value_nested_too_deeply_is_a_problem_not_an_error() -> None:
    request, deep = sound(), dict[str, Any]()
    place = deep
    for _ in range(100_000):
        place["a"] = place = {}
    content(request, 1)[3]["input"] = deep
    found = problems(request)
    # Free the nesting level by level: the interpreter would recurse.
    content(request, 1)[3]["input"] = {}
    while deep:
        deep = deep.pop("a")
    assert [problem.status for problem in found] == [400]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["type", "text", "role", "user", "assistant", "content", "tool_use", "tool_result", "thinking", "image", "source"]
)
ODD = st.recursive(
    JSON | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.requirement("K8")
@given(data=st.data())
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_the_validator_is_total_whatever_stands_anywhere(data: st.DataObject) -> None:
    request = sound()
    place: Any = request
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(ODD)
    for problem in problems(request):
        assert problem.text
        assert problem.status in (400, 413)


def long_request(count: int) -> dict[str, Any]:
    """Return a sound request with so many times the first four messages."""
    request = sound()
    head, tail = messages(request)[:4], messages(request)[4:]
    turns: list[Any] = []
    for turn in range(count):
        copied = copy.deepcopy(head)
        for block in copied[1]["content"][3:]:
            block["id"] += f"_{turn}"
        for block in copied[2]["content"][:2]:
            block["tool_use_id"] += f"_{turn}"
        copied[2]["content"][2].pop("cache_control")
        turns += copied
    request["messages"] = turns + tail
    assert problems(request) == []
    return request


def test_the_cost_of_a_check_grows_with_the_request(steps_of: Callable[[Callable[[], object]], int]) -> None:
    short, long = long_request(5), long_request(50)
    assert steps_of(lambda: problems(long)) < 15 * steps_of(lambda: problems(short))
