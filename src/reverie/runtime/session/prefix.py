"""The part of a request before and beside its messages: options, system prompt and tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from ...arguments import check_text
from ...conversation.amendments import amendment, system_changes, told_in_part
from ...conversation.decisions import Cause, PrefixRendered
from ...conversation.entries import as_logged
from ...conversation.view import View
from ...conversation.wire.betas import BetaNeed, beta_needs
from ...conversation.wire.blocks import check_content
from ...conversation.wire.fields import REQUEST_FIELDS, similar_field
from ...conversation.wire.options import declared_tools, refused_options, tools_of
from ...conversation.wire.request import CONTINUE, ends_with_reply
from ...conversation.wire.schemas import takes_inputs_of
from ...errors import InputError, SessionError
from ...events import FellBack
from ...model_facts import ModelFacts
from ...values import record, replace
from .limits import betas_of
from .log import SessionLog

PromptAndTools: TypeAlias = tuple[Any, Sequence[Mapping[str, Any]]]
SERVER_TOOL: Final = "mcp__"


@record
class ProgramTexts:
    """The parts of an agent's requests that this program wrote: a newer version leaves them as logged until a cut."""

    choices: str
    """The user's choices that they depend on; never empty."""
    tools: frozenset[str]
    urgent: tuple[str, ...] | None
    """The lines of the system prompt that hold at once; None if the caller wrote the prompt."""

    def as_logged(self, logged: PromptAndTools, now: PromptAndTools, choices: str) -> PromptAndTools:
        """Return system prompt and tools with the program's texts as logged and all others as they are now.

        ``choices`` are those of the logged texts. Where the user chose otherwise since, where another program wrote
        them, and where a tool is gone or refuses calls by its logged schema, all texts are those of now.
        """
        is_foreign = choices != self.choices and (choices or _first_line(logged[0]) != _first_line(now[0]))
        if is_foreign or logged == now:
            return now
        new = {str(tool.get("name")): tool for tool in now[1]}
        old = {str(tool.get("name")): tool for tool in logged[1]}
        for name, tool in old.items():
            if name in new:
                changed = name in self.tools and not takes_inputs_of(
                    new[name]["input_schema"], tool.get("input_schema")
                )
            else:
                changed = not name.startswith(SERVER_TOOL)
            if changed:
                return now
        tools = [tool if name in self.tools else new[name] for name, tool in old.items() if name in new]
        tools += [tool for name, tool in new.items() if name not in old and name not in self.tools]
        if self.urgent is None:
            return now[0], tools
        missing = [line for line in self.urgent if line not in logged[0].splitlines()]
        return "\n".join([logged[0], *missing]), tools


def _first_line(system: Any) -> str:
    return system.partition("\n")[0] if isinstance(system, str) else ""


@record
class RequestOptions:
    """The arguments of ``Session.prepare``: those of the request's body, and the extras sent beside it."""

    model: str
    system: str | list[dict[str, Any]] | None
    tools: list[dict[str, Any]] | None
    body: Mapping[str, Any]
    extras: Mapping[str, Any]
    betas: tuple[str, ...] = ()
    """The beta features this request asks for."""
    program: ProgramTexts | None = None

    @staticmethod
    def of(
        model: str,
        system: str | list[dict[str, Any]] | None,
        tools: list[dict[str, Any]] | None,
        options: Mapping[str, Any],
    ) -> RequestOptions:
        """Split the caller's options into body and extras; raise ``InputError`` for one that prepare() cannot use."""
        check_text("model", model)
        if not model.strip():
            raise InputError("the model's name is empty: pass the name that the provider bills, as model=")
        if "cache_control" in options:
            raise InputError("prepare() places the cache breakpoints itself: leave cache_control out")
        if "messages" in options:
            raise InputError("prepare() sends the messages of the session: leave messages out, and call say()")
        if system is not None:
            check_content("system", system)
        body = {key: value for key, value in options.items() if key in REQUEST_FIELDS}
        extras = {key: value for key, value in options.items() if key not in REQUEST_FIELDS}
        for name in extras:
            if meant := similar_field(name):
                raise InputError(
                    f"{name} is not a known option: did you mean {meant}? If the provider's API has it, "
                    f"pass extra_body={{{name!r}: ...}}"
                )
        return RequestOptions(model, system, tools, body, extras, betas_of(options))

    def extras_for(self, request: Mapping[str, Any], view: View) -> Mapping[str, Any]:
        """Return the extras for a request; a header names the betas that signed summaries and changed tools need."""
        facts = view.facts
        if not (facts.amendments or facts.drops_refused_thinking or view.group(0).is_compaction):
            return self.extras
        # Only these messages need a beta; a look at all of them would cost more with every turn.
        messages = [request["messages"][0], *(amended.message for _, amended in facts.amendments)]
        needs = beta_needs({"thinking": request.get("thinking"), "messages": messages})
        return _with_betas(self.extras, self.betas, needs)


