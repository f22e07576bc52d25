"""The public rules of a request as a table: each with its page, and requests that each model refuses or accepts.

Models are named here and not asked of the facts, so that the table also proves the facts.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from pictures import image_block, pdf, pdf_block, png
from reverie.values import field, record

__all__ = ["ALL", "RULES", "Case", "Rule", "request_of"]

ALL: Final = (
    *(
        "fable-5-2",
        "mythos-5-2",
        "fable-5-1",
        "mythos-5-1",
        "opus-5-5",
        "sonnet-5-5",
        "haiku-5-5",
        "opus-5",
        "sonnet-5",
    ),
    *("fable-5", "opus-4-8", "opus-4-7", "opus-4-6", "sonnet-4-6", "opus-4-5", "sonnet-4-5", "haiku-4-5"),
)
ALWAYS_THINKING: Final = ("fable-5-2", "mythos-5-2", "fable-5-1", "mythos-5-1", "opus-5-5", "fable-5")
CHECKED: Final = ("fable-5-2", "mythos-5-2", "fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5", "haiku-5-5")
OF_4_5: Final = ("opus-4-5", "sonnet-4-5", "haiku-4-5")
OF_4_6: Final = ("opus-4-6", "sonnet-4-6")
SYSTEM: Final = (*CHECKED, "opus-5", "fable-5", "opus-4-8")
PER_MESSAGE_EFFORT: Final = (*CHECKED, "opus-5")


def others(*models: str) -> tuple[str, ...]:
    """Return every model but these."""
    return tuple(model for model in ALL if model not in models)


@record
class Case:
    """Fields of a request that some models refuse with these first words, and that others accept."""

    fields: dict[str, Any]
    says: str = ""
    refused: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    version: str = ""
    betas: tuple[str, ...] | None = None
    code: str = ""


@record
class Rule:
    """A rule with the path of its page in the provider's documentation."""

    id: str
    sentence: str
    page: str
    cases: list[Case] = field(default_factory=lambda: [])


