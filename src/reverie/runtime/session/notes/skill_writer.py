"""Write a skill from a session by a model, whose answer is checked and asked for once more, or without a model."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ....conversation.entries import Message
from ....conversation.side_query import CUT, answer_problem, answer_text, side_request
from ....errors import InputError, ReverieError
from ....layers.l3_notes import Skill, SkillMaterial, skill_from_answer, skill_prompt, skill_skeleton
from ....model_facts import facts_of
from ....ports import Model
from ....values import record

SOURCE: Final = "skill"
"""The source of a skill's calls in the ledger."""
ANSWER_TOKENS: Final = 6_000
PROMPT_TOKENS: Final = 20_000
_ATTEMPTS: Final = 2

RecordCall: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Function that enters the reply of a model call in the accounts."""


async def _unrecorded(reply: Mapping[str, Any]) -> None:
    """Do nothing with a reply: the default of ``SkillWriter``."""


@record
class WrittenSkill:
    """A skill, its author, the reasons why answers of the model were refused, and the number of model calls."""

    skill: Skill
    by: Literal["model", "local"]
    problems: tuple[str, ...] = ()
    model_calls: int = 0


class SkillWriter:
    """Writes one skill; a model's answer that breaks a rule is asked for once more, and then does without."""

    def __init__(
        self,
        model: Model | None,
        *,
        corrections: Mapping[str, Mapping[str, Any]] | None = None,
        record_call: RecordCall = _unrecorded,
        is_taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Use this model, or none; ``corrections`` are the user's corrections of model facts.

        ``is_taken`` says whether a skill of this name exists, which a model's answer may then not use.
        """
        self._model = model
        self._corrections = corrections or {}
        self._record_call = record_call
        self._is_taken = is_taken
        self._calls = 0

    async def written(self, material: SkillMaterial, *, name: str = "") -> WrittenSkill:
        """Return a skill made of a session's notes and messages; ``name`` replaces the name that it would have."""
        problems: list[str] = []
        if self._model is not None:
            skill = await self._by_model(self._model, material, name, problems)
            if skill is not None:
                return WrittenSkill(skill, "model", tuple(problems), self._calls)
        return WrittenSkill(skill_skeleton(material, name=name), "local", tuple(problems), self._calls)

    async def _by_model(self, model: Model, material: SkillMaterial, name: str, problems: list[str]) -> Skill | None:
        """Return the skill that the model writes, or None after adding to ``problems`` why there is none."""
        window = model.capabilities.window or facts_of(model.model_id, self._corrections).window_tokens
        tokens = min(PROMPT_TOKENS, window // 2)
        messages: list[Message] = [
            {"role": "user", "content": skill_prompt(material, tag=secrets.token_hex(4), tokens=tokens)}
        ]
        for _ in range(_ATTEMPTS):
            try:
                answer, problem = await self._answer(model, messages)
            except ReverieError as error:  # the adapters have retried already
                problems.append(f"the model gave no answer: {error}")
                return None
            try:
                if not problem:
                    return self._checked(answer, name)
            except InputError as error:
                problem = str(error)
            problems.append(f"the model's answer was refused: {problem}")
            again = f"The file is refused: {problem}. Answer with the whole corrected file and nothing else."
            if answer.strip():
                messages += [{"role": "assistant", "content": answer.rstrip()}, {"role": "user", "content": again}]
        return None

    async def _answer(self, model: Model, messages: list[Message]) -> tuple[str, str]:
        """Ask the model, and return the text of its answer and the reason why it is none, empty if it is one."""
        facts = facts_of(model.model_id, self._corrections)
        request = side_request(facts, messages, model=model.model_id, answer_tokens=ANSWER_TOKENS)
        reply = (await model.complete(request)).body
        self._calls += 1
        await self._record_call(reply)
        text = answer_text(reply.get("content"))
        problem = answer_problem(reply, text)
        if not problem and reply.get("stop_reason") in CUT:
            problem = f"the answer was cut at {ANSWER_TOKENS:,} tokens: write a shorter file"
        return text, problem

    def _checked(self, answer: str, name: str) -> Skill:
        skill = skill_from_answer(answer, name=name)
        if not name and self._is_taken(skill.name):
            raise InputError(f"a skill with the name {skill.name} exists already: choose another name")
        return skill
