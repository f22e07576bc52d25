"""Layer 3, notes: a running summary of this session, updated as the work goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
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
    from .tool_effects import tool_effect


__getattr__ = lazily_from(
    __name__, "policy", "sections", "activity", "plan", "prompts", "rules", "accounts", "local", "skill", "tool_effects"
)
