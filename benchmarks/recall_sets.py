"""The three sets of questions by which ``recall.py`` measures search: LoCoMo, BEAM and recorded coding sessions.

A talk is one home directory with its questions; the evidence of a question are handles of messages. LoCoMo: five talks
of two people. BEAM: ten chats of a person with an assistant. Coding: all sessions of ``../shared/corpus`` in one
home, with the questions of ``data/coding_questions.json``, which were written before any search was run on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from reverie.conversation.entries import ASSISTANT, USER, Entry, encode_entry
from reverie.importers import find_sessions, read_session
from reverie.runtime.library import Library
from reverie.runtime.search.log_text import text_of_entry
from reverie.storage.files import FileStorage

SHARED = Path(__file__).resolve().parents[2] / "shared"
CODING = Path(__file__).resolve().parent / "data" / "coding_questions.json"
SETS = ("locomo", "beam", "coding")
_EPOCH = datetime(2026, 1, 1)


class Question(NamedTuple):
    """A question, the handles of the messages that answer it, and its category."""

    text: str
    evidence: frozenset[str]
    category: str


class Document(NamedTuple):
    """A message as the baselines see it: its session and its text with the speaker's name."""

    session: str
    text: str


class Talk(NamedTuple):
    """A home directory that can be searched, with its messages by handle and its questions."""

    kind: str
    name: str
    home: Path
    documents: dict[str, Document]
    questions: list[Question]


def talks(shared: Path, folder: Path, kinds: tuple[str, ...] = SETS) -> list[Talk]:
    """Write the home directories of the sets that are there, and return the talks."""
    found: list[Talk] = []
    if "locomo" in kinds:
        for file in sorted((shared / "locomo-dev").glob("*.json")):
            found += [locomo(item, folder) for item in json.loads(file.read_text())]
    if "beam" in kinds:
        chats = (path.parent for path in (shared / "beam-dev").glob("*/chat.json"))
        found += [beam(chat, folder) for chat in sorted(chats, key=lambda chat: int(chat.name))]
    if "coding" in kinds and (shared / "corpus").is_dir():
        found.append(coding(shared / "corpus", folder))
    return found


def locomo(item: dict[str, Any], folder: Path) -> Talk:
    """Write one LoCoMo conversation; a caption is part of the turn that shows the image."""
    said, name = item["conversation"], item["sample_id"]
    entries: list[Entry] = []
    for number in sorted(int(key.split("_")[1]) for key in said if re.fullmatch(r"session_\d+", key)):
        when = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").isoformat()
        for turn in said[f"session_{number}"]:
            text = f"{turn['text']} {turn.get('blip_caption') or ''}".strip()
            message = {"role": USER, "name": turn["speaker"], "content": text}
            handle = _handles(turn["dia_id"])[0]
            entries.append(Entry(handle, None, when, f"s{number:03}", USER, {"message": message}))
    asked = [(one["question"], _handles(*(one.get("evidence") or [])), str(one["category"])) for one in item["qa"]]
    return _written("locomo", name, folder, entries, asked)


def _handles(*texts: str) -> list[str]:
    """Return the ids of turns such as ``3:11``; one text may contain several."""
    return [f"{int(session)}:{int(turn)}" for text in texts for session, turn in re.findall(r"D:?(\d+):(\d+)", text)]


def beam(chat: Path, folder: Path) -> Talk:
    """Write one BEAM chat as one log with the real roles."""
    entries: list[Entry] = []
    for batch in json.loads((chat / "chat.json").read_text()):
        for message in (one for turn in batch["turns"] for one in turn):
            text = re.sub(r"\s*->->[\d,\s]*$", "", message["content"])
            kind = USER if message["role"] == "user" else ASSISTANT
            when = (_EPOCH + timedelta(minutes=len(entries))).isoformat()
            body = {"message": {"role": kind, "content": text}}
            entries.append(Entry(str(message["id"]), None, when, "chat", kind, body))
    asked = [
        (one["question"], [str(number) for number in _integers(one.get("source_chat_ids"))], kind)
        for kind, some in json.loads((chat / "probing_questions.json").read_text()).items()
        for one in some
    ]
    return _written("beam", f"beam-{chat.name}", folder, entries, asked)


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _integers(inner)


def _written(kind: str, name: str, folder: Path, entries: list[Entry], asked: list[tuple[str, list[str], str]]) -> Talk:
    home = folder / name
    logs = home / "projects" / kind
    logs.mkdir(parents=True)
    for entry in entries:
        with open(logs / f"{entry.session}.jsonl", "ab") as file:
            file.write(encode_entry(entry) + b"\n")
    documents = {
        entry.uuid: Document(entry.session, f"{(entry.message or {}).get('name', '')} {text_of_entry(entry)}".strip())
        for entry in entries
    }
    questions = [
        Question(text, found, category)
        for text, evidence, category in asked
        if (found := frozenset(evidence) & documents.keys())
    ]
    return Talk(kind, name, home, documents, questions)


def coding(corpus: Path, folder: Path) -> Talk:
    """Import all recorded sessions into one home; a handle is the first eight characters of a message's uuid."""
    home = folder / "coding"
    documents: dict[str, Document] = {}
    storage = FileStorage(str(home))
    library = Library(storage)
    for path in find_sessions(str(corpus)):
        for found in read_session(path):
            session = found.session_id.removesuffix(".jsonl")
            library.store(f"projects/coding/{session}.jsonl", list(found.entries))
            for entry in found.entries:
                if (text := text_of_entry(entry)).strip():
                    documents[entry.uuid[:8]] = Document(session, text)
    storage.close()
    asked = json.loads(CODING.read_text())
    questions = [Question(one["question"], frozenset(one["evidence"]) & documents.keys(), "coding") for one in asked]
    return Talk("coding", "coding", home, documents, [one for one in questions if one.evidence])
