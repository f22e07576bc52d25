"""Measure the pollution of a memory directory: the share of memories with a fault that a rule or a dream finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

from ...memories.rules.taxonomy import faults_of
from ...values import record
from .changes import DreamFacts
from .local import dream
from .policy import DreamPolicy
from .working_copy import WorkingCopy

Fault: TypeAlias = Literal["wrong", "duplicate", "stale", "unsupported"]

_FAULTS: Final[dict[str, Fault]] = {
    "unreadable": "wrong",
    "vague": "stale",
    "expired": "stale",
    "ended": "stale",
}


@record
class Finding:
    """One fault of a memory, by kind and with its reason."""

    fault: Fault
    reason: str


@record
class Findings:
    """The number of memories checked, and the faults of each faulty file."""

    total: int
    files: Mapping[str, tuple[Finding, ...]]

    @property
    def rate(self) -> float:
        """The share of memories with a fault, between 0 and 1."""
        return len(self.files) / self.total if self.total else 0.0

    def count(self, fault: Fault) -> int:
        """Return how many memories have this fault."""
        return sum(any(one.fault == fault for one in found) for found in self.files.values())


def findings_in(
    files: Mapping[str, bytes], *, now: datetime, policy: DreamPolicy, facts: DreamFacts | None = None
) -> Findings:
    """Return the faults that the rules of memories, a local dream and these facts find; change nothing."""
    known = facts or DreamFacts()
    found: dict[str, dict[Finding, None]] = defaultdict(dict)
    today = now.date().isoformat()
    for file, memory in WorkingCopy(files, DreamFacts(modified=known.modified)).ours.items():
        for fault, reason in faults_of(memory, today=today):
            found[file][Finding(fault, reason)] = None
        gone = [source for source in memory.source if source.split(" ", 1)[0] in known.gone_sessions]
        if gone and len(gone) == len(memory.source):
            found[file][Finding("unsupported", f"came from {gone[0]}, which is no longer there")] = None
    for file, reason in known.unsupported.items():
        if file in files:
            found[file][Finding("unsupported", reason)] = None
    _add_dream(found, files, now, policy, known)
    order = sorted(found)
    return Findings(len(files), {file: tuple(found[file]) for file in order})


def _add_dream(
    found: dict[str, dict[Finding, None]],
    files: Mapping[str, bytes],
    now: datetime,
    policy: DreamPolicy,
    facts: DreamFacts,
) -> None:
    alone = DreamFacts(facts.modified, facts.known_paths, facts.missing_paths)
    proposal = dream(files, now=now, policy=policy, facts=alone)
    for change in proposal.changes:
        if change.act == "merged":
            found[change.file][Finding("duplicate", change.why)] = None
        elif change.act == "removed":
            found[change.file][Finding("stale", change.why)] = None
        else:
            for reason in change.why.split("; "):  # a shorter description and the links of a merge repair no fault
                if reason.startswith("dates"):
                    found[change.file][Finding("stale", reason)] = None
                elif "led nowhere" in reason:
                    found[change.file][Finding("wrong", reason)] = None
    for question in proposal.questions:
        for file in question.files if question.topic in _FAULTS else ():  # similar memories are not a fault
            found[file][Finding(_FAULTS[question.topic], question.text)] = None
