"""Which facts are left when the past becomes a summary: share kept, tokens, dollars and seconds.

Every recorded session is compacted once. The removed part contains exact names that are mined from it
(paths, shas, test names, error lines, links, ids, numbers the user gave), weighted by how often it used them, and
facts planted before, once each, in results of tools, in words of the user and in words of the agent. Then
each is searched in the text that the model sees, by literal match. No model judges anything.

    notes (local)    our compaction from the local note-taker; no call. This method and the next two have budgets
                     that keep the summary within 12,000 tokens
    notes (model)    the same with a scripted model that wrote the notes; its prose contains no name at all, so that
                     only the program's guarantee is measured
    full (model)     our compaction by a scripted model's summary, whose prose contains no name either
    notes, defaults  the first with the default budgets, whose summary may be longer than 12,000 tokens
    keep-tail        the newest messages, with the same number of tokens as "notes (local)"
    langchain        the window that LangChain's summarisation keeps by its documented default, the last 20 messages,
                     with as much more of the past as equal tokens allow; its summary is a model's prose without names
    drop-results     every tool result cleared, then the newest messages that fit the same tokens

Dollars are computed from list prices (input 3, output 15, cache write 3.75, cache read 0.30 per million): the cost of a
call for the summary, and of writing the rest to the cache again. Seconds are measured, without any model's time.

The anchor list uses the same rules to mine names; ``--plain`` mines them with a few separate regular
expressions instead, so that no rule judges itself.

With ``--check`` it exits with 1 unless each of ours (the first three) keeps more than every other method with at least
as many tokens, at least 0.75 on average within a summary of 12,000 tokens, and everything can be read back.

With ``--reader`` a model answers questions about the part that left the view, before and after; see ``reader.py``.
``--reader MODEL`` takes a GGUF file, or any model that Reverie knows: ``anthropic:NAME``, or ``openai:NAME`` with
OPENAI_BASE_URL for a server of your own. ``--reader none`` tells by literal match alone.

Run: python benchmarks/retention.py [PATH...] [--plain] [--json] [--check] [--seed N]
     python benchmarks/retention.py [PATH...] --reader FILE.gguf [--window N] [--times 1,3,5] [--most N] [--seed N]
                                   [--answers FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import reader

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.authorship import own_words, strings_of
from reverie.conversation.entries import ASSISTANT, USER, Entry, Message, encode_entry
from reverie.conversation.identifiers import EXACT, mine_entries
from reverie.conversation.tokens.estimate import estimate_message, estimate_text
from reverie.conversation.view import View
from reverie.errors import CompactionError
from reverie.importers import read_sessions
from reverie.layers.l4_compact import CompactPolicy
from reverie.models.scripted_model import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.session.parts import SessionOptions

CORPUS = Path(os.environ.get("REVERIE_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")
PROSE = "<summary>The work went on as asked; what was done was checked and holds.</summary>"
NOTED = '<section name="Current State">\nThe work goes on as asked.\n</section>'
MODEL = "claude-sonnet-4-5"
INPUT, OUTPUT, WRITE, READ = 3.0e-6, 15.0e-6, 3.75e-6, 0.30e-6
SHORT = CompactPolicy(notes_tokens=5_500, verbatim_tokens=3_000, anchor_tokens=3_600, handle_tokens=300)
PLAIN = (
    re.compile(r"(?:[\w.@~-]*/)+[\w.-]+\.\w+"),
    re.compile(r"\b[0-9a-f]{7,40}\b"),
    re.compile(r"\btest_\w+|\bTest[A-Z]\w+"),
    re.compile(r"^.*\b\w*(?:Error|Exception)\b:.*$", re.MULTILINE),
)
LEAST_TOKENS = 24_000
OURS = ("notes (local)", "notes (model)", "full (model)")
OTHERS = ("keep-tail", "langchain", "drop-results")
AIM, SUMMARY_TOKENS = 0.75, 12_000
LANGCHAIN_MESSAGES = 20
CLEARED = "[Old tool result content cleared]"


@dataclass
class Row:
    """The result of one method on one session."""

    session: str
    way: str
    kept: float
    planted: float
    retained_tokens: int
    summary_tokens: int
    usd: float
    seconds: float
    calls: int = 0
    read_back: float = 0.0


@dataclass
class Case:
    """A session with planted facts, the removed part, and the facts to search for."""

    name: str
    entries: list[Entry]
    planted: list[str]
    names: Counter[str]
    before: int


def planted(entries: Sequence[Entry], rng: Random) -> tuple[list[Entry], list[str]]:
    """Hide a dozen facts in the first half of a session: in results, in the user's words, in the agent's."""
    out, facts = list(entries), []
    half = range(1, max(2, len(out) // 2))
    for kind in ("result", "said", "told") * 4:
        places = [at for at in half if _holds(out[at], kind)]
        if not places:
            continue
        at = rng.choice(places)
        fact = rng.choice(
            [
                f"/srv/planted/{rng.getrandbits(32):08x}/settings_{len(facts)}.toml",
                f"{rng.getrandbits(80):020x}",
                f"test_planted_{rng.getrandbits(24):06x}_holds",
                f"PlantedError: the gate {rng.getrandbits(24)} is shut",
            ]
        )
        out[at] = _with_fact(out[at], fact, kind)
        facts.append(fact)
    return out, facts


def _holds(entry: Entry, kind: str) -> bool:
    blocks = _blocks(entry)
    if kind == "result":
        return any(block.get("type") == "tool_result" and isinstance(block.get("content"), str) for block in blocks)
    if kind == "told":
        return entry.kind == ASSISTANT and any(block.get("type") == "text" for block in blocks)
    return entry.kind == USER and bool(own_words(entry))


def _with_fact(entry: Entry, fact: str, kind: str) -> Entry:
    wanted, key = ("tool_result", "content") if kind == "result" else ("text", "text")
    done = False
    blocks: list[dict[str, Any]] = []
    for block in _blocks(entry):
        if not done and block.get("type") == wanted and isinstance(block.get(key), str):
            block, done = {**block, key: f"{block[key]}\n{fact}\n"}, True
        blocks.append(block)
    message = {**(entry.message or {}), "content": blocks}
    return replace(entry, body={**entry.body, "message": message})


def _blocks(entry: Entry) -> list[dict[str, Any]]:
    content: Any = (entry.message or {}).get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def shown(messages: Sequence[Message]) -> str:
    """Return all text in these messages."""
    return "\n".join(text for message in messages for text in strings_of(message))


def kept_of(case: Case, text: str) -> tuple[float, float]:
    """Return the shares of mined and of planted facts that a text contains."""
    mined = sum(count for name, count in case.names.items() if name in text) / max(1, case.names.total())
    return mined, sum(fact in text for fact in case.planted) / max(1, len(case.planted))


async def compacted(
    case: Case, way: str, model: ScriptedModel | None = None, *, notes: bool = True, policy: CompactPolicy | None = None
) -> Row | None:
    """Compact a session for real and measure the result."""
    settings = load_settings()
    settings = replace(settings, compact=policy or settings.compact)
    if model is not None and not notes:
        settings = replace(settings, switches=replace(settings.switches, compact_from_notes=False))
    storage = InMemoryStorage()
    for entry in case.entries:
        storage.append("projects/p/s.jsonl", encode_entry(entry))
    async with Session(SessionOptions("s", storage=storage, project="p", settings=settings, model=model)) as session:
        if model is not None and notes:
            await session.parts.notes.update(manual=True)
        begun = time.perf_counter()
        try:
            report = await session.compact("manual")
        except CompactionError as error:
            print(f"{case.name}: {way}: {error}", file=sys.stderr)
            return None
        seconds = time.perf_counter() - begun
        view = session.view
        text = shown(view.messages())
        mined, facts = kept_of(case, text)
        whole = (await session.read_back(report.handle)).decode("utf-8", "replace")
        reachable = kept_of(case, f"{text}\n{unescaped(whole)}")
        summary = estimate_text(report.summary)
        usd = report.tokens_after * WRITE
        if report.model_calls:
            usd += case.before * READ + 1_000 * OUTPUT
        calls, back = report.model_calls, min(reachable)
        return Row(case.name, way, mined, facts, view.tokens, summary, usd, seconds, calls, back)


def unescaped(text: str) -> str:
    """Return the text of messages that are read back as JSON, one per line or all in one."""
    decoder, out, at = json.JSONDecoder(), [], 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
            out += strings_of(value)
        except json.JSONDecodeError:
            end = text.find("\n", at)
            out.append(text[at : end if end >= 0 else len(text)])
            at = end if end >= 0 else len(text)
        at += 1
    return "\n".join(out)


def newest(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Return the newest messages that fit."""
    out: list[Message] = []
    left = float(tokens)
    for message in reversed(messages):
        left -= estimate_message(message)
        if left < 0:
            break
        out.append(message)
    return out[::-1]


