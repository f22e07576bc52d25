"""Read the usage that providers report, without trusting its form."""

from __future__ import annotations

from typing import Any

import pytest

from reverie.cache.usage import Usage, usage_of


@pytest.mark.requirement("V15")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({}, Usage()),
        ({"input_tokens": 3, "output_tokens": 4}, Usage(uncached=3, output=4)),
        (
            {"input_tokens": 10, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 30, "output_tokens": 1},
            Usage(20, 30, 0, 10, 1),
        ),
        (
            {
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_1h_input_tokens": 25, "ephemeral_5m_input_tokens": 5},
            },
            Usage(0, 5, 25),
        ),
        (
            {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens": 7},
            Usage(64, 0, 0, 36, 7),
        ),
        (
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 7},
            Usage(64, 0, 0, 36, 7),
        ),
        (
            {
                "prompt_tokens": 100,
                "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
                "completion_tokens": 7,
            },
            Usage(64, 30, 0, 6, 7),
        ),
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 90}},
            Usage(4, 6, 0, 0, 0),
        ),
        (
            {
                "input_tokens": 0,
                "output_tokens": 0,
                "iterations": [{"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}],
            },
            Usage(uncached=180_000, output=3_500),
        ),
        (
            {
                "input_tokens": 5,
                "output_tokens": 6,
                "cache_read_input_tokens": 100,
                "iterations": [
                    {"type": "compaction", "input_tokens": 20, "output_tokens": 30},
                    {"type": "message", "input_tokens": 5, "output_tokens": 6},
                ],
            },
            Usage(100, 0, 0, 25, 36),
        ),
        (
            {
                "cache_read_input_tokens": 100,
                "iterations": [{"cache_read_input_tokens": 60}, {"cache_read_input_tokens": 100}],
            },
            Usage(160),
        ),
        ({"input_tokens": 3, "iterations": [None, 4]}, Usage(uncached=3)),
        ({"input_tokens": 3, "iterations": 4}, Usage(uncached=3)),
        ({"input_tokens": None, "output_tokens": "9", "cache_read_input_tokens": -4, "cache_creation": 3}, Usage()),
        ({"input_tokens": True, "prompt_tokens_details": None}, Usage()),
    ],
)
def test_usage_is_read_in_every_shape(reported: dict[str, Any], usage: Usage) -> None:
    assert usage_of(reported) == usage


def test_sums_and_shares_follow_from_the_kinds() -> None:
    usage = Usage(1, 2, 3, 4, 5)
    assert (usage.write, usage.input, usage.readable) == (5, 10, 6)
    assert usage.plus(usage) == Usage(2, 4, 6, 8, 10)
