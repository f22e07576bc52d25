"""How far are token counts from the billed tokens?

    python benchmarks/estimator.py [CORPUS] [--json] [--check]

Three questions, on recorded sessions with usage (default: ../shared/corpus next to the repository, or $REVERIE_CORPUS):

1. How far is the count before each request (T1: usage of the last reply plus an estimate of everything since) from the
   bill of that request? Every request is included, even the unpredictable ones: the first one (system prompt and tools
   are not in the file), the first after a compaction (attachments that were added again are not in the file), and those
   before which the client dropped content without recording it.
2. How good is an estimate from text alone, without usage: for the whole request, cold, then corrected by earlier
   requests of the same file, then corrected by the other files only?
3. Do the weights generalise? They are fitted again on half of the files and tested on the other half, and compared
   with the shipped weights.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import timeit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.entries import ASSISTANT, ATTACHMENT, DECISION, USER
from reverie.conversation.tokens.counting import TokenCount, billed_tokens
from reverie.conversation.tokens.estimate import (
    CLASSES,
    FRAME,
    MEDIA,
    NOTHING,
    Measure,
    estimate_text,
    measure_message,
    measure_messages,
)
from reverie.conversation.tokens.learning import Estimator
from reverie.errors import InputError
from reverie.importers import ImportedSession, read_sessions

REPOSITORY = Path(__file__).resolve().parent.parent
TARGETS = {
    "claude-code, count before each request, median": ("claude-code", "median", 0.005),
    "claude-code, count before each request, p95": ("claude-code", "p95", 0.025),
    "mini-swe-agent, text alone, cold, mean": ("text mini-swe-agent cold", "mean", 0.17),
    "mini-swe-agent, text alone, learned, mean": ("text mini-swe-agent learned", "mean", 0.05),
}
FEATURES = ("lower", "upper", "digit", "mark", "marks", "space", "newline", "control", "high", "frame")

Message = Mapping[str, Any]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies, by linear interpolation."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Summarise signed relative errors."""
    if not errors:
        return {"requests": 0}
    sizes = [abs(error) for error in errors]
    return {
        "requests": len(errors),
        "median": median(sizes),
        "mean": fmean(sizes),
        "p95": percentile(sizes, 0.95),
        "max": max(sizes),
        "bias": fmean(errors),
    }


def count_errors(session: ImportedSession) -> Iterator[tuple[str, float]]:
    """Yield the kind of each request and the relative error of the count before it."""
    counted, shown, asked = TokenCount(model=session.model), [], set[str]()
    for entry in session.entries:
        message = entry.message
        if entry.kind == DECISION and isinstance(decision := decision_of(entry.body), Compacted):
            shown = _kept(session, decision, entry.uuid)
            counted = counted.after_cut(measure_messages(shown))
        elif entry.kind in (USER, ATTACHMENT) and message is not None:
            counted = counted.after_measure(measure_message(message))
        elif entry.kind == ASSISTANT and message is not None:
            usage, id = billed_tokens(entry.reply), str(entry.reply.get("id") or entry.uuid)
            if usage and id not in asked:
                kind = "usage known" if counted.known else "first after a compaction" if counted.overhead else "first"
                yield kind, (counted.tokens - usage.input_tokens) / usage.input_tokens
                asked.add(id)
            counted = counted.after_reply(message, entry.reply)


def _kept(session: ImportedSession, decision: Compacted, before: str) -> list[Message]:
    """Return the view after a recorded compaction: its summary, and the messages from the first kept one on."""
    kept: list[Message] = [{"role": "user", "content": decision.summary}]
    keeping = False
    for entry in session.entries:
        if entry.uuid == before:
            break
        keeping = keeping or entry.uuid == decision.first_kept
        if keeping and entry.message is not None and entry.kind in (USER, ASSISTANT, ATTACHMENT):
            kept.append(entry.message)
    return kept


def growth(session: ImportedSession) -> Iterator[tuple[list[Message], float, float]]:
    """Yield, for each request, its new messages, their billed tokens, and its whole bill."""
    new: list[Message] = [{"role": "system", "content": session.system}] if session.system else []
    asked, before = set[str](), 0
    for entry in session.entries:
        message = entry.message
        if message is None or entry.kind not in (USER, ASSISTANT, ATTACHMENT):
            continue
        usage, id = billed_tokens(entry.reply), str(entry.reply.get("id") or entry.uuid)
        if entry.kind == ASSISTANT and usage and id not in asked:
            yield new, usage.input_tokens - before, usage.input_tokens
            asked.add(id)
            before, new = usage.input_tokens, []
        new.append(message)