def without_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with every tool result cleared."""
    out: list[Message] = []
    for message in messages:
        content: Any = message.get("content")
        if isinstance(content, list):
            content = [
                {**block, "content": CLEARED} if block.get("type") == "tool_result" else block for block in content
            ]
        out.append({**message, "content": content})
    return out


def baseline(case: Case, way: str, keep: Callable[[list[Message]], list[Message]], extra_usd: float) -> Row:
    """Measure a method that only selects messages."""
    messages = [entry.message for entry in case.entries if entry.message is not None]
    begun = time.perf_counter()
    left = keep(messages)
    seconds = time.perf_counter() - begun
    tokens = round(sum(estimate_message(message) for message in left))
    mined, facts = kept_of(case, shown(left))
    return Row(case.name, way, mined, facts, tokens, 0, tokens * WRITE + extra_usd, seconds)


async def measured(case: Case) -> list[Row]:
    """Measure every method on one session."""
    first = await compacted(case, "notes (local)", policy=SHORT)
    if first is None:
        return []
    rows = [first]
    for way, answer, notes in (("notes (model)", NOTED, True), ("full (model)", PROSE, False)):
        model = ScriptedModel(lambda _, answer=answer: answer, capabilities=Capabilities(caching=True, window=10**7))
        found = await compacted(case, way, model, notes=notes, policy=SHORT)
        if found is not None:
            rows.append(found)
    whole = await compacted(case, "notes, defaults")
    if whole is not None:
        rows.append(whole)
    tokens = first.retained_tokens
    summary_call = case.before * INPUT + 1_000 * OUTPUT
    rows.append(baseline(case, "keep-tail", lambda all_of: newest(all_of, tokens), 0.0))
    langchain = lambda all_of: max(newest(all_of, tokens), all_of[-LANGCHAIN_MESSAGES:], key=len)  # noqa: E731
    rows.append(baseline(case, "langchain", langchain, summary_call))
    rows.append(baseline(case, "drop-results", lambda all_of: newest(without_results(all_of), tokens), 0.0))
    return rows


def cases(paths: Sequence[Path], rng: Random) -> list[Case]:
    """Read the sessions that are long enough, and plant facts in them."""
    out: list[Case] = []
    for path in paths:
        for found in read_sessions(path):
            entries, facts = planted([_unbilled(entry) for entry in found.messages], rng)
            view = View().fold_all(entries)
            if view.tokens < LEAST_TOKENS:
                continue
            out.append(Case(found.session_id, entries, facts, Counter(), view.tokens))
    return out


def _unbilled(entry: Entry) -> Entry:
    """Return the entry without its billed usage: a recording's own compactions are not in this log."""
    reply = {key: value for key, value in entry.reply.items() if key != "usage"}
    return replace(entry, body={**entry.body, "reply": reply}) if entry.reply else entry


