"""Replay several recordings under several policies into one report."""

from __future__ import annotations

import copyreg
import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from ..cache.economics import MOST_PINGS, RelativeRates, max_pings
from ..cache.prices import Prices, prices_for, rates_of
from ..conversation.entries import Entry, reply_id
from ..conversation.tokens.window import Thresholds
from ..errors import InputError
from ..importers import ImportedSession, find_sessions, read_session
from ..layers.l1_offload import OffloadPolicy
from ..model_facts import ModelFacts, default_model, facts_of
from ..runtime.session.cache_plan import CachePlan
from ..runtime.session.limits import EDITING_BETA, compact_patience, thresholds_for, trim_policy, window_of
from ..settings import Settings, load_settings
from ..text.counts import counted
from ..values import record, replace
from .compactions import BreakEvenCompactions, CompactionRule, ReplayCompactions
from .outcome import AS_RECORDED, ReplayOutcome, ReplayReport, SimulatorAccuracy, totals
from .policies import (
    AppendOnlyPolicy,
    AsRecordedPolicy,
    ClearEveryTurnPolicy,
    ReplayPolicy,
    ReveriePolicy,
    SlidingWindowPolicy,
)
from .recording import USUAL_PREFIX, RecordedRequest, Recording, SharedWork, joined, recording_of
from .run import billed_outcome, replay_recording

Progress = Callable[[str], None]
WARM: Final = "-warm"
_PRESETS: Final = ("faithful", "balanced", "thrifty")
SHOWN: Final = (
    "uncached",
    "recorded",
    "append-only",
    "append-only-1h",
    "append-only-warm",
    "append-only-by-value",
    "sliding-window",
    "clear-every-turn",
    "compact-150k",
    "compact-300k",
    "break-even",
    *_PRESETS,
    *(preset + WARM for preset in _PRESETS),
)
"""The policies of a report by default; with ``-warm`` the cache is renewed while the session is idle."""
BRIEF: Final = ("recorded", "append-only", "faithful", "balanced", "thrifty")
"""The policies for all sessions of a machine."""
NAMES: Final = (*SHOWN, "reverie")
"""All policies that can be named."""
_MUCH_PREFIX: Final = 3 * USUAL_PREFIX
_LEAST_WORK: Final = 4_000
"""The requests to replay from which on several processes share the work."""
_COLLECT_AFTER: Final = 100_000
"""The new objects between two garbage collections."""


def recordings_in(paths: Iterable[Path], *, lenient: bool = False) -> tuple[list[Recording], list[str]]:
    """Return a list of the sessions in these files and directories, and a list of notes about those left out.

    A named file that cannot be read raises ``InputError``, unless ``lenient``, and so does a directory without
    sessions.
    """
    found: list[Recording] = []
    skipped: list[str] = []
    for path in paths:
        files = sorted(find_sessions(path)) if path.is_dir() else [path]
        if not files:
            raise InputError(f"no recorded session was found in {path}")
        for file in files:
            try:
                sessions = read_session(file)
            except InputError as error:
                if not path.is_dir() and not lenient:
                    raise
                skipped.append(f"{file.name}: {error}")
                continue
            skipped += [
                f"{file.name}: {counted(len(one.damage), 'damaged line')} left out" for one in sessions if one.damage
            ]
            for number, imported in enumerate(sessions):
                recording = recording_of(imported, file.name if number == 0 else f"{file.name}#{number + 1}")
                if recording.steps:
                    found.append(recording)
                else:
                    skipped.append(f"{recording.name}: no request in it")
    kept = {id(one) for one in _different(found)}
    twice = [one.name for one in found if id(one) not in kept]
    if twice:
        skipped.append(_note("another file has the same session, which counts once", twice))
    return [one for one in found if id(one) in kept], skipped


def _different(recordings: Iterable[Recording]) -> list[Recording]:
    """Return the recordings without those of which a longer one has all, the longest first."""
    kept: dict[str, list[Recording]] = {}
    for recording in sorted(recordings, key=lambda one: -len(one.steps)):
        longer = kept.setdefault(repr(recording.steps[0].reply[0].message), [])
        if not any(_is_part(recording, one) for one in longer):
            longer.append(recording)
    return [one for longer in kept.values() for one in longer]


