"""The repairs that keep thinking valid, each with a way to take it out, for the known-bad twins of random runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from random_runs import RandomRun
from reverie.conversation.thinking import Digests
from reverie.runtime.session import limits, prepare, thinking
from reverie.runtime.session.compact.provider import ProviderSummaries

PROMPTS = 12
"""The prompts of one run."""


def seeds(count: int) -> range:
    first = int(os.environ["REVERIE_TEST_SEED"])
    return range(first, first + count)


async def anew(*given: Any, **named: Any) -> None:
    """Render every change of system prompt and tools as a new prefix, as before they went to the end."""
    await RENDER(*given, **{**named, "anew": "changed"})


RENDER = prepare.amend_prefix
GUARD = "stale thinking is dropped before a request leaves"
EDITS = (
    "system prompt and tools stay as first sent",
    "results are not cleared here",
    "the provider writes the summary",
)
REPAIRS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    GUARD: (thinking, "stale_replies", lambda *_, **__: []),
    "system prompt and tools stay as first sent": (prepare, "amend_prefix", anew),
    "bindings are read from the log on resume": (thinking, "_logged_binding", lambda _: "lost"),
    "results are not cleared here": (limits, "_mode_for", lambda *_: "client"),
    "the provider writes the summary": (ProviderSummaries, "offered", lambda *_: False),
    "a summary knows the messages it stands for": (Digests, "as_covered", lambda _: {"opening": "", "states": []}),
}


def damage(runs: Sequence[RandomRun]) -> tuple[int, int]:
    """Return how many requests were refused, and how often thinking was dropped though nobody asked for it."""
    return sum(len(run.refusals) for run in runs), sum(len(run.drops()) for run in runs)