def request_of(model: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a small valid request for a model with these fields changed; None removes one."""
    request = {
        "model": f"claude-{model}",
        "max_tokens": 4_096,
        "tools": [deepcopy(TOOL)],
        "messages": [user()],
        **deepcopy(fields),
    }
    return {key: value for key, value in request.items() if value is not None}


def refused(fields: dict[str, Any], says: str, models: tuple[str, ...] = ALL, **more: Any) -> Case:
    """Return a case that these models refuse."""
    return Case(fields, says, refused=models, **more)


def accepted(fields: dict[str, Any], models: tuple[str, ...] = ALL, **more: Any) -> Case:
    """Return a case that these models accept."""
    return Case(fields, accepted=models, **more)


def split(fields: dict[str, Any], says: str, models: tuple[str, ...], **more: Any) -> Case:
    """Return a case that these models refuse and all others accept."""
    return Case(fields, says, refused=models, accepted=others(*models), **more)


def user(content: Any = "Hello.") -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks) or "Hello."}


def note(content: Any = "The mode is plan.", **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": content, **more}


def text(words: str = "Hello.", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def talk(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def use(called: str = "t1") -> dict[str, Any]:
    return {"type": "tool_use", "id": called, "name": "Read", "input": {}}


def result(called: str = "t1", content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": called, "content": content, **more}


def strict(properties: dict[str, Any], name: str = "Strict", required: Any = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "input_schema": schema, "strict": True}


def edits(*kinds: Any) -> dict[str, Any]:
    return {"context_management": {"edits": [{"type": kind} if isinstance(kind, str) else kind for kind in kinds]}}


def change(tool: dict[str, Any], kind: str = "tool_addition", **more: Any) -> dict[str, Any]:
    return note([{"type": kind, "tool": tool, **more}])


TOOL: Final[dict[str, Any]] = {"name": "Read", "description": "Read.", "input_schema": {"type": "object"}}
MARK: Final = {"type": "ephemeral"}
HOUR: Final = {"type": "ephemeral", "ttl": "1h"}
THOUGHT: Final = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SERVER_USE: Final = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
SERVER_RESULT: Final = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
SIGNED: Final = {"type": "compaction", "content": "A summary.", "signature": "c2ln"}
FORMAT: Final = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
ADAPTIVE: Final = {"thinking": {"type": "adaptive"}}
OFF: Final = {"thinking": {"type": "disabled"}}
ENABLED: Final = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
BETWEEN: Final = {"thinking": {"type": "between_tools"}}
ANY: Final = {"tool_choice": {"type": "any"}}
SUMMARIZE: Final = {"compaction": {"type": "summarize"}}
CLEAR_THINKING: Final = "clear_thinking_20251015"
CLEAR_USES: Final = "clear_tool_uses_20250919"
COMPACT: Final = "compact_20260112"
DEFINED: Final = {"type": "tool_definition", "definition": {"name": "Later", "input_schema": {"type": "object"}}}
REFERENCE: Final = {"type": "tool_reference", "name": "Read"}
CITED: Final = {"type": "text", "text": "Hello.", "citations": [{"type": "x"}]}
OLD, NEW = "2023-06-01", "2026-10-21"
EXTRA: Final = "Extra inputs are not permitted"
COMPACTING: Final = others(*OF_4_5)
ON_BEDROCK: Final = "us.anthropic.claude-opus-5-5-v1:0"
ON_GOOGLE: Final = "claude-opus-5-5@20260901"
SIDE: Final = image_block(png(1, 8_001))
BEFORE_4_7: Final = (*OF_4_6, *OF_4_5)
ROUND: Final = (user(), reply(THOUGHT, use()), user([result()]), reply(use("t2")), user([result("t2")]))
LATE_ROUND: Final = (user(), reply(use()), user([result()]), reply(THOUGHT, use("t2")), user([result("t2")]))
LATE: Final = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
LATE_TEXT: Final = LATE.replace("tool_use", "text")
BRIEF: Final = {"type": "compaction", "content": "Brief."}
FORCED_REFUSED: Final = ("fable-5-2", "mythos-5-2", "fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5")
OFF_BY_TYPE: Final = others(*ALWAYS_THINKING, "sonnet-5-5")

FRAME: Final = [
    Rule(
        "unknown-field",
        "An unknown field is refused at any depth.",
        "api/messages",
        [
            refused({"mesages": []}, f"mesages: {EXTRA}"),
            refused(talk({**user(), "id": "x"}), f"messages.0.id: {EXTRA}"),
            refused(talk(user([text(mood="x")])), f"messages.0.content.0.text.mood: {EXTRA}"),
            refused({"metadata": {"name": "x"}}, f"metadata.name: {EXTRA}"),
            accepted({"metadata": {"user_id": "u"}}),
            refused({"tool_choice": {"type": "auto", "name": "Read"}}, f"tool_choice.auto.name: {EXTRA}"),
            refused({"output_config": {"efort": "low"}}, f"output_config.efort: {EXTRA}"),
            refused(
                talk(reply({**SIGNED, "citations": None}), user()),
                f"messages.0.content.0.compaction.citations: {EXTRA}",
            ),
        ],
    ),
    Rule(
        "max-tokens",
        "max_tokens is at most the model's largest output.",
        "about-claude/models/overview",
        [
            refused({"max_tokens": 128_001}, "max_tokens: 128001 > "),
            Case({"max_tokens": 128_000}, "max_tokens: 128000 > 64000", refused=OF_4_5, accepted=others(*OF_4_5)),
            refused({"max_tokens": -1}, "max_tokens: Input should be"),
            refused({"max_tokens": None}, "max_tokens: Field required"),
        ],
    ),
    Rule(
        "max-tokens-0",
        "max_tokens 0 fills the cache; not with stream, enabled thinking, an output format or a forced tool.",
        "build-with-claude/prompt-caching",
        [
            accepted({"max_tokens": 0}),
            accepted({"max_tokens": 0, **ADAPTIVE}, others(*OF_4_5)),
            refused({"max_tokens": 0, "stream": True}, "max_tokens: max_tokens: 0 is not supported with stream"),
            refused(
                {"max_tokens": 0, **ENABLED}, "max_tokens: max_tokens: 0 is not supported with thinking", BEFORE_4_7
            ),
            refused({"max_tokens": 0, **FORMAT}, "max_tokens: max_tokens: 0 is not supported with output_config"),
            refused({"max_tokens": 0, **ANY}, "max_tokens: max_tokens: 0 is not supported with a tool_choice"),
        ],
    ),
    Rule(
        "prefill",
        "The last message may not be the beginning of a reply: from 4.6 on, and on any model while it thinks.",
        "about-claude/models/whats-new-claude-4-6",
        [
            Case(talk(user(), reply(text("So"))), "This model does not support assistant", others(*OF_4_5), OF_4_5),
            refused(talk(user(), reply(text("So")), **ENABLED), "Assistant message prefill is not", OF_4_5),
            accepted(talk(user(), reply(SERVER_USE, SERVER_RESULT))),
            accepted(talk(user(), reply(SERVER_USE))),
            refused(talk(user(), reply(text("So "))), "messages: final assistant content cannot end", OF_4_5),
        ],
    ),
    Rule(
        "sampling",
        "temperature, top_p and top_k are refused from 4.7 on; on older models they are limited while thinking is on.",
        "build-with-claude/thinking",
        [
            *(
                split({name: value}, f"`{name}` may not be set", others(*BEFORE_4_7))
                for name, value in (("temperature", 0.5), ("top_p", 0.9), ("top_k", 5))
            ),
            accepted({"temperature": 1}),
            refused({"temperature": 0.5, **ENABLED}, "`temperature` may only be set to 1", BEFORE_4_7),
            refused({"top_p": 0.9, **ENABLED}, "`top_p` must be greater", BEFORE_4_7),
            refused({"top_k": 5, **ENABLED}, "`top_k` must be unset", BEFORE_4_7),
            accepted({"top_p": 0.95, **ENABLED}, BEFORE_4_7),
        ],
    ),
    Rule(
        "version-2026-10-21",
        "API version 2026-10-21 refuses sampling options on every model, and citations in a user's text.",
        "api/versioning",
        [
            refused({"temperature": 1}, f"temperature: {EXTRA}", version=NEW),
            refused({"top_p": 1}, f"top_p: {EXTRA}", version=NEW),
            refused({"top_k": 1}, f"top_k: {EXTRA}", version=NEW),
            accepted({"temperature": 0.5}, BEFORE_4_7, version=OLD),
            refused(
                talk(user([text(citations=[{"type": "x"}])])), "messages.0.content.0.text.citations: ", version=NEW
            ),
            accepted(talk(user([text(citations=[{"type": "x"}])])), version=OLD),
            refused(
                talk(user([{"type": "search_result", "source": "s", "title": "t", "content": [CITED]}])),
                "messages.0.content.0.search_result.content.0.citations: ",
                version=NEW,
            ),
            accepted(talk(user([text(citations=[])])), version=NEW),
            refused(
                talk(user(), reply({"type": "document", "source": {"type": "text", "data": "x"}}), user()),
                "messages.1.content.0: `document` blocks are not allowed",
                version=NEW,
            ),
        ],
    ),
    Rule(
        "plain-options",
        "stop_sequences are not blank; stream, service_tier and speed have known values.",
        "api/messages",
        [
            refused({"stop_sequences": [" "]}, "stop_sequences: each stop sequence must contain"),
            accepted({"stop_sequences": ["END"]}),
            refused({"stream": "yes"}, "stream: Input should be a valid boolean"),
            refused({"service_tier": "best"}, "service_tier: Input should be"),
            accepted({"service_tier": "auto", "stream": True}),
            refused({"speed": "slow"}, "speed: Input should be"),
        ],
    ),
    Rule(
        "text",
        "Text and messages are not empty or blank.",
        "api/messages",
        [
            refused(talk(user("")), "messages.0: all messages must have non-empty content"),
            refused(talk(user(" ")), "messages: text content blocks must contain non-whitespace"),
            refused(talk(user([text("")])), "messages.0.content.0.text.text: text content blocks must be non-empty"),
            refused({"system": ""}, "system: text content blocks must be non-empty"),
        ],
    ),
    Rule(
        "roles",
        "The first message is the user's and roles alternate (the second is stricter than the provider's rule).",
        "api/messages",
        [
            refused(talk(reply(), user()), 'messages: first message must use the "user" role'),
            refused(talk(user(), user()), "messages: roles must alternate"),
            refused(talk({"role": "robot", "content": "x"}), "messages.0.role: Unexpected role"),
        ],
    ),
]

THINKING: Final = [
    Rule(
        "thinking-enabled",
        "thinking.type enabled is refused from 4.7 on; it needs a budget from 1,024 tokens to below max_tokens.",
        "build-with-claude/extended-thinking",
        [
            split(ENABLED, '"thinking.type.enabled" is not supported for this model', others(*BEFORE_4_7)),
            refused(
                {"thinking": {"type": "enabled", "budget_tokens": 1_023}}, "thinking.enabled.budget_tokens", BEFORE_4_7
            ),
            refused({**ENABLED, "max_tokens": 1_024}, "`max_tokens` must be greater", BEFORE_4_7),
        ],
    ),
    Rule(
        "thinking-adaptive",
        "thinking.type adaptive is refused up to 4.5.",
        "build-with-claude/adaptive-thinking",
        [split(ADAPTIVE, "adaptive thinking is not supported on this model", OF_4_5)],
    ),
    Rule(
        "thinking-disabled",
        "thinking.type disabled is refused by Fable, Mythos, Opus 5.5 and Sonnet 5.5, which has between_tools instead.",
        "build-with-claude/thinking",
        [
            split(OFF, '"thinking.type.disabled" is not supported for this model', (*ALWAYS_THINKING, "sonnet-5-5")),
            refused(
                OFF,
                '"thinking.type.disabled" is not supported for this model. Use "thinking.type.between_tools"',
                ("sonnet-5-5",),
            ),
            split(BETWEEN, '"thinking.type.between_tools" is not supported for this model', others("sonnet-5-5")),
        ],
    ),
    Rule(
        "thinking-fields",
        "disabled and between_tools take no display, budget_tokens or block_binding.",
        "build-with-claude/thinking",
        [
            refused(
                {"thinking": {"type": "between_tools", "display": "omitted"}},
                f"thinking.between_tools.display: {EXTRA}",
                ("sonnet-5-5",),
            ),
            refused(
                {"thinking": {"type": "disabled", "block_binding": {}}},
                f"thinking.disabled.block_binding: {EXTRA}",
                OFF_BY_TYPE,
            ),
            refused(
                {"thinking": {"type": "adaptive", "budget_tokens": 1_024}},
                f"thinking.adaptive.budget_tokens: {EXTRA}",
                others(*OF_4_5),
            ),
            accepted({"thinking": {"type": "adaptive", "display": "omitted"}}, others(*OF_4_5)),
            refused({"thinking": {"type": "deep"}}, "thinking: Input tag 'deep'"),
        ],
    ),
    Rule(
        "block-binding",
        "block_binding says error or drop_block, with adaptive or enabled thinking; models without a check accept it.",
        "build-with-claude/preserved-thinking",
        [
            accepted(
                {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
                others(*OF_4_5),
            ),
            refused(
                {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop"}}},
                "thinking.adaptive.block_binding.prefix_mismatch_behavior: ",
                others(*OF_4_5),
            ),
            refused(
                {"thinking": {"type": "adaptive", "block_binding": {}}},
                f"thinking.adaptive.block_binding: {EXTRA}",
                others(*OF_4_5),
                betas=(),
            ),
            accepted(
                {"thinking": {"type": "adaptive", "block_binding": {}}},
                others(*OF_4_5),
                betas=("thinking-binding-controls-2026-08-01",),
            ),
        ],
    ),
    Rule(
        "effort",
        "effort has five values; xhigh and max are not on every model, and some models take no effort.",
        "build-with-claude/effort",
        [
            Case(
                {"output_config": {"effort": "low"}},
                "This model does not support the effort parameter.",
                ("sonnet-4-5", "haiku-4-5"),
                others("sonnet-4-5", "haiku-4-5"),
            ),
            Case(
                {"output_config": {"effort": "xhigh"}},
                "output_config.effort 'xhigh' is not supported for this model",
                (*OF_4_6, "opus-4-5"),
                others(*BEFORE_4_7),
            ),
            Case(
                {"output_config": {"effort": "max"}},
                "output_config.effort 'max' is not supported for this model",
                ("opus-4-5",),
                others(*OF_4_5),
            ),
            refused({"output_config": {"effort": "huge"}}, "output_config.effort: Input should be"),
        ],
    ),
    Rule(
        "effort-without-thinking",
        "xhigh and max are refused while thinking is off on Opus 5, Haiku 5.5 and (between_tools) Sonnet 5.5.",
        "build-with-claude/effort",
        [
            Case(
                {**OFF, "output_config": {"effort": "xhigh"}},
                "output_config.effort 'xhigh' is not supported when",
                ("opus-5", "haiku-5-5"),
                ("sonnet-5", "opus-4-8", "opus-4-7"),
            ),
            refused(
                {**BETWEEN, "output_config": {"effort": "max"}},
                "output_config.effort 'max' is not supported when",
                ("sonnet-5-5",),
            ),
            accepted({**OFF, "output_config": {"effort": "high"}}, ("opus-5", "haiku-5-5")),
        ],
    ),
    Rule(
        "signature",
        "A thinking block goes back signed, even if its text is empty.",
        "build-with-claude/thinking-troubleshooting",
        [
            refused(
                talk(user(), reply({**THOUGHT, "signature": ""}, text()), user()),
                "messages.1.content.0: Invalid `signature` in `thinking` block",
            ),
            accepted(talk(user(), reply({**THOUGHT, "thinking": ""}, text()), user())),
            refused(
                talk(user(), reply({"type": "redacted_thinking", "data": ""}, text()), user()),
                "messages.1.content.0.redacted_thinking.data: Invalid",
            ),
        ],
    ),
    Rule(
        "final-thinking",
        "A reply that was cut off may end in thinking; it goes back as it is.",
        "build-with-claude/thinking",
        [
            accepted(talk(user(), reply(THOUGHT), user("Go on."))),
            accepted(talk(user(), reply(text(), THOUGHT), user())),
        ],
    ),
    Rule(
        "thinking-in-a-tool-round",
        "Thinking that is turned on inside a tool round is no error.",
        "build-with-claude/thinking",
        [accepted(talk(user(), reply(use()), user([result()]), **ENABLED), BEFORE_4_7)],
    ),
    Rule(
        "thinking-before-calls",
        "With a budget for thinking, the tool round that a request continues begins with thinking if it has any.",
        "build-with-claude/extended-thinking",
        [
            accepted(talk(*ROUND, **ENABLED), BEFORE_4_7),
            refused(talk(*LATE_ROUND, **ENABLED), LATE, BEFORE_4_7),
            refused(talk(user(), reply(text(), THOUGHT, use()), user([result()]), **ENABLED), LATE_TEXT, BEFORE_4_7),
            accepted(talk(*LATE_ROUND, **ADAPTIVE), others(*OF_4_5)),
            accepted(talk(*LATE_ROUND)),
            accepted(talk(*LATE_ROUND, **OFF), OFF_BY_TYPE),
            accepted(talk(*LATE_ROUND, reply(), user(), **ENABLED), BEFORE_4_7),
            accepted(
                talk(*LATE_ROUND, reply(), user(), reply(THOUGHT, use("t3")), user([result("t3")]), **ENABLED),
                BEFORE_4_7,
            ),
        ],
    ),
]

TOOLS: Final = [
    Rule(
        "results",
        "Each tool_use is answered by one tool_result in the next message, before its text.",
        "build-with-claude/handling-stop-reasons",
        [
            accepted(talk(user(), reply(use()), user([result(), text()]))),
            refused(talk(user(), reply(use()), user()), "messages.1: `tool_use` ids were found without"),
            refused(
                talk(user(), reply(use()), user([text(), result()])), "messages.1: `tool_use` ids were found without"
            ),
            refused(
                talk(user(), reply(use()), user([result(), result()])), "messages.2.content: each tool_use must have"
            ),
            refused(talk(user([result()])), "messages.0.content.0: unexpected `tool_use_id`"),
            refused(talk(user(), reply(use()), user([result()]), tools=None), "Requests which include `tool_use`"),
        ],
    ),
    Rule(
        "forced-tool",
        "A forced tool_choice is refused by Fable and Mythos 5.1 and later, Opus 5.5 and Sonnet 5.5.",
        "agents-and-tools/tool-use/define-tools",
        [
            split(ANY, 'tool_choice: type "tool" and "any" are not supported for this model.', FORCED_REFUSED),
            split(
                {"tool_choice": {"type": "tool", "name": "Read"}}, 'tool_choice: type "tool" and "any"', FORCED_REFUSED
            ),
            refused({**ANY, **ENABLED}, "Thinking may not be enabled when tool_choice forces tool use.", BEFORE_4_7),
            accepted({"tool_choice": {"type": "auto"}}),
            accepted({"tool_choice": {"type": "none"}}),
        ],
    ),
    Rule(
        "deferred-tools",
        "A deferred tool has no cache_control; a reference needs a definition; one tool is loaded.",
        "agents-and-tools/tool-use/tool-search-tool",
        [
            refused(
                {"tools": [TOOL, {**TOOL, "name": "B", "defer_loading": True, "cache_control": MARK}]},
                "tools.1: Tool 'B' cannot have both",
            ),
            accepted({"tools": [TOOL, {**TOOL, "name": "B", "defer_loading": True}]}),
            refused(
                talk(user(), reply(use()), user([result(content=[{"type": "tool_reference", "tool_name": "No"}])])),
                "messages.2.content.0.tool_result.content.0: Tool reference 'No' has no corresponding",
            ),
            accepted(
                talk(user(), reply(use()), user([result(content=[{"type": "tool_reference", "tool_name": "Read"}])]))
            ),
            split({"tools": [{**TOOL, "defer_loading": True}]}, "All tools have defer_loading set", others(*SYSTEM)),
        ],
    ),
    Rule(
        "strict-tools",
        "At most 20 strict tools, 24 optional and 16 union-typed parameters; no recursion and no bounds; no citations.",
        "build-with-claude/structured-outputs",
        [
            refused({"tools": [strict({}, f"S{at}") for at in range(21)]}, "tools: Too many strict tools: 21 > 20"),
            accepted({"tools": [strict({}, f"S{at}") for at in range(20)]}),
            refused(
                {"tools": [strict({f"p{at}": {"type": "string"} for at in range(25)})]},
                "Schemas contain too many optional",
            ),
            accepted({"tools": [strict({f"p{at}": {"type": "string"} for at in range(24)})]}),
            refused(
                {"tools": [strict({f"p{at}": {"type": ["string", "null"]} for at in range(17)})]},
                "Schemas contain too many parameters with union",
            ),
            refused(
                {"tools": [strict({"n": {"type": "integer", "minimum": 1}})]},
                "tools.0.custom.input_schema.properties.n: For 'integer' type, property 'minimum'",
            ),
            refused(
                {"tools": [strict({"self": {"$ref": "#"}})]}, "tools.0.custom.input_schema.properties.self: Recursive"
            ),
            refused(
                talk(
                    user(
                        [
                            {
                                "type": "document",
                                "source": {"type": "text", "media_type": "text/plain", "data": "x"},
                                "citations": {"enabled": True},
                            }
                        ]
                    ),
                    **FORMAT,
                ),
                "output_config.format: citations",
            ),
            accepted(FORMAT),
        ],
    ),
    Rule(
        "tool-types",
        "Opus 5.5, Sonnet 5.5 and Fable 5.2 lack computer_20251124, Haiku 5.5 lacks computer_20250124.",
        "agents-and-tools/tool-use/computer-use-tool",
        [
            split(
                {"tools": [{"type": "computer_20251124", "name": "computer"}]},
                "'claude-",
                ("opus-5-5", "sonnet-5-5", "fable-5-2", "mythos-5-2"),
            ),
            split(
                {"tools": [{"type": "computer_20250124", "name": "computer"}]},
                "'claude-haiku-5-5' does not support tool",
                ("haiku-5-5",),
            ),
        ],
    ),
    Rule(
        "tool-definitions",
        "A tool has a unique name of letters, digits, '_' and '-', and a schema of type object.",
        "agents-and-tools/tool-use/define-tools",
        [
            refused({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
            refused({"tools": [{**TOOL, "name": "a b"}]}, "tools.0.custom.name: String should match"),
            refused({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
        ],
    ),
]

CACHE: Final = [
    Rule(
        "breakpoints",
        "At most 4 breakpoints, the automatic one included; none of an hour behind one of 5 minutes.",
        "build-with-claude/prompt-caching",
        [
            accepted(talk(user([text(cache_control=MARK) for _ in range(4)]))),
            refused(
                talk(user([text(cache_control=MARK) for _ in range(5)])), "A maximum of 4 blocks with cache_control"
            ),
            refused(
                talk(user([*(text(cache_control=MARK) for _ in range(4)), text()]), cache_control=MARK),
                "A maximum of 4 blocks with cache_control",
            ),
            refused(
                talk(user([text(cache_control=MARK), text(cache_control=HOUR)])),
                "messages.0.content.1.cache_control.ttl",
            ),
            accepted(talk(user([text(cache_control=HOUR), text(cache_control=MARK)]))),
        ],
    ),
    Rule(
        "breakpoint-places",
        "No breakpoint on thinking, on empty text, or on a tool_addition and its definition at once.",
        "build-with-claude/prompt-caching",
        [
            refused(
                talk(user(), reply({**THOUGHT, "cache_control": MARK}, text()), user()),
                f"messages.1.content.0.thinking.cache_control: {EXTRA}",
            ),
            refused(
                talk(user([text("", cache_control=MARK)])), "messages.0.content.0.text: cache_control cannot be set"
            ),
            refused(
                talk(
                    user(),
                    change(
                        {**DEFINED, "definition": {**DEFINED["definition"], "cache_control": MARK}}, cache_control=MARK
                    ),
                ),
                "messages.1.content.0: cache_control may be set on a tool_addition or",
                SYSTEM,
            ),
            accepted(talk(user(), change(DEFINED, cache_control=MARK)), SYSTEM),
        ],
    ),
    Rule(
        "automatic-breakpoint",
        "An automatic breakpoint may not meet one of another lifetime on the last block; its equal is fine.",
        "build-with-claude/prompt-caching",
        [
            refused(talk(user([text(cache_control=HOUR)]), cache_control=MARK), "cache_control: the last block has"),
            accepted(talk(user([text(cache_control=MARK)]), cache_control=MARK)),
            accepted({"cache_control": HOUR}),
        ],
    ),
]

IMAGES: Final = [
    Rule(
        "body-size",
        "A body has at most 32 MB, 20 MB on Bedrock and 30 MB on Google Cloud.",
        "api/overview",
        [
            refused(talk(user("x" * 32_000_000)), "Request exceeds the maximum size", ("opus-5-5",)),
            refused({"model": ON_BEDROCK, **talk(user("x" * 20_000_000))}, "Request exceeds", ("opus-5-5",)),
            refused({"model": ON_GOOGLE, **talk(user("x" * 30_000_000))}, "Request exceeds", ("opus-5-5",)),
        ],
    ),
    Rule(
        "pdf-pages",
        "PDF pages count like images: 600 a request, 100 on models with a window of 200,000 tokens.",
        "build-with-claude/pdf-support",
        [
            split(talk(user([pdf_block(pdf(101))])), "messages: Too much media: 0 images and 101 PDF pages", OF_4_5),
            split(talk(user([pdf_block(pdf(60, packed=True))] * 2)), "messages: Too much media", OF_4_5),
            split(
                talk(user(), reply(use()), user([result(content=[pdf_block(pdf(99)), *[image_block(png(1, 1))] * 2])])),
                "messages: Too much media: 2 images and 99 PDF pages > 100",
                OF_4_5,
            ),
            refused(talk(user([pdf_block(pdf(601))])), "messages: Too much media: 0 images and 601 PDF pages"),
            accepted(talk(user([pdf_block(pdf(90))]))),
        ],
    ),
    Rule(
        "pdf-data",
        "A PDF document is a PDF in base64.",
        "build-with-claude/pdf-support",
        [
            refused(talk(user([pdf_block("no base64!")])), "messages.0.content.0.document.source.base64.data: invalid"),
            refused(talk(user([pdf_block(b"no PDF")])), "messages.0.content.0.document.source.base64.data: The PDF"),
        ],
    ),
    Rule(
        "image-count",
        "600 images a request, 100 on models with a window of 200,000 tokens.",
        "build-with-claude/vision",
        [
            Case(
                talk(user([image_block(png(1, 1))] * 101)),
                "messages: Too much media: 101 images > 100",
                OF_4_5,
                others(*OF_4_5),
            ),
            refused(talk(user([image_block(png(1, 1))] * 601)), "messages: Too much media: 601 images"),
        ],
    ),
    Rule(
        "image-data",
        "An image is JPEG, PNG, GIF or WebP in base64, of the type that it names, at most 10 MB.",
        "build-with-claude/vision",
        [
            accepted(talk(user([image_block(png(1, 1))]))),
            refused(
                talk(user([image_block("no base64!")])), "messages.0.content.0.image.source.base64.data: invalid base64"
            ),
            refused(
                talk(user([image_block("aGk=")])), "messages.0.content.0.image.source.base64.data: Could not process"
            ),
            refused(
                talk(user([image_block(png(1, 1), "image/gif")])),
                "messages.0.content.0.image.source.base64.data: Image does not match",
            ),
            refused(
                talk(user([image_block("A" * 10_000_004)])),
                "messages.0.content.0.image.source.base64.data: image exceeds",
                ("opus-5-5", "sonnet-4-5"),
            ),
        ],
    ),
    Rule(
        "image-pixels",
        "A side has at most 8,000 pixels, 2,000 with more than 20 images (on cloud platforms, with documents).",
        "build-with-claude/vision",
        [
            refused(talk(user([SIDE])), "messages.0.content.0.image.source.base64.data: At least one of the image dim"),
            refused(
                talk(user(), reply(use()), user([result(content=[SIDE])])),
                "messages.2.content.0.tool_result.content.0.image.source.base64.data: At least one",
            ),
            accepted(talk(user([image_block(png(1, 2_001))] * 20))),
            refused(
                talk(user([image_block(png(1, 2_001))] * 21)),
                "messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed max "
                "allowed size for many-image requests: 2000",
            ),
            accepted(talk(user([image_block(png(1, 2_001)), *[pdf_block(pdf(1))] * 20]))),
            refused(
                {"model": ON_BEDROCK, **talk(user([image_block(png(1, 2_001)), *[pdf_block(pdf(1))] * 20]))},
                "messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed max "
                "allowed size for many-image requests: 2000",
                ("opus-5-5",),
            ),
        ],
    ),
]

COMPACTION: Final = [
    Rule(
        "compaction-request",
        "compaction says summarize, with instructions of at most 16,384 characters.",
        "build-with-claude/compaction-on-demand",
        [
            split(SUMMARIZE, "compaction: compaction is not supported for this model", OF_4_5),
            accepted(talk(user(), reply(), **SUMMARIZE), COMPACTING),
            refused(
                {"compaction": {"type": "summarize", "instructions": "x" * 16_385}},
                "compaction.instructions: ",
                COMPACTING,
            ),
            accepted({"compaction": {"type": "summarize", "instructions": "x" * 16_384}}, COMPACTING),
            refused({"compaction": {"type": "summarize", "trigger": 1}}, f"compaction.trigger: {EXTRA}", COMPACTING),
            refused(SUMMARIZE, "compaction: requires anthropic-beta: compact-2026-09-04", betas=()),
        ],
    ),
    Rule(
        "compaction-beside",
        "compaction excludes context_management, stop_sequences, format, forced tool, task_budget.remaining.",
        "build-with-claude/compaction-on-demand",
        [
            refused({**SUMMARIZE, **edits(CLEAR_USES)}, "context_management: context_management may not", COMPACTING),
            refused(
                {**SUMMARIZE, "stop_sequences": ["x"]}, "stop_sequences: stop_sequences may not be set", COMPACTING
            ),
            refused({**SUMMARIZE, **FORMAT}, "output_config.format: output_config.format may not be set", COMPACTING),
            refused({**SUMMARIZE, **ANY}, "tool_choice: tool_choice may not be set", COMPACTING),
            refused(
                {**SUMMARIZE, "output_config": {"task_budget": {"type": "tokens", "total": 9, "remaining": 5}}},
                "output_config.task_budget.remaining: ",
                COMPACTING,
            ),
            accepted({**SUMMARIZE, "output_config": {"task_budget": {"type": "tokens", "total": 9}}}, COMPACTING),
        ],
    ),
    Rule(
        "compaction-open-call",
        "A compaction request may not end on an unanswered tool_use, and needs something to summarize.",
        "build-with-claude/compaction-on-demand",
        [
            refused(
                talk(user(), reply(use()), **SUMMARIZE),
                "messages.1: a compaction request cannot end",
                COMPACTING,
                code="compaction_incomplete_turn",
            ),
            refused(
                talk(note([], output_config={"effort": "low"}), **SUMMARIZE),
                "messages: there is nothing to summarize",
                PER_MESSAGE_EFFORT,
                code="compaction_nothing_to_summarize",
            ),
        ],
    ),
    Rule(
        "compaction-block",
        "The signed block is the first block of the first message, by itself or before the rest, once.",
        "build-with-claude/compaction-on-demand",
        [
            accepted(talk(reply(SIGNED), user())),
            accepted(talk(reply(SIGNED), reply(), user())),
            accepted(talk(reply(SIGNED, text()), user())),
            accepted(talk(user([SIGNED, text()]))),
            accepted(talk(reply({**SIGNED, "cache_control": MARK}), user())),
            refused(
                talk(user(), reply(SIGNED), user()),
                "messages.1.content.0: a compaction block must be the first",
                code="compaction_block_misplaced",
            ),
            refused(
                talk(user([text(), SIGNED])),
                "messages.0.content.1: a compaction block must be the first",
                code="compaction_block_misplaced",
            ),
            refused(
                talk(reply(SIGNED), reply(SIGNED), user()),
                "messages.1.content.0: more than one compaction block",
                code="compaction_block_ambiguous",
            ),
            refused(talk(reply(SIGNED), user()), "messages.0.content.0: Input tag 'compaction'", betas=()),
            accepted(talk(reply(SIGNED), user()), betas=("compact-2026-09-04",)),
        ],
    ),
    Rule(
        "threshold-compaction",
        "compact_20260112 has a trigger from 50,000 tokens on; its block stays in the reply; not with a signed one.",
        "build-with-claude/compaction-threshold",
        [
            split(
                edits({"type": COMPACT, "trigger": {"type": "input_tokens", "value": 50_000}}),
                f"context_management.edits.0: `{COMPACT}` is not supported",
                OF_4_5,
            ),
            refused(
                edits({"type": COMPACT, "trigger": {"type": "input_tokens", "value": 49_999}}),
                f"context_management.edits.0.{COMPACT}.trigger.input_tokens.value: ",
            ),
            accepted(talk(user(), reply(BRIEF, text()), user())),
            accepted(talk(user(), reply(BRIEF, text()), user(), reply(BRIEF, text()), user())),
            accepted(talk(user(), reply({**BRIEF, "content": None}, text()), user())),
            accepted(talk(user(), reply(BRIEF))),
            accepted(talk(reply(BRIEF), user())),
            accepted(talk(reply(BRIEF), reply(text()), user())),
            refused(talk(user([BRIEF, text()])), "messages.0.content.0: `compaction` blocks are not allowed in user"),
            refused(talk(reply(SIGNED), user(), **edits(COMPACT)), f"context_management: `{COMPACT}` may not be used"),
            refused(edits("compact_20260904"), "context_management.edits.0: Input tag 'compact_20260904'"),
            refused(edits(COMPACT), "context_management.edits.0: Input tag", betas=()),
            accepted(edits(COMPACT), COMPACTING, betas=("compact-2026-01-12",)),
        ],
    ),
]

EDITING: Final = [
    Rule(
        "context-editing",
        "clear_thinking comes first and needs no thinking field; edits and their fields are known.",
        "build-with-claude/context-editing",
        [
            accepted(edits(CLEAR_THINKING, CLEAR_USES)),
            refused(
                edits(CLEAR_USES, CLEAR_THINKING), f"context_management.edits.1: `{CLEAR_THINKING}` must be the first"
            ),
            accepted(edits({"type": CLEAR_THINKING, "keep": "all"})),
            accepted(edits({"type": CLEAR_USES, "keep": {"type": "tool_uses", "value": 3}, "clear_tool_inputs": True})),
            refused(edits({"type": CLEAR_USES, "keeps": 3}), f"context_management.edits.0.{CLEAR_USES}.keeps: {EXTRA}"),
            refused(edits("x"), "context_management.edits.0: Input tag 'x'"),
            refused(edits(CLEAR_USES), f"context_management: {EXTRA}", betas=()),
            accepted(edits(CLEAR_USES), betas=("context-management-2025-06-27",)),
        ],
    ),
]

MESSAGES: Final = [
    Rule(
        "system-message",
        "A message of the role system is taken by the 5.5 models, Fable, Mythos, Opus 5 and Opus 4.8.",
        "build-with-claude/mid-conversation-system-messages",
        [
            split(talk(user(), note()), "messages.1: role 'system' is not supported on this model", others(*SYSTEM)),
            refused(talk(user(), note("")), "messages.1: all messages must have non-empty content", SYSTEM),
            refused(
                talk(user(), note([image_block(png(1, 1))])),
                "messages.1.content.0: `image` blocks are not allowed",
                SYSTEM,
            ),
        ],
    ),
    Rule(
        "system-message-place",
        "It follows a user turn or a reply that ends in a server tool's result, and comes before a reply or last.",
        "build-with-claude/mid-conversation-system-messages",
        [
            accepted(talk(user(), note(), reply(), user()), SYSTEM),
            accepted(talk(user(), note(), note(), reply(), user()), SYSTEM),
            accepted(talk(user(), reply(use()), user([result()]), note()), SYSTEM),
            accepted(talk(user(), reply(SERVER_USE, SERVER_RESULT), note()), SYSTEM),
            refused(talk(note(), user()), "messages.0: a system message cannot be the first", SYSTEM),
            refused(talk(user(), note(), user()), "messages.1: a system message must be followed by", SYSTEM),
            refused(talk(user(), reply(), note(), user()), "messages.2: a system message must follow", SYSTEM),
            refused(
                talk(user(), reply(use()), note(), user([result()])), "messages.2: a system message must follow", SYSTEM
            ),
        ],
    ),
    Rule(
        "turn-scoped-message",
        "clear_at is next_user_message or never, on system messages; turn-scoped ones have text and no breakpoint.",
        "build-with-claude/mid-conversation-system-messages",
        [
            accepted(talk(user(), note(clear_at="next_user_message")), SYSTEM),
            accepted(talk(user(), note(clear_at="never")), SYSTEM),
            refused(
                talk(user(), note(clear_at="soon")),
                "messages.1.clear_at: Input should be 'next_user_message' or 'never'",
                SYSTEM,
            ),
            refused(
                talk({**user(), "clear_at": "never"}),
                "messages.0.clear_at: clear_at is only permitted on role 'system'",
            ),
            refused(
                talk(user(), note(clear_at="next_user_message")), f"messages.1.clear_at: {EXTRA}", SYSTEM, betas=()
            ),
            accepted(
                talk(user(), note(clear_at="next_user_message")),
                SYSTEM,
                betas=("mid-conversation-system-clear-at-2026-08-21",),
            ),
            refused(
                talk(user(), {**change(REFERENCE), "clear_at": "next_user_message"}),
                "messages.1: a turn-scoped system message supports text blocks only",
                SYSTEM,
            ),
            refused(
                talk(user(), note(clear_at="next_user_message", output_config={"effort": "low"})),
                "messages.1: output_config is not permitted on",
                PER_MESSAGE_EFFORT,
            ),
            refused(
                talk(user(), note([text(cache_control=MARK)], clear_at="next_user_message")),
                "messages.1.content.0: cache_control is not permitted on",
                SYSTEM,
            ),
        ],
    ),
    Rule(
        "many-tools",
        "At most 10,000 deferred tools, 10,000 tools added later, and 4 MiB of their definitions.",
        "build-with-claude/mid-conversation-system-messages",
        [
            refused(
                {"tools": [TOOL, *({**TOOL, "name": f"t{n}", "defer_loading": True} for n in range(10_001))]},
                "Too many deferred tools: 10001 > 10000",
                ("opus-5-5",),
                code="available_tools_limit_exceeded",
            ),
            refused(
                {"tools": [TOOL, {**TOOL, "name": "big", "description": "x" * 4_194_304, "defer_loading": True}]},
                "The tool definitions are too large",
                ("opus-5-5",),
                code="available_tools_limit_exceeded",
            ),
            accepted({"tools": [TOOL, {**TOOL, "name": "big", "defer_loading": True}]}),
        ],
    ),
    Rule(
        "tool-changes",
        "A system message adds and removes tools by reference, or adds one by its definition.",
        "build-with-claude/mid-conversation-system-messages",
        [
            accepted(talk(user(), change(REFERENCE)), SYSTEM),
            accepted(talk(user(), change(REFERENCE, "tool_removal")), SYSTEM),
            accepted(talk(user(), change(DEFINED)), SYSTEM),
            accepted(talk(user(), note([text(), {"type": "tool_addition", "tool": DEFINED}])), SYSTEM),
            accepted(
                talk(user(), change(DEFINED), reply(), user(), change({**REFERENCE, "name": "Later"}, "tool_removal")),
                SYSTEM,
            ),
            refused(
                talk(user(), change({**REFERENCE, "name": "No"})),
                "messages.1.content.0.tool_addition.tool: the tool 'No' is not defined",
                SYSTEM,
                code="tool_reference_unresolved",
            ),
            refused(
                talk(user(), change(DEFINED, "tool_removal")),
                "messages.1.content.0.tool_removal.tool: Input tag",
                SYSTEM,
            ),
            refused(
                talk(
                    user(), change({"type": "tool_definition", "definition": {"type": "bash_20250124", "name": "Read"}})
                ),
                "messages.1.content.0.tool_addition.tool.definition: the name 'Read' belongs",
                SYSTEM,
                code="tool_name_conflict",
            ),
            refused(
                talk(user(), reply(SERVER_USE, SERVER_RESULT), change(REFERENCE)),
                "messages.2: a tool change cannot directly follow a paused",
                SYSTEM,
            ),
            refused(
                talk(user(), change({"type": "mcp_toolset_reference", "server_name": "x"})),
                "messages.1.content.0.tool_addition.tool: the MCP server 'x'",
                SYSTEM,
                code="tool_reference_unresolved",
            ),
            refused(
                talk(user(), change(DEFINED)),
                "messages.1.content.0: Input tag 'tool_addition'",
                SYSTEM,
                betas=("mid-conversation-tool-changes-2026-07-01",),
            ),
            accepted(talk(user(), change(REFERENCE)), SYSTEM, betas=("mid-conversation-tool-changes-2026-07-01",)),
            accepted(talk(user(), change(DEFINED)), SYSTEM, betas=("inline-tools-2026-09-15",)),
        ],
    ),
    Rule(
        "message-effort",
        "A system message may set the effort, anywhere, on models that take it; not while thinking is off.",
        "build-with-claude/effort",
        [
            Case(
                talk(note([], output_config={"effort": "low"}), user()),
                "output_config.effort requires a model",
                ("fable-5", "opus-4-8"),
                PER_MESSAGE_EFFORT,
            ),
            accepted(
                talk(user(), reply(use()), note([], output_config={"effort": "low"}), user([result()])),
                PER_MESSAGE_EFFORT,
            ),
            refused(
                talk(user(), note([], output_config={"effort": "low"})),
                f"messages.1.output_config: {EXTRA}",
                PER_MESSAGE_EFFORT,
                betas=(),
            ),
            refused(talk({**user(), "output_config": {"effort": "low"}}), f"messages.0.output_config: {EXTRA}"),
            refused(
                talk(user(), note(output_config={"effort": "low"}), **OFF),
                "output_config.effort on a message is not",
                ("opus-5", "haiku-5-5"),
            ),
            refused(
                talk(user(), note([], output_config={})), "messages.1: all messages must have non-empty content", SYSTEM
            ),
        ],
    ),
    Rule(
        "returned-blocks",
        "Blocks that a provider returned go back: tool listings, fallbacks, server tools with their results.",
        "api/messages",
        [
            accepted(
                talk(user(), reply({"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []}, text()), user())
            ),
            accepted(
                talk(user(), reply({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, text()), user())
            ),
            refused(
                talk(user(), reply(SERVER_RESULT, text()), user()), "messages.1.content.0: unexpected `tool_use_id`"
            ),
            refused(talk(user(), reply(SERVER_USE, text()), user()), "messages.1.content.0: `server_tool_use` without"),
        ],
    ),
]

RULES: Final[list[Rule]] = [
    *(*FRAME, *THINKING, *TOOLS, *CACHE, *IMAGES, *COMPACTION, *EDITING, *MESSAGES),
]
