"""Does a model that reads find the facts after a compaction? Part of ``retention.py``, with ``--reader``.

Every session is compacted, once, three and five times in a row, in a small window. Mechanical questions
(``reader_questions.py``) about the part that left the view are asked one per prompt, the question last:

    ceiling         of about 240 tokens of the original text around the fact
    ours            of our summary and the kept messages
    tail            of as many tokens of the newest text alone
    ours + search   of ours, then the ten best hits of the session search for the question, each with its speaker
                    and time, and the best two read back: opened by ``expand`` at the words of the question
    search          of these hits and read-backs alone
    originals       of the evidence of all questions of the session and other pieces of its originals, shuffled, as long
                    as ours: no text of that length that has all facts can be expected to do better

An answer is right if it contains an accepted one, as whole words, without a mark at its end, and is no copy of a long
part of the question; nothing else judges it.
Without a reader the table has the results of literal match alone: the share of answers that are in the text, in a
sentence, that is on a line with at least four other words, and near the question, that is in the 240 tokens of the text
that share most words with what it quotes, rare ones first: a reader would look there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
from reader_questions import EVIDENCE_CHARS, OUTCOMES, Question, questions

from reverie import Session, load_settings
from reverie.conversation.authorship import strings_of, text_of
from reverie.conversation.entries import Entry, Message, encode_entry
from reverie.conversation.tokens.estimate import estimate_text
from reverie.conversation.view import View
from reverie.importers import read_sessions
from reverie.models.names import open_model
from reverie.ports import Model
from reverie.runtime.search.sessions import SessionSearch
from reverie.runtime.session.offload.read_back import ReadBack
from reverie.runtime.session.parts import SessionOptions
from reverie.storage.files import FileStorage

CONDITIONS = ("ours", "ceiling", "ours + search", "search", "originals", "tail")
ROLES = {"user": "user", "assistant": "agent"}
SYSTEM = "You answer questions about a text. Answer with the exact name, number or words from the text, nothing else."
SNIPPETS, READ_BACK = 10, 2
MOST_ANSWER_TOKENS = 24
LEAST_WORDS = 4
COPIED_CHARS = 40
READING_BACK = re.compile(r"^Any message of the part that was cut can be read back.*$", re.MULTILINE)
HANDLE = re.compile(r"cut-[0-9a-f-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
QUOTED = re.compile(r"`[^`]+`|\".+\"")


@dataclass
class Answer:
    """One question under one condition."""

    session: str
    times: int
    condition: str
    kind: str
    question: str
    in_text: bool
    in_sentence: bool
    near: bool
    right: bool | None = None
    answer: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Context:
    """The text in view after some compactions, as much of the newest text, and the index of the first kept entry."""

    ours: str
    tail: str
    first_kept: int
    home: Path
    past: ReadBack


def rendered(messages: Iterable[Message]) -> str:
    """Return messages as a text with speakers."""
    parts: list[str] = []
    for message in messages:
        content: Any = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": str(content)}]:
            match block.get("type"):
                case "text":
                    parts.append(f"{ROLES.get(str(message.get('role')), 'user')}: {block.get('text')}")
                case "tool_use":
                    given = " ".join(strings_of(block.get("input")))
                    parts.append(f"agent calls {block.get('name')}: {given}")
                case "tool_result":
                    parts.append(f"result: {text_of(block)}")
                case _:
                    pass
    return "\n\n".join(parts)


async def compacted(entries: Sequence[Entry], times: int, window: int, home: Path) -> Context:
    """Compact a session so many times in a row, at equal distances, and return the text in view at the end."""
    storage, log = FileStorage(home), "projects/p/s.jsonl"
    os.environ["REVERIE_MODEL_WINDOW_TOKENS"] = str(window)
    settings = load_settings()
    done, view = 0, View()
    for turn in range(1, times + 1):
        end = len(entries) * turn // times
        for entry in entries[done:end]:
            storage.append(log, encode_entry(entry))
        done = end
        async with Session(SessionOptions("s", storage=storage, project="p", settings=settings)) as session:
            await session.compact("manual")
            view = session.view
    kept = {item.uuid for item in view.items_in_view()}
    first = next((at for at, entry in enumerate(entries) if entry.uuid in kept), len(entries))
    # Handles of cuts are random: with them no answer of an earlier run could be used again.
    ours = READING_BACK.sub(lambda line: HANDLE.sub("cut-0", line.group()), rendered(view.messages()))
    whole = rendered(entry.message for entry in entries if entry.message is not None)
    chars = len(ours)
    while estimate_text(whole[-chars:]) > estimate_text(ours):
        chars = chars * 49 // 50
    return Context(ours, whole[-chars:], first, home, ReadBack(storage, log.removesuffix(".jsonl"), view))


def searched(context: Context, question: Question) -> str:
    """Return the ten best hits of a search for a question, and the best two opened at the words of the question."""
    with SessionSearch(context.home) as search:
        hits = search.search(question.text, limit=SNIPPETS)
    snippets = "\n".join(f"- {hit.time[:16]} {hit.speaker or ROLES.get(hit.kind)}: {hit.snippet}" for hit in hits)
    opened = [context.past.expand(hit.handle, about=question.text) for hit in hits[:READ_BACK]]
    return "\n\n".join(("Found by a search of the whole session:", snippets, "Read back:", *opened))


def nearest(text: str, question: str, chars: int) -> str:
    """Return the part of a text that shares most words with what a question quotes; rare words count more."""
    quoted = " ".join(QUOTED.findall(question)) or question
    wanted = set(re.findall(r"\w{3,}", quoted.lower()))
    parts = [text[at : at + chars] for at in range(0, max(1, len(text) - chars // 2), max(1, chars // 8))]
    shared = [wanted & set(re.findall(r"\w{3,}", part.lower())) for part in parts]
    counts = Counter(word for words in shared for word in words)
    worth = [sum(math.log(1 + len(parts) / counts[word]) for word in words) for words in shared]
    return parts[worth.index(max(worth))]


def holds(text: str, answers: Sequence[str]) -> bool:
    """Say whether a text has one of the answers as whole words, in any case."""
    return any(re.search(_pattern(answer), text, re.IGNORECASE) for answer in answers)


def is_copied(answer: str, question: str) -> bool:
    """Say whether an answer only repeats a part of the question that is longer than most answers."""
    return len(answer) > COPIED_CHARS and answer in question


def in_a_sentence(text: str, answers: Sequence[str]) -> bool:
    """Say whether an answer is on a line with at least four other words."""
    return any(
        holds(line, answers) and len(re.findall(r"[^\W\d_]{2,}", line)) > LEAST_WORDS for line in text.splitlines()
    )


def _pattern(answer: str) -> str:
    words = r"\s+".join(re.escape(word) for word in answer.rstrip(".,;:!?()").split())
    return rf"(?<!\w){words}(?!\w)"


def wilson(right: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, right / of
    middle = (share + z * z / 2 / of) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / 4 / of / of) / (1 + z * z / of)
    return max(0.0, middle - half), min(1.0, middle + half)


class Reader:
    """A model that answers one question a prompt; with a file it asks nothing twice, so that a stopped run goes on."""

    def __init__(self, model: Model, answers: Path | None = None) -> None:
        self._model, self._file = model, answers
        lines = answers.read_text("utf-8").splitlines() if answers is not None and answers.exists() else ()
        self._known: dict[str, str] = {one["prompt"]: one["answer"] for one in map(json.loads, lines)}

    async def answer(self, context: str, question: Question) -> str:
        """Return the answer to a question about a text."""
        content = f"{context}\n\n---\nQuestion: {question.text}\nAnswer with the exact words of the text only."
        key = hashlib.sha256(f"{self._model.model_id}\n{content}".encode()).hexdigest()
        if key not in self._known:
            self._known[key] = await self._ask(content)
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"prompt": key, "answer": self._known[key]}) + "\n")
        return self._known[key]

    async def _ask(self, content: str) -> str:
        request = {
            "model": self._model.model_id,
            "max_tokens": MOST_ANSWER_TOKENS,
            "temperature": 0,
            "system": SYSTEM,
            "messages": [{"role": "user", "content": content}],
        }
        blocks: list[dict[str, Any]] = (await self._model.complete(request)).body.get("content") or []
        return " ".join(part for block in blocks for part in strings_of(block.get("text"))).strip()


async def measured(
    path: Path, reader: Reader | None, options: ReaderOptions, told: Callable[[Answer], None]
) -> list[Answer]:
    """Compact a session, and ask all questions under all conditions."""
    found = next(iter(read_sessions(path)))
    entries = [_unbilled(entry) for entry in found.messages]
    rows: list[Answer] = []
    with tempfile.TemporaryDirectory() as folder:
        asked: list[Question] = []
        for times in options.times:
            context = await compacted(entries, times, options.window, Path(folder) / str(times))
            if not asked:
                asked = questions(entries[: context.first_kept], Random(options.seed), most_per_kind=options.most)
            for condition in options.conditions if times == options.times[0] else ("ours", "ours + search"):
                if condition not in options.conditions:
                    continue
                shown = context
                if condition == "originals":
                    shown = replace(context, ours=originals(context, entries, asked, Random(options.seed)))
                for question in asked:
                    text = _text(condition, shown, question)
                    row = Answer(
                        path.stem,
                        times,
                        condition,
                        question.kind,
                        question.text,
                        holds(text, question.answers),
                        in_a_sentence(text, question.answers),
                        holds(nearest(text, question.text, EVIDENCE_CHARS), question.answers),
                    )
                    if reader is not None:
                        began = time.perf_counter()
                        row.answer = await reader.answer(text, question)
                        row.seconds = time.perf_counter() - began
                        row.right = holds(row.answer, question.answers) and not is_copied(row.answer, question.text)
                    told(row)
                    rows.append(row)
    return rows


def _text(condition: str, context: Context, question: Question) -> str:
    match condition:
        case "ceiling":
            return question.evidence
        case "tail":
            return context.tail
        case "ours" | "originals":
            return context.ours
        case "search":
            return searched(context, question)
        case _:
            return f"{context.ours}\n\n{searched(context, question)}"


def originals(context: Context, entries: Sequence[Entry], asked: Sequence[Question], rng: Random) -> str:
    """Return the evidence of all questions among other pieces of the part that left the view, as long as ours."""
    pieces = [question.evidence for question in asked]
    cut = rendered(entry.message for entry in entries[: context.first_kept] if entry.message is not None)
    room = len(context.ours) - sum(map(len, pieces))
    while room > 0 and len(cut) > EVIDENCE_CHARS:
        start = rng.randrange(len(cut) - EVIDENCE_CHARS)
        pieces.append(cut[start : start + EVIDENCE_CHARS])
        room -= EVIDENCE_CHARS
    rng.shuffle(pieces)
    return "\n\n".join(pieces)


def _unbilled(entry: Entry) -> Entry:
    reply = {key: value for key, value in entry.reply.items() if key != "usage"}
    return replace(entry, body={**entry.body, "reply": reply}) if entry.reply else entry


@dataclass(frozen=True)
class ReaderOptions:
    """The window, the numbers of compactions, the questions of a kind, the conditions, the seed, a file of answers."""

    window: int = 32_768
    times: tuple[int, ...] = (1, 3, 5)
    most: int = 10
    conditions: tuple[str, ...] = CONDITIONS
    seed: int = 1
    answers: Path | None = None


def table(rows: Sequence[Answer], *, read: bool) -> list[str]:
    """Return the shares by number of compactions and condition, for all questions and by group, as lines."""
    lines = [
        f"{'after':>5} {'condition':<15}{'group':<26}{'n':>4}{'in text':>9}{'in a sentence':>15}{'near':>7}"
        f"{'answered':>10}  95 %"
    ]
    groups: dict[str, Callable[[Answer], bool]] = {
        "all": lambda _: True,
        "errors, fixes, outcomes": lambda row: row.kind in OUTCOMES,
        "the rest": lambda row: row.kind not in OUTCOMES,
    }
    for times, condition in dict.fromkeys((row.times, row.condition) for row in rows):
        for group, belongs in groups.items():
            mine = [row for row in rows if (row.times, row.condition) == (times, condition) and belongs(row)]
            of = len(mine)
            text, sentence = sum(row.in_text for row in mine), sum(row.in_sentence for row in mine)
            near, right = sum(row.near for row in mine), sum(row.right is True for row in mine)
            low, high = wilson(right if read else near, of)
            answered = f"{right / max(1, of):>10.2f}" if read else f"{'-':>10}"
            lines.append(
                f"{times:>5} {condition:<15}{group:<26}{of:>4}{text / max(1, of):>9.2f}{sentence / max(1, of):>15.2f}"
                f"{near / max(1, of):>7.2f}{answered}  {low:.2f}-{high:.2f}"
            )
    return lines


def run(paths: Sequence[Path], name: str, options: ReaderOptions, told: Callable[[Answer], None]) -> list[Answer]:
    """Measure all sessions with the reader of a name, or by literal match alone if it is empty."""

    async def act() -> list[Answer]:
        model = open_model(name) if name else None
        reader = Reader(model, options.answers) if model is not None else None
        try:
            rows: list[Answer] = []
            for path in paths:
                rows += await measured(path, reader, options, told)
            return rows
        finally:
            if model is not None:
                await model.aclose()

    return anyio.run(act)


def printed(rows: Sequence[Answer], *, read: bool) -> None:
    """Print the table and the seconds."""
    print(
        f"{len({row.session for row in rows})} sessions, {len({(row.session, row.question) for row in rows})} questions"
    )
    print("\n".join(table(rows, read=read)))
    if read:
        print(f"{sum(row.seconds for row in rows):,.0f} s of reading", file=sys.stderr)
