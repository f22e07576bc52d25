"""Layer 6, dream: merge, correct and prune memories, after a day and five sessions.

It works on a copy and proposes a list of changes, which is checked and applied as one transaction that can be undone.
It changes no running prompt: sessions that open later see the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .changes import DreamFacts, DreamProposal, FileChange, Question, SkippedChange
    from .findings import Finding, Findings, findings_in
    from .links import links_in
    from .local import dream
    from .plan import ModelStatements, Support, changes_between, lowered, records_of
    from .policy import DreamPolicy
    from .prompts import system_prompt, task_prompt
    from .report import DreamChange, DreamReport, ModelUsage, change_of, markdown
    from .transaction import (
        DreamTransaction,
        capped_index,
        dream_transaction,
        files_on,
        restored_files,
        undo_draft,
    )
    from .validate import validation


__getattr__ = lazily_from(
    __name__,
    "policy",
    "changes",
    "links",
    "findings",
    "report",
    "prompts",
    "plan",
    "validate",
    "transaction",
    "local",
)
