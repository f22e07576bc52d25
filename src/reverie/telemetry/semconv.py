"""One table of names: OpenTelemetry's conventions for generative AI, and ours where they have none.

The GenAI names are in flux. Where two spellings are in use, both are listed here and both are emitted.
"""

from __future__ import annotations

from typing import Final

# -- attributes of the conventions

OPERATION_NAME: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
PROVIDER_NAMES: Final = ("gen_ai.provider.name", "gen_ai.system")
TOKEN_TYPE: Final = "gen_ai.token.type"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

# Attribute names of token counts on a span; cache writes have a newer and an older name.
USAGE: Final[dict[str, tuple[str, ...]]] = {
    "input": ("gen_ai.usage.input_tokens",),
    "output": ("gen_ai.usage.output_tokens",),
    "cache_read": ("gen_ai.usage.cache_read.input_tokens",),
    "cache_write": ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
}

# -- metrics of the conventions

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"

# -- ours

SESSION_SPAN: Final = "reverie.session"
MODE: Final = "reverie.session.mode"
ENTRIES: Final = "reverie.session.entries"
MESSAGES: Final = "reverie.request.messages"
COUNTED_TOKENS: Final = "reverie.request.counted_tokens"
WINDOW_TOKENS: Final = "reverie.request.window_tokens"
KIND: Final = "reverie.entry.kind"
ENTRY: Final = "reverie.entry.uuid"
DECISION: Final = "reverie.decision"
LAYER: Final = "reverie.decision.layer"
REASON: Final = "reverie.decision.reason"
FREES: Final = "reverie.decision.frees_tokens"
MOVES_PREFIX: Final = "reverie.decision.moves_prefix"
COMMANDS: Final = "reverie.inbox.commands"
LINE: Final = "reverie.log.line"
WHAT: Final = "reverie.fallback.what"
WHY: Final = "reverie.why"
TOKENS_FREED: Final = "reverie.tokens_freed"
TOKENS_LOST: Final = "reverie.tokens"
ALLOWED: Final = "reverie.permission.allowed"
BY: Final = "reverie.by"
ATTEMPT: Final = "reverie.attempt"
HOOK_EVENT: Final = "reverie.hook.event"
FAILED: Final = "reverie.failed"
SECTIONS: Final = "reverie.notes.sections"
WORK: Final = "reverie.background.work"
STATE: Final = "reverie.background.state"
DREAM: Final = "reverie.dream"
AGENT: Final = "reverie.agent"
AGENT_KIND: Final = "reverie.agent.kind"
MESSAGE_ID: Final = "reverie.message.id"
SENDER: Final = "reverie.message.sender"
END: Final = "reverie.query.end"
TURNS: Final = "reverie.query.turns"
COST_USD: Final = "reverie.cost_usd"
COMPACTION_SPAN: Final = "reverie.compaction"
TRIGGER: Final = "reverie.compaction.trigger"
METHOD: Final = "reverie.compaction.method"
TOKENS_BEFORE: Final = "reverie.compaction.tokens_before"
TOKENS_AFTER: Final = "reverie.compaction.tokens_after"
LOST: Final = "reverie.compaction.lost"
MODEL_CALLS: Final = "reverie.compaction.model_calls"