def is_whole(session: ImportedSession) -> bool:
    """Say whether the file contains whole requests: system prompt, messages, and tools if any are called.

    mini-swe-agent writes its commands as text and declares no tools.
    """
    called = any(
        isinstance(block, dict) and block.get("type") == "tool_use"
        for entry in session.messages
        if entry.message is not None and isinstance(entry.message["content"], list)
        for block in entry.message["content"]
    )
    return bool(session.system) and (not called or session.format == "mini-swe-agent")


def speed() -> dict[str, float]:
    """Time the estimate of a text of 2.4 KB and of 1 MB, in microseconds, best of several."""
    text = Path(__file__).read_text(encoding="utf-8")
    sizes = {"2.4 KB": text[:2_400], "1 MB": (text * 100)[:1_000_000]}
    return {
        name: min(timeit.repeat(lambda sample=sample: estimate_text(sample), number=100, repeat=7)) / 100 * 1e6
        for name, sample in sizes.items()
    }


def text_errors(sessions: Sequence[ImportedSession]) -> dict[str, list[float]]:
    """Estimate whole requests from their text: cold, corrected by earlier requests, corrected by other files."""
    steps = {id(one): [(measure_messages(new), grown, bill) for new, grown, bill in growth(one)] for one in sessions}
    errors: dict[str, list[float]] = {"cold": [], "learned": [], "learned elsewhere": []}
    for session in sessions:
        cold, learning, elsewhere = Estimator(), Estimator(), Estimator()
        for other in sessions:
            for measure, grown, _ in steps[id(other)] if other is not session else ():
                elsewhere = elsewhere.learned(session.model, measure, grown)
        whole = NOTHING
        for at, (measure, grown, bill) in enumerate(steps[id(session)]):
            whole += measure
            for name, estimator in (("cold", cold), ("learned", learning), ("learned elsewhere", elsewhere)):
                if at or name != "learned":
                    errors[name].append((estimator.corrected(whole, session.model) - bill) / bill)
            learning = learning.learned(session.model, measure, grown)
    return errors


def class_errors(sessions: Sequence[ImportedSession]) -> dict[str, dict[str, float]]:
    """Summarise the cold error of the new part of each request, by its main class of text."""
    found: dict[str, list[float]] = {}
    for session in sessions:
        for at, (new, grown, _) in enumerate(growth(session)):
            measure = measure_messages(new)
            content = [tokens for kind, tokens in enumerate(measure.by_class) if kind not in (FRAME, MEDIA)]
            if at and grown > 50 and max(content) > 0:
                found.setdefault(CLASSES[content.index(max(content))], []).append((measure.total - grown) / grown)
    return {kind: summary(errors) for kind, errors in sorted(found.items())}


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts of a message as the estimator sees them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, dict):
        kind = value.get("type")
        if kind == "tool_use":
            yield json.dumps(value.get("input"), ensure_ascii=False, separators=(",", ":"))
        else:
            yield from texts_of(value.get({"text": "text", "thinking": "thinking"}.get(str(kind), "content")))


def features(messages: Iterable[Message]) -> list[float]:
    """Count the features that the weights apply to."""
    found = [0.0] * len(FEATURES)
    for text in (text for message in messages for text in texts_of(message.get("content"))):
        marks = 0
        for char in text:
            if char >= "\x80":
                found[8] += 1
            elif char.isalpha():
                found[0 if char.islower() else 1] += 1
            elif char.isdigit():
                found[2] += 1
            elif char > " ":
                found[4 if marks % 2 else 3] += 1
                marks += 1
                continue
            else:
                found[5 if char == " " else 6 if char == "\n" else 7] += 1
            marks = 0
    return found


def fitted(rows: Sequence[tuple[list[float], float]]) -> list[float]:
    """Fit weights by least squares of relative errors, giving outliers less weight in each iteration."""
    size = len(FEATURES)
    weights = [0.3] * size
    for _ in range(6):
        matrix = [[1e-3 if one == other else 0.0 for other in range(size)] for one in range(size)]
        target = [1e-3 * 0.3] * size
        for row, actual in rows:
            miss = abs(sum(map(float.__mul__, weights, row)) - actual) / (actual + 60)
            say = min(1.0, 0.15 / max(miss, 1e-9)) / (actual + 60) ** 2
            for one in range(size):
                target[one] += say * row[one] * actual
                for other in range(size):
                    matrix[one][other] += say * row[one] * row[other]
        weights = solved(matrix, target)
    return weights


