"""Random conversations against an enforcing provider, with every layer, resumes, kills and changes of all kinds."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from random_repairs import EDITS, GUARD, PROMPTS, REPAIRS, damage, seeds
from random_runs import WINDOWS, RandomRun


def played(seeds: range, *, calm: bool = False) -> list[RandomRun]:
    runs: list[RandomRun] = []
    for seed in seeds:
        run = RandomRun(seed, WINDOWS[seed % len(WINDOWS)], calm=calm)
        anyio.run(run.play, PROMPTS)
        runs.append(run)
    return runs


@pytest.mark.requirement("V2")
def test_no_request_is_refused_and_thinking_is_dropped_only_by_decisions_that_say_so(torture: bool) -> None:
    runs = played(seeds(300 if torture else 16))
    done: Counter[str] = sum((run.done for run in runs), Counter())
    cuts: Counter[str] = sum((run.methods() for run in runs), Counter())
    print(f"{len(runs)} runs, windows {WINDOWS}: {done['request']} requests, cuts {dict(cuts)}, {dict(done)}")
    assert [(run.seed, run.main, run.window, run.refusals[0]) for run in runs if run.refusals] == []
    assert [(run.seed, run.main, run.window, run.drops()) for run in runs if run.drops()] == []
    assert [(run.seed, run.main, run.window, run.stopped[0]) for run in runs if run.stopped] == []
    assert [(run.seed, run.main, run.window, run.surprises[0]) for run in runs if run.surprises] == []
    assert cuts["provider"] >= len(runs) // 4
    assert done["kill"]
    assert done["close"]


@pytest.mark.requirement("V2")
def test_with_one_repair_taken_out_the_same_runs_lose_thinking_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, torture: bool
) -> None:
    chosen = seeds(60 if torture else 6)
    whole = played(chosen, calm=True)
    assert [(run.seed, run.refusals, run.drops()) for run in whole if run.refusals or run.drops()] == []
    table: dict[str, tuple[int, int]] = {}
    unguarded: dict[str, int] = {}
    for repair, broken in REPAIRS.items():
        with monkeypatch.context() as patch:
            patch.setattr(*broken)
            table[repair] = damage(played(chosen, calm=True))
            if torture:  # the guard turns refusals into drops that are logged, so it is taken out as well
                patch.setattr(*REPAIRS[GUARD])
                unguarded[repair] = damage(played(chosen, calm=True))[0]
    for repair, (refused, dropped) in table.items():
        alone = f", {unguarded[repair]:4} refused without the first as well" if repair in unguarded else ""
        print(f"without: {repair:55} {refused:4} refused, {dropped:4} times dropped{alone}")
    assert [repair for repair, found in table.items() if found == (0, 0)] == []
    assert table[GUARD][0] > 0
    # The other two change nothing that was sent; without them the guard drops thinking that is valid.
    assert all(unguarded[repair] for repair in EDITS if torture)