def _is_part(recording: Recording, longer: Recording) -> bool:
    """Say whether a longer recording has the same session, which a copy may call by another name."""
    first, other = recording.steps[0].reply[0], longer.steps[0].reply[0]
    if (recording.session, reply_id(first)) == (longer.session, reply_id(other)):
        return True
    pairs = zip(recording.steps, longer.steps, strict=False)
    return all(_said(one) == _said(two) for one, two in pairs)


def _said(step: RecordedRequest) -> list[tuple[str, object]]:
    said = (entry for entry in (*step.entries, *step.reply) if entry.message is not None)
    return [(entry.time, entry.message) for entry in said]


def settings_named(files: Iterable[Path]) -> dict[str, Settings]:
    """Read settings files and return their settings by file name without ending.

    Raise ``InputError`` if a name is that of a policy or occurs twice.
    """
    out: dict[str, Settings] = {}
    for file in files:
        if file.stem in NAMES or file.stem in out:
            raise InputError(f"a policy called {file.stem!r} is there already; rename {file.name}")
        out[file.stem] = load_settings(settings_file=file)
    return out


def compare(
    recordings: Sequence[Recording],
    *,
    policies: Sequence[str] = SHOWN,
    extra: dict[str, Settings] | None = None,
    model: str | None = None,
    ttl: str = "5m",
    skipped: Sequence[str] = (),
    settings: Settings | None = None,
    progress: Progress | None = None,
    check: bool = True,
    cores: int = 1,
) -> ReplayReport:
    """Replay each recording under each policy and return a report of the costs.

    ``extra`` are settings to replay as further policies, ``skipped`` are notes for the report, ``model`` sets the
    prices for all recordings, and ``check`` counts requests that a provider would refuse. With several ``cores`` a
    long replay starts processes by fork, so only a program without other threads may ask for them.
    """
    settings = settings or load_settings()
    extra = extra or {}
    unknown = [name for name in policies if name not in NAMES]
    if unknown:
        raise InputError(f"no policy is called {unknown[0]!r}; there are {', '.join(NAMES)} and settings files")
    notes: dict[str, list[str]] = {}
    jobs: list[_Job] = []
    for recording in recordings:
        named = model or recording.model
        setup = _ReplaySetup(named, _prices(named, recording, notes), settings, ttl, recording.shared)
        for reason in _assumed(recording, policies):
            notes.setdefault(reason, []).append(recording.name)
        wanted = [name for name in policies if name != "recorded" or recording.billed]
        whole = joined(recording)
        jobs += [_Job(recording if name == "recorded" else whole, name, setup, check) for name in wanted]
        jobs += [_Job(whole, name, replace(setup, settings=mine), check, True) for name, mine in extra.items()]
    outcomes: list[ReplayOutcome] = []
    as_billed: list[tuple[ReplayOutcome, ReplayOutcome]] = []
    for job, (outcome, simulated) in zip(jobs, _replayed(jobs, cores), strict=True):
        if progress is not None:
            progress(f"{job.recording.name}: {job.policy}")
        outcomes.append(outcome)
        if simulated is not None:
            as_billed.append((simulated, outcome))
    files = tuple(dict.fromkeys(recording.name for recording in recordings))
    models = sorted({recording.model for recording in recordings if recording.model})
    shown = model or (models[0] if len(models) == 1 else AS_RECORDED)
    names = tuple(name for name in (*policies, *extra) if any(outcome.policy == name for outcome in outcomes))
    said = (*skipped, *(_note(reason, where) for reason, where in notes.items()))
    other = model is not None and models != [model]
    return ReplayReport(files, names, tuple(outcomes), shown, ttl, said, _simulator(as_billed), other)


def preset_costs(entries: Iterable[Entry], model: str, settings: Settings) -> dict[str, float]:
    """Return the input cost in dollars of a session so far under each preset; empty without a request or a price."""
    session = ImportedSession("reverie", "this session", "", "", model, tuple(entries))
    recording = recording_of(session, "this session")
    if not recording.steps or prices_for(model) is None:
        return {}
    report = compare([recording], policies=_PRESETS, model=model, settings=settings, check=False)
    return {name: totals(report.of(policy=name))["input_usd"] for name in _PRESETS}