def solved(matrix: list[list[float]], target: list[float]) -> list[float]:
    """Solve a positive definite system by elimination."""
    size = len(target)
    rows = [[*matrix[at], target[at]] for at in range(size)]
    for at in range(size):
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [value - factor * pivot for value, pivot in zip(rows[below], rows[at], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        rest = sum(rows[at][other] * found[other] for other in range(at + 1, size))
        found[at] = (rows[at][size] - rest) / rows[at][at]
    return found


def cross_validated(sessions: Sequence[ImportedSession]) -> dict[str, dict[str, dict[str, float]]]:
    """Compare, on the new part of each request, the shipped weights with weights fitted without that file."""
    rows: list[tuple[int, str, list[float], float, Measure]] = []
    for place, session in enumerate(sessions):
        for at, (new, grown, _) in enumerate(growth(session)):
            if at and 50 < grown < 50_000:
                measure = measure_messages(new)
                row = features(new)
                row[-1] = measure.by_class[FRAME]
                half = place % 2 if sum(one.format == session.format for one in sessions) > 1 else at % 2
                rows.append((half, session.format, row, grown, measure))
    found: dict[str, dict[str, list[float]]] = {}
    for half in (0, 1):
        weights = fitted([(row, grown) for place, _, row, grown, _ in rows if place != half])
        for place, name, row, grown, measure in rows:
            if place == half:
                errors = found.setdefault(name, {"shipped": [], "fitted on the other half": []})
                errors["shipped"].append((measure.total - grown) / grown)
                errors["fitted on the other half"].append((sum(map(float.__mul__, weights, row)) - grown) / grown)
    return {name: {which: summary(errors) for which, errors in pair.items()} for name, pair in found.items()}


def run(corpus: Path) -> dict[str, Any]:
    """Answer all questions for the sessions in a folder."""
    sessions = [
        session for session in read_sessions(corpus) if any(billed_tokens(one.reply) for one in session.entries)
    ]
    formats = sorted({session.format for session in sessions})
    result: dict[str, Any] = {"files": len(sessions), "counts": {}, "kinds": {}, "classes": {}}
    for name in formats:
        mine = [session for session in sessions if session.format == name]
        points = [point for session in mine for point in count_errors(session)]
        result["counts"][name] = summary([error for _, error in points])
        kinds = sorted({kind for kind, _ in points})
        result["kinds"][name] = {kind: summary([error for one, error in points if one == kind]) for kind in kinds}
        result["classes"][name] = class_errors(mine)
        if all(is_whole(session) for session in mine):
            for how, errors in text_errors(mine).items():
                result["counts"][f"text {name} {how}"] = summary(errors)
    result["microseconds"] = speed()
    result["cross_validation"] = cross_validated(sessions)
    result["targets"] = {
        name: {"limit": limit, "value": result["counts"][key][figure], "met": result["counts"][key][figure] <= limit}
        for name, (key, figure, limit) in TARGETS.items()
        if result["counts"].get(key, {}).get("requests")
    }
    return result


def table(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Print summaries, one per line."""
    print(f"\n{title}\n{'':48}{'requests':>9}{'median':>9}{'mean':>9}{'p95':>9}{'max':>9}{'bias':>9}")
    for name, row in rows.items():
        figures = "".join(f"{row[key]:9.2%}" for key in ("median", "mean", "p95", "max", "bias") if key in row)
        print(f"{name:48}{row['requests']:9}{figures}")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Compare token counts with recorded usage.")
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail where a target is missed")
    options = parser.parse_args()
    given = options.corpus or os.environ.get("REVERIE_CORPUS") or REPOSITORY.parent / "shared" / "corpus"
    try:
        result = run(Path(given))
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        table("Counts against bills", result["counts"])
        for name, rows in result["kinds"].items():
            table(f"{name}: by kind of request", rows)
        for name, rows in result["classes"].items():
            table(f"{name}: new part of each request, text alone, cold, by main class", rows)
        for name, rows in result["cross_validation"].items():
            table(f"{name}: new part of each request, cross-validated by file", rows)
        print("\nTime of one estimate: " + ", ".join(f"{k} {v:.1f} us" for k, v in result["microseconds"].items()))
        print("\nTargets")
        for name, target in result["targets"].items():
            print(f"{name:56}{target['value']:8.2%} <= {target['limit']:.1%}  {'met' if target['met'] else 'MISSED'}")
    return 1 if options.check and not all(target["met"] for target in result["targets"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
