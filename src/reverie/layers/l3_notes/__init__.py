"""Layer 3, notes: a running summary of this session, updated as the work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .accounts import request_accounts
    from .activity import Activity, mined_utterances
    from .local import NotesBudget, take_notes, without_told
    from .plan import NotesLimits, covered_by, enough_tokens, notes_due, notes_limits, worth_logging
    from .policy import NotesPolicy
    from .prompts import directive, notes_from_answer, projection_of, template_of
    from .rules import rule_changes, rules_prompt
    from .sections import (
        CURRENT,
        Notes,
        Template,
        changed_sections,
        parse_notes,
        render_notes,
    )
    from .skill import (
        Skill,
        SkillMaterial,
        checked_name,
        render_skill,
        skill_from_answer,
        skill_material,
        skill_prompt,
        skill_skeleton,
    )

__all__ = [
    "CURRENT",
    "Activity",
    "Notes",
    "NotesBudget",
    "NotesLimits",
    "NotesPolicy",
    "Skill",
    "SkillMaterial",
    "Template",
    "changed_sections",
    "checked_name",
    "covered_by",
    "directive",
    "enough_tokens",
    "mined_utterances",
    "notes_due",
    "notes_from_answer",
    "notes_limits",
    "parse_notes",
    "projection_of",
    "render_notes",
    "render_skill",
    "request_accounts",
    "rule_changes",
    "rules_prompt",
    "skill_from_answer",
    "skill_material",
    "skill_prompt",
    "skill_skeleton",
    "take_notes",
    "template_of",
    "without_told",
    "worth_logging",
]

__getattr__ = lazily(
    __name__,
    {
        "accounts": ("request_accounts",),
        "activity": ("Activity", "mined_utterances"),
        "prompts": (
            "directive",
            "notes_from_answer",
            "projection_of",
            "template_of",
        ),
        "local": (
            "NotesBudget",
            "take_notes",
            "without_told",
        ),
        "plan": (
            "NotesLimits",
            "covered_by",
            "notes_due",
            "enough_tokens",
            "notes_limits",
            "worth_logging",
        ),
        "policy": ("NotesPolicy",),
        "rules": (
            "rule_changes",
            "rules_prompt",
        ),
        "sections": (
            "CURRENT",
            "Notes",
            "Template",
            "changed_sections",
            "parse_notes",
            "render_notes",
        ),
        "skill": (
            "Skill",
            "SkillMaterial",
            "checked_name",
            "render_skill",
            "skill_from_answer",
            "skill_material",
            "skill_prompt",
            "skill_skeleton",
        ),
    },
)