@record
class _Job:
    """One recording to replay under one policy; ``is_own`` if the policy is a file of settings."""

    recording: Recording
    policy: str
    setup: _ReplaySetup
    check: bool
    is_own: bool = False

    def run(self) -> tuple[ReplayOutcome, ReplayOutcome | None]:
        """Return the outcome, and for the recorded one also that of the simulator."""
        recording, one = self.recording, self.setup
        if self.policy == "recorded":
            billed = billed_outcome(recording, one.prices)
            assert billed is not None
            return billed, replay_recording(recording, AsRecordedPolicy(one.ttl), one.prices, check=False)
        policy = _reverie(one, self.policy) if self.is_own else _policy(self.policy, one)
        return replay_recording(recording, policy, one.prices, model=one.model, check=self.check), None


def _read_only(table: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(table)


def _pickled(table: MappingProxyType[Any, Any]) -> tuple[Any, tuple[dict[Any, Any]]]:
    """Return how to make a read-only table of the settings in another process; pickle does not know them."""
    return _read_only, (dict(table),)


copyreg.pickle(cast("type[MappingProxyType[Any, Any]]", MappingProxyType), _pickled)


def _run(job: _Job) -> tuple[ReplayOutcome, ReplayOutcome | None]:
    return job.run()


def _replayed(jobs: Sequence[_Job], cores: int) -> Iterable[tuple[ReplayOutcome, ReplayOutcome | None]]:
    """Yield the outcomes of jobs in their order, on several cores if there is much to do."""
    cores = min(cores, len(jobs))
    # The jobs of a recording share their work. Recordings are many objects without cycles, so collections are seldom.
    if cores < 2 or sum(len(job.recording.steps) for job in jobs) < _LEAST_WORK:
        yield from map(_run, jobs)
        return
    each = len(jobs) // len({job.recording.name for job in jobs})
    with ProcessPoolExecutor(cores, initializer=gc.set_threshold, initargs=(_COLLECT_AFTER,)) as pool:
        yield from pool.map(_run, jobs, chunksize=max(1, min(each, len(jobs) // cores)))


def _assumed(recording: Recording, policies: Sequence[str]) -> Iterator[str]:
    """Yield the assumptions about the bill of a recording, for the notes of the report."""
    if "recorded" in policies and not recording.billed:
        yield "no billed usage"
    if recording.lost:
        yield "begins in the middle; the unrecorded part of its first request counts as earlier conversation"
    elif recording.lost is None and recording.billed and sum(recording.prefix) > _MUCH_PREFIX:
        yield (
            f"sent more than {_MUCH_PREFIX:,} tokens before the first recorded message, which count as system prompt "
            "and tools; if it begins in the middle, compactions save more than is shown"
        )


def _note(reason: str, where: list[str]) -> str:
    """Return one line: a reason, the first three files that it holds for, and the number of others."""
    named = ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
    return f"{reason}: {named}"


def _prices(model: str, recording: Recording, notes: dict[str, list[str]]) -> Prices:
    prices = prices_for(model) if model else None
    if prices is None:
        prices = prices_for(default_model())
        why = f"no price is known for {model!r}" if model else "no model is named"
        notes.setdefault(f"priced as {default_model()}, since {why} (--model sets another)", []).append(recording.name)
    if prices is None:
        raise InputError(f"no prices are known for {model!r}; name another model with --model")
    return prices


@record
class _ReplaySetup:
    """One session to replay: its model's prices and facts, and the settings."""

    model: str
    prices: Prices
    settings: Settings
    ttl: str
    shared: SharedWork

    @property
    def rates(self) -> RelativeRates:
        """The model's prices relative to its input price."""
        return rates_of(self.prices, self.facts)

    @property
    def facts(self) -> ModelFacts:
        """The facts of the model."""
        return facts_of(self.model, self.settings.models)

    @property
    def thresholds(self) -> Thresholds:
        """The token counts at which the model's window compacts and blocks."""
        return thresholds_for(window_of(self.model, self.settings), self.settings)

    def pings_by_value(self, tokens: int) -> int:
        """Return how often pi would renew the cache of a window: while 15 % of a miss is worth 5 cents more than it."""
        kept, lost = self.prices.cost(read=tokens), self.prices.cost(write_5m=tokens)
        return MOST_PINGS if 0.15 * (lost - kept) - kept >= 0.05 else 0

    def compactions(self, at: int | None = None) -> ReplayCompactions:
        """Return compactions at a token count, by default at the end of the window."""
        limits = self.thresholds
        where = limits.auto_compact if at is None else min(at, limits.auto_compact)
        return ReplayCompactions(CompactionRule(self.settings.compact, limits.effective), at=where, shared=self.shared)


def _policy(name: str, one: _ReplaySetup) -> ReplayPolicy:
    """Return a policy by its name."""
    base, _, warm = name.partition(WARM)
    match name:
        case "uncached":
            return ReplayPolicy(compactions=one.compactions())
        case "append-only" | "append-only-1h":
            ttl = one.ttl if name == "append-only" else "1h"
            return AppendOnlyPolicy(ttl, name=name, compactions=one.compactions())
        case "append-only-warm":
            most = max_pings(one.rates)
            return AppendOnlyPolicy("5m", name=name, pings=lambda _: most, compactions=one.compactions())
        case "append-only-by-value":
            return AppendOnlyPolicy("5m", name=name, pings=one.pings_by_value, compactions=one.compactions())
        case "break-even":
            limits = one.thresholds
            rule = CompactionRule(one.settings.compact, limits.effective)
            break_even = BreakEvenCompactions(rule, at=limits.auto_compact, rates=one.rates, shared=one.shared)
            return AppendOnlyPolicy(one.ttl, name=name, compactions=break_even)
        case "compact-150k" | "compact-300k":
            at = int(name.removeprefix("compact-").removesuffix("k")) * 1_000
            return AppendOnlyPolicy(one.ttl, name=name, compactions=one.compactions(at))
        case "sliding-window":
            return SlidingWindowPolicy(one.ttl)
        case "clear-every-turn":
            return ClearEveryTurnPolicy(one.ttl, compactions=one.compactions())
        case _:
            settings = replace(one.settings, preset=cast("Any", base), keep_warm=warm == "" and name != base)
            return _reverie(one if name == "reverie" else replace(one, settings=settings), name)


def _reverie(one: _ReplaySetup, name: str) -> ReveriePolicy:
    """Return the policy of the settings, with the preset that they name."""
    settings, limits = one.settings, one.thresholds
    summary_at = limits.warning if settings.compact.prefers_provider(one.facts) else 0
    return ReveriePolicy(
        trim=trim_policy(settings, one.facts, (EDITING_BETA,)),
        offload=OffloadPolicy(override_chars=settings.offload_limits),
        cache=CachePlan(compact_at=limits.auto_compact, rates=one.rates, least_cached=one.facts.least_cached_tokens),
        name=name,
        compact=CompactionRule(settings.compact, limits.effective, compact_patience(settings), summary_at),
        keep_warm=settings.keep_warm,
        shared=one.shared,
    )


def _simulator(pairs: Sequence[tuple[ReplayOutcome, ReplayOutcome]]) -> SimulatorAccuracy | None:
    """Return the simulator's figures beside the billed ones; None if no recording has a bill.

    The sums are of the sessions that followed the rules which it simulates, if there are any.
    """
    if not pairs:
        return None
    foreign = tuple(two.file for _, two in pairs if two.model and facts_of(two.model).api != "messages")
    alike = [pair for pair in pairs if pair[1].file not in foreign] or pairs
    simulated, billed = totals(one for one, _ in alike), totals(two for _, two in alike)
    if not billed["input_usd"]:
        return None
    ratio = simulated["input_usd"] / billed["input_usd"]
    each = tuple((two.file, one.input_usd / two.input_usd) for one, two in pairs if two.input_usd)
    return SimulatorAccuracy(_read_share(simulated), _read_share(billed), ratio, each, foreign)


def _read_share(found: dict[str, float]) -> float:
    total = found["cache_read"] + found["cache_write"] + found["uncached"]
    return found["cache_read"] / total if total else 0.0