def with_beta_header(request: Mapping[str, Any], betas: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a call with a header that names these betas and those that the request needs."""
    return dict(_with_betas(request, betas, beta_needs(request)))


def _with_betas(arguments: Mapping[str, Any], betas: Sequence[str], needs: Iterable[BetaNeed]) -> Mapping[str, Any]:
    """Return the arguments of a call with a header for the needs that ``betas`` lack; the same ones if none lacks."""
    missing = [need.betas[0] for need in needs if not set(need.betas) & set(betas)]
    if not missing:
        return arguments
    given: Any = arguments.get("extra_headers") or {}
    headers = {key: value for key, value in given.items() if str(key).lower() != "anthropic-beta"}
    named = ",".join(dict.fromkeys([*betas, *missing]))
    return {**arguments, "extra_headers": {**headers, "anthropic-beta": named}}


async def render_prefix(
    log: SessionLog, asked: RequestOptions, facts: ModelFacts, *, mode: str, capabilities: frozenset[str]
) -> None:
    """Log model and options if they changed, system prompt and tools the first time; end with a user message.

    ``mode`` is the mode of layer 2. Raise ``SessionError`` if the conversation is empty, and ``InputError`` for tools
    or options that a provider would refuse.
    """
    if not log.view.length:
        raise SessionError("the conversation is empty: call say() first")
    body = as_logged(asked.body)
    before = log.view.facts.prefix
    system, tools = (asked.system, asked.tools or []) if before is None else (before.system, before.tools)
    is_same = before is not None and (before.model, before.options) == (asked.model, body)
    reason = "first request" if before is None else "the model or an option changed"
    if is_same:
        reason = "the facts of the model or the betas changed"
    if not (tools or asked.tools or log.view.facts.amended) and (tools := declared_tools(log.view.tool_names())):
        reason = "the log has tool calls but no tools were passed; declared them by name"
        log.emit(FellBack(log.name, "tools", reason))
    if before is None and mode == "cache_edit" and "cache_edits" not in capabilities:
        why = "the provider cannot edit its cache: results are cleared here when the cache is cold"
        log.emit(FellBack(log.name, "cache_edit", why))
    cause = Cause("request", reason, moves_prefix=before is not None and not (is_same and tools == before.tools))
    program = asked.program.choices if asked.program is not None else ""
    prefix = PrefixRendered(
        cause,
        asked.model,
        system,
        tools,
        body,
        betas=list(asked.betas),
        capabilities=sorted(capabilities),
        max_images=facts.max_images,
        max_image_bytes=facts.max_image_bytes,
        max_body_bytes=facts.max_body_bytes,
        documents_are_images=facts.documents_are_images,
        checked=True,
        choices=program if before is None else before.choices,
    )
    if before is None or replace(before, cause=cause) != prefix:
        _refuse_unusable(prefix, facts)
        await log.decide(prefix)
    if ends_with_reply(log.view):
        await log.attach(CONTINUE, type="continue")


async def amend_prefix(
    log: SessionLog,
    asked: RequestOptions,
    facts: ModelFacts,
    *,
    binds: bool,
    declares: bool = False,
    anew: str = "",
    is_cut: bool = False,
) -> None:
    """Log a change of system prompt or tools: at the end of the conversation, or as a new prefix.

    The prefix is rendered anew for a reason given in ``anew``; and in a session without thinking that is bound to
    it (``binds``) if more of the system prompt changed than stayed, or if the model takes no new tools later on. New
    tools of a host that ``declares`` them itself are always a new prefix. Texts of the program that only a newer
    version changed wait for a cut (``is_cut``) or for another reason to render the prefix.
    """
    prefix = log.view.facts.prefix
    if prefix is None:
        return
    told, amendments = log.view.facts.amended, log.view.facts.amendments
    before = (told.system, told.tools) if told is not None else (prefix.system, prefix.tools)
    if told is not None and told.message.get("role") == "user" and "tool_changes" in prefix.capabilities:
        # Another model learned of new tools in words; this one takes their definitions.
        before = told.system, told_in_part(prefix, [amended for _, amended in amendments], ()).tools
    system = before[0] if asked.system is None else asked.system  # left out: as it was
    after = (system, asked.tools or (amendments[-1][1].tools if amendments else prefix.tools))
    after = after if after == before else (as_logged(after[0]), as_logged(after[1]))
    kept, choices = after, ""
    if asked.program is not None:
        choices = asked.program.choices
        kept = after if is_cut else asked.program.as_logged(before, after, (told or prefix).choices)
    if not anew and kept == before:
        return
    why = anew or ("" if binds else _reason_to_render(prefix, before, kept, facts))
    if declares and before[1] != kept[1]:
        why = why or "the host declares other tools"
    after = after if why else kept
    if why and after != (prefix.system, prefix.tools):
        cause = Cause("request", why, moves_prefix=True)
        rendered = replace(prefix, cause=cause, system=after[0], tools=[*after[1]], choices=choices)
        _refuse_unusable(rendered, facts)
        await log.decide(rendered)
        # A signed summary may carry changes of tools that the new prefix contradicts.
        told = log.view.facts.with_amendments_in(log.view.visible_items.items).amended
        before = (told.system, told.tools) if told is not None else after
    amended = amendment(before, after, capabilities=prefix.capabilities)
    if amended is not None:
        _refuse_unusable(replace(prefix, system=after[0], tools=[*after[1]]), facts)
        await log.decide(replace(amended, choices=choices))


def _reason_to_render(prefix: PrefixRendered, before: PromptAndTools, after: PromptAndTools, facts: ModelFacts) -> str:
    """Return why a change should be a new prefix instead of a message at the end; empty if it should not."""
    if before[1] != after[1] and not (facts.tool_changes and facts.system_messages):
        return "the tools changed, and this model takes new tools only in the prefix"
    told = system_changes(prefix.system, after[0])
    return "most of the system prompt changed" if len(told) > _text_length(after[0]) else ""


def _text_length(system: Any) -> int:
    if isinstance(system, str):
        return len(system)
    return sum(len(str(cast("Mapping[str, Any]", block).get("text", ""))) for block in system or ())


def _refuse_unusable(prefix: PrefixRendered, facts: ModelFacts) -> None:
    """Raise ``InputError`` for a tool or an option that a provider would refuse; it names the alternative."""
    usable = tools_of(prefix)
    if len(usable) != len(prefix.tools):
        kept = [tool["name"] for tool in usable]
        wrong = next(tool for tool in prefix.tools if tool.get("name") not in kept or prefix.tools.count(tool) > 1)
        raise InputError(
            f"tool {wrong.get('name')!r} cannot be declared: a tool has a unique name of letters, digits, '_' and '-', "
            "and an input_schema of type object"
        )
    for key, reason in refused_options(prefix.options, usable, facts).items():
        name, other = prefix.model or "the model", _alternative(key, facts)
        raise InputError(
            f"option {key}={prefix.options[key]!r} would be refused by the provider of {name}: {reason}{other}"
        )


def _alternative(option: str, facts: ModelFacts) -> str:
    """Return the values of an option that a model takes, in a clause; empty if it depends on more than the model."""
    match option:
        case "thinking":
            return f"; the model takes: {', '.join(facts.thinking) or 'none'}"
        case "output_config":
            return f"; the model takes the efforts: {', '.join(facts.efforts) or 'none'}"
        case "tool_choice" if facts.forced_tool_choice != "yes":
            return "; use auto with a strict tool, or output_config"
        case _:
            return ""