def plain_names(entries: Sequence[Entry]) -> Counter[str]:
    """Mine names with expressions that share nothing with ours."""
    found: Counter[str] = Counter()
    for entry in entries:
        text = "\n".join(strings_of(entry.message))
        for pattern in PLAIN:
            found.update(name for one in pattern.findall(text) if not (name := one.strip()).isalnum() or _mixed(name))
        found.update(re.findall(r"\b\d{2,}\b", own_words(entry)))
    return found


def _mixed(name: str) -> bool:
    return not name.isdigit() and not name.isalpha()


def look_for(case: Case, *, plain: bool = False) -> None:
    """Mine the removed part: everything except the last 10,000 tokens."""
    left, at = 10_000.0, len(case.entries)
    while at > 0 and left > 0:
        at -= 1
        left -= estimate_message(case.entries[at].message or {"content": ""})
    if plain:
        case.names.update(plain_names(case.entries[:at]))
        return
    for name, count in mine_entries(case.entries[:at]).items():
        if name.kind in EXACT:
            case.names[name.text] += count


def table(rows: Sequence[Row]) -> list[str]:
    """Return the means by method, as lines."""
    lines = [
        f"{'way':<16}{'kept':>7}{'least':>7}{'planted':>9}{'tokens':>9}{'summary':>9}{'USD':>9}{'s':>8}{'back':>6}"
    ]
    for way in dict.fromkeys(row.way for row in rows):
        mine = [row for row in rows if row.way == way]

        back = f"{min(row.read_back for row in mine):>6.2f}" if any(row.read_back for row in mine) else f"{'-':>6}"
        lines.append(
            f"{way:<16}{mean(rows, way, 'kept'):>7.3f}{min(row.kept for row in mine):>7.3f}"
            f"{mean(rows, way, 'planted'):>9.2f}{mean(rows, way, 'retained_tokens'):>9,.0f}"
            f"{max(row.summary_tokens for row in mine):>9,}{mean(rows, way, 'usd'):>9.4f}"
            f"{mean(rows, way, 'seconds'):>8.3f}{back}"
        )
    return lines


