"""Replay several recordings under several policies into one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..cache.prices import Prices, prices_for, rates_of
from ..errors import InputError
from ..importers import find_sessions, read_session
from ..layers.l1_offload import OffloadPolicy
from ..model_facts import default_model, facts_of
from ..runtime.session.limits import compact_at, trim_policy
from ..settings import Settings, load_settings
from .outcome import ReplayOutcome, ReplayReport, SimulatorAccuracy, totals
from .policies import (
    NAMES,
    AppendOnlyPolicy,
    AsRecordedPolicy,
    ClearEveryTurnPolicy,
    ReplayPolicy,
    ReveriePolicy,
    SlidingWindowPolicy,
    UncachedPolicy,
)
from .recording import Recording, recording_of
from .run import billed_outcome, replay_recording

__all__ = ["compare", "recordings_in", "settings_named"]

Progress = Callable[[str], None]


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
            for number, imported in enumerate(sessions):
                recording = recording_of(imported, file.name if number == 0 else f"{file.name}#{number + 1}")
                if recording.steps:
                    found.append(recording)
                else:
                    skipped.append(f"{recording.name}: no request in it")
    return found, skipped


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
    policies: Sequence[str] = NAMES,
    extra: dict[str, Settings] | None = None,
    model: str | None = None,
    ttl: str = "5m",
    skipped: Sequence[str] = (),
    settings: Settings | None = None,
    progress: Progress | None = None,
    check: bool = True,
) -> ReplayReport:
    """Replay each recording under each policy and return a report of the costs.

    ``extra`` are settings to replay as further policies, ``skipped`` are notes for the report, ``model`` sets the
    prices for all recordings, and ``check`` counts requests that a provider would refuse.
    """
    settings = settings or load_settings()
    extra = extra or {}
    unknown = [name for name in policies if name not in NAMES]
    if unknown:
        raise InputError(f"no policy is called {unknown[0]!r}; there are {', '.join(NAMES)} and settings files")
    outcomes: list[ReplayOutcome] = []
    as_billed: list[tuple[ReplayOutcome, ReplayOutcome]] = []
    notes: dict[str, list[str]] = {}
    for recording in recordings:
        named = model or recording.model
        prices = _prices(named, recording, notes)
        for name in policies:
            if progress is not None:
                progress(f"{recording.name}: {name}")
            if name == "recorded":
                billed = billed_outcome(recording, prices)
                if billed is None:
                    notes.setdefault("no billed usage", []).append(recording.name)
                    continue
                outcomes.append(billed)
                as_billed.append((replay_recording(recording, AsRecordedPolicy(ttl), prices, check=False), billed))
                continue
            outcomes.append(
                replay_recording(
                    recording, _policy(name, named, ttl, settings, prices), prices, model=named, check=check
                )
            )
        for name, mine in extra.items():
            policy = _reverie(named, mine, prices, name)
            outcomes.append(replay_recording(recording, policy, prices, model=named, check=check))
    files = tuple(dict.fromkeys(recording.name for recording in recordings))
    models = sorted({recording.model for recording in recordings if recording.model})
    shown = model or (models[0] if len(models) == 1 else "as recorded")
    names = tuple(name for name in (*policies, *extra) if any(outcome.policy == name for outcome in outcomes))
    said = (*skipped, *(_note(reason, where) for reason, where in notes.items()))
    return ReplayReport(files, names, tuple(outcomes), shown, ttl, said, _simulator(as_billed))


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


def _policy(name: str, model: str, ttl: str, settings: Settings, prices: Prices) -> ReplayPolicy:
    match name:
        case "uncached":
            return UncachedPolicy()
        case "append-only":
            return AppendOnlyPolicy(ttl)
        case "sliding-window":
            return SlidingWindowPolicy(ttl)
        case "clear-every-turn":
            return ClearEveryTurnPolicy(ttl)
        case _:
            return _reverie(model, settings, prices, "reverie")


def _reverie(model: str, settings: Settings, prices: Prices, name: str) -> ReveriePolicy:
    facts = facts_of(model, settings.models)
    return ReveriePolicy(
        trim=trim_policy(settings),
        offload=OffloadPolicy(override_chars=settings.offload_limits),
        compact_at=compact_at(model, settings),
        rates=rates_of(prices, facts),
        least_cached=facts.least_cached_tokens,
        name=name,
    )


def _simulator(pairs: Sequence[tuple[ReplayOutcome, ReplayOutcome]]) -> SimulatorAccuracy | None:
    """Return the simulator's figures beside the billed ones; None if no recording has a bill."""
    if not pairs:
        return None
    simulated, billed = totals(one for one, _ in pairs), totals(one for _, one in pairs)
    if not billed["input_usd"]:
        return None
    return SimulatorAccuracy(_read_share(simulated), _read_share(billed), simulated["input_usd"] / billed["input_usd"])


def _read_share(found: dict[str, float]) -> float:
    total = found["cache_read"] + found["cache_write"] + found["uncached"]
    return found["cache_read"] / total if total else 0.0
