"""With Reverie, every framework runs a long conversation with tools for less money, and no request is refused.

The quick form is short; ``--torture`` plays the 300 replies of ``benchmarks/integrations.py``, every way there is.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REPLIES = 32
PACKAGES = {
    "anthropic": "anthropic",
    "langchain": "langchain_anthropic",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
}


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """Return the benchmark, so that what is tested is what is measured."""
    folder = str(Path(__file__).resolve().parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import integrations
    finally:
        sys.path.remove(folder)
    return integrations


@pytest.mark.parametrize("framework", sorted(PACKAGES))
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_a_long_conversation_costs_less_is_never_refused_and_keeps_its_prefix(
    framework: str, benchmark: Any, torture: bool
) -> None:
    if find_spec(PACKAGES[framework]) is None:
        pytest.skip(f"{framework} is not installed")
    ways = ("plain", "own", "reverie", "both") if torture else ("plain", "reverie")
    found = benchmark.measure([framework], ways, 300 if torture else REPLIES, 1)
    if torture:
        benchmark.table(found, 300)
    checks = benchmark.checked(found)
    assert len(checks) >= 3
    assert [name for name, met in checks.items() if not met] == [], found
    bills = found[framework]
    assert bills["reverie"]["replies"] == bills["plain"]["replies"] > 0
    assert bills["plain"]["breaks"] == 0


def test_a_break_that_nobody_explains_and_a_dearer_bill_are_caught(benchmark: Any) -> None:
    bill = {"usd": 1.0, "uncached_usd": 2.0, "invalid": 0, "fallbacks": [], "breaks": 1, "unexplained": 0}
    fine = {"x": {"plain": {**bill, "usd": 2.0}, "reverie": bill}}
    assert all(benchmark.checked(fine).values())
    for change in ({"usd": 1.7}, {"unexplained": 1}, {"invalid": 1}, {"fallbacks": ["middleware: no"]}):
        assert not all(benchmark.checked({"x": {**fine["x"], "reverie": {**bill, **change}}}).values())
    said = [
        {"tools": [1], "input": [{"role": "user", "content": text} for text in texts]} for texts in ("a", "ab", "b")
    ]
    assert benchmark.extensions(said) == [True, True, False]