def mean(rows: Sequence[Row], way: str, field: str) -> float:
    """Return the mean of a field over the sessions of one method."""
    found = [float(getattr(row, field)) for row in rows if row.way == way]
    return sum(found) / len(found) if found else 0.0


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """List every limit that ours misses; a method that was not run is a miss too."""
    wrong: list[str] = []
    sessions = {row.session for row in rows}
    for way in OURS:
        mine = [row for row in rows if row.way == way]
        if not mine or {row.session for row in mine} != sessions:
            wrong.append(f"{way}: {len(mine)} of {len(sessions)} sessions were compacted")
            continue
        kept, longest = mean(rows, way, "kept"), max(row.summary_tokens for row in mine)
        if kept < AIM:
            wrong.append(f"{way}: keeps {kept:.3f} of the names used, less than {AIM}")
        if longest > SUMMARY_TOKENS:
            wrong.append(f"{way}: a summary of {longest:,} tokens, more than {SUMMARY_TOKENS:,}")
        if min(row.read_back for row in mine) < 1.0:
            wrong.append(f"{way}: not everything can be read back")
        wrong += [f"{way}: {other} keeps as much" for other in OTHERS if kept <= mean(rows, other, "kept")]
    return wrong if rows else ["no session was long enough to be compacted"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[CORPUS])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", help="a GGUF file or a model's name; none: literal match alone")
    parser.add_argument("--window", type=int, default=32_768)
    parser.add_argument("--times", default="1,3,5", help="compactions in a row")
    parser.add_argument("--most", type=int, default=10, help="questions of a kind and session")
    parser.add_argument("--conditions", default=",".join(reader.CONDITIONS))
    parser.add_argument("--answers", type=Path, help="a file of the reader's answers: a stopped run goes on")
    options = parser.parse_args()
    if not all(path.exists() for path in options.paths):
        sys.exit("no recorded sessions here: name files or folders that hold some")
    if options.reader is not None:
        return read_by_a_model(options)
    rows: list[Row] = []
    for case in cases(options.paths, Random(options.seed)):
        look_for(case, plain=options.plain)
        rows += anyio.run(measured, case)
    if options.json:
        print(json.dumps({"seed": options.seed, "rows": [asdict(row) for row in rows]}, indent=1))
    else:
        shown_for_people(rows, options.seed)
    wrong = shortfalls(rows) if options.check else []
    if wrong:
        sys.exit("\n".join(wrong))


def read_by_a_model(options: argparse.Namespace) -> None:
    """Ask a reader about every session, and print each answer as a line and then the table."""
    files = [file for path in options.paths for file in ([path] if path.is_file() else sorted(path.rglob("*.json*")))]
    name = "" if options.reader == "none" else options.reader
    times = tuple(int(part) for part in options.times.split(","))
    asked = reader.ReaderOptions(
        options.window, times, options.most, tuple(options.conditions.split(",")), options.seed, options.answers
    )
    rows = reader.run(files, name, asked, lambda row: print(json.dumps(asdict(row)), flush=True) if name else None)
    reader.printed(rows, read=bool(name))


def shown_for_people(rows: Sequence[Row], seed: int) -> None:
    """Print the table, how to read it, and the sessions in which another method is better."""
    first = {row.session: row.kept for row in rows if row.way == OURS[0]}
    ahead = [row for row in rows if row.way in OTHERS and row.kept >= first[row.session]]
    print(f"{len({row.session for row in rows})} sessions, seed {seed}; 'kept' is weighted by use, 'least' the")
    print("session with the least, 'summary' the longest, 'back' the share that can be read back\n")
    print("\n".join(table(rows)))
    for row in ahead:
        print(f"{row.session}: {row.way} keeps {row.kept:.3f}, {OURS[0]} {first[row.session]:.3f}")


if __name__ == "__main__":
    main()
