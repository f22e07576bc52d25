"""Embeddings: memories and messages are found by their meaning, by vectors that are made when they are saved."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path

import pytest

from reverie import Memory
from reverie.conversation.entries import ASSISTANT, USER, Entry, encode_entry
from reverie.digests import hex_of
from reverie.errors import ModelError, ModelUnavailable, ModelUnknown
from reverie.events import Event, FellBack
from reverie.hosts.memory_reader import MemoryReader
from reverie.layers.l5_extract import PastSayings, TypedMessage, reference_sentences
from reverie.memories.recall.local_choice import is_certain
from reverie.memories.recall.policy import RecallPolicy
from reverie.memories.recall.search import Match, fused
from reverie.models.embedders import CentredEmbedder, EndpointEmbedder, open_embedder
from reverie.runtime.memory.extract.extraction_vectors import FILE_NAME, ExtractionVectors
from reverie.runtime.memory.vectors import MemoryVectors
from reverie.runtime.search.sessions import SessionSearch
from reverie.runtime.search.vectors import likeness

MEANINGS = (("framework", "unittest", "pytest"), ("coffee", "espresso"), ("deploy", "release", "ship"))
RULE = "Use unittest, never pytest"


class Meanings:
    """An embedder whose dimensions are three meanings and the rest."""

    name = "meanings"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failure: ModelError | None = None

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        if self.failure is not None:
            raise self.failure
        self.texts += texts
        return [self._vector(text.lower()) for text in texts]

    def _vector(self, text: str) -> array[float]:
        values = [float(any(word in text for word in words)) for words in MEANINGS]
        values.append(0.0 if any(values) else 1.0)
        return unit(values)


def unit(values: Sequence[float]) -> array[float]:
    size = sum(value * value for value in values) ** 0.5
    return array("f", [value / size for value in values])


@pytest.fixture
def meanings() -> Meanings:
    return Meanings()


def saved(folder: Path, embedder: Meanings | None) -> Memory:
    memory = Memory(folder, embedder=embedder)
    memory.save(RULE, type="feedback", why="the build has no network")
    memory.save("The espresso machine is on the second floor", type="project", why="people ask")
    return memory


# -- memories


@pytest.mark.requirement("R10")
def test_a_memory_without_a_word_of_the_question_is_found_by_its_meaning(tmp_path: Path, meanings: Meanings) -> None:
    memory = saved(tmp_path, meanings)
    assert [one.description for one in memory.recall("which framework?")] == [RULE]
    assert memory.recall("what time is it?") == []


@pytest.mark.requirement("R10")
def test_without_an_embedder_words_must_match(tmp_path: Path) -> None:
    memory = saved(tmp_path, None)
    assert memory.recall("which framework?", everything=True) == []
    assert [one.description for one in memory.recall("is it unittest or pytest?")] == [RULE]
    assert not (tmp_path / ".journal" / "vectors.sqlite").exists()


@pytest.mark.requirement("R10")
def test_vectors_are_made_at_save_so_that_a_prompt_needs_only_its_own(tmp_path: Path, meanings: Meanings) -> None:
    memory = saved(tmp_path, meanings)
    assert RULE in meanings.texts, "without its reason, which says nothing about the question"
    meanings.texts.clear()
    memory.recall("which framework?")
    assert meanings.texts == ["which framework?"]
    later = Meanings()
    assert Memory(tmp_path, embedder=later).recall("which framework?")
    assert later.texts == ["which framework?"], "another process reads the vectors"


@pytest.mark.requirement("R10")
def test_twin_vectors_that_are_not_kept_are_made_again(
    tmp_path: Path, meanings: Meanings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryVectors, "_load", lambda self: setattr(self, "_is_loaded", True))
    saved(tmp_path, meanings)
    later = Meanings()
    Memory(tmp_path, embedder=later).recall("which framework?")
    assert RULE in later.texts


@pytest.mark.requirement("R10")
def test_a_changed_memory_gets_a_new_vector_and_a_removed_one_loses_it(tmp_path: Path, meanings: Meanings) -> None:
    memory = saved(tmp_path, meanings)
    [file] = [one.file for one in memory.list() if one.description == RULE]
    memory.update(file, "Ship on Tuesdays", description="Ship on Tuesdays", why="staff")
    assert memory.recall("which framework?") == []
    assert [one.file for one in memory.recall("when do we deploy?")] == [file]
    memory.forget(file)
    assert memory.recall("when do we deploy?") == []


@pytest.mark.requirement("R10")
def test_an_erased_memory_leaves_no_vector(tmp_path: Path, meanings: Meanings) -> None:
    memory = saved(tmp_path, meanings)
    [file] = [one.file for one in memory.list() if one.description == RULE]
    Memory(tmp_path).forget(file, erase=True)
    assert not list((tmp_path / ".journal").glob("vectors*"))


@pytest.mark.requirement("R10")
def test_another_embedder_makes_its_own_vectors(tmp_path: Path, meanings: Meanings) -> None:
    saved(tmp_path, meanings)
    other = Meanings()
    other.name = "another"
    Memory(tmp_path, embedder=other).recall("which framework?")
    assert RULE in other.texts


@pytest.mark.requirement("R10")
def test_if_the_embedder_fails_words_still_find_and_the_reason_is_told(tmp_path: Path, meanings: Meanings) -> None:
    memory = saved(tmp_path, meanings)
    meanings.failure = ModelUnavailable("it is down")
    assert [one.description for one in memory.recall("is it unittest or pytest?")] == [RULE]
    assert "it is down" in memory.recall_problem
    memory.save("Coffee is free on Mondays", type="project", why="a gift")
    meanings.failure = None
    assert len(memory.recall("where is a cup of coffee?")) == 2
    assert memory.recall_problem == ""


@pytest.mark.requirement("R10")
@pytest.mark.parametrize(
    "change", ["", "UPDATE vectors SET vector = x'01'", "UPDATE vectors SET digest = CAST(x'ff' AS TEXT)", "flips"]
)
def test_a_damaged_file_of_vectors_is_made_again(tmp_path: Path, meanings: Meanings, change: str) -> None:
    saved(tmp_path, meanings)
    file = tmp_path / ".journal" / "vectors.sqlite"
    if not change:
        for one in file.parent.glob("vectors*"):
            one.write_bytes(b"no database " * 1_000)
    elif change == "flips":  # the second half has the pages of rows
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] + b"\xa5" * (file.stat().st_size // 2))
    else:
        with sqlite3.connect(file) as connection:
            connection.execute(change)
    again = Memory(tmp_path, embedder=meanings)
    assert [one.description for one in again.recall("which framework?")] == [RULE]
    assert again.recall_problem == ""


# -- past sessions


def logged(home: Path, session: str, said: list[tuple[str, str]]) -> Path:
    path = home / "projects" / "p" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        Entry(
            f"{session}-{at}", None, "2026-03-01T00:00:00Z", session, kind, {"message": {"role": kind, "content": text}}
        )
        for at, (kind, text) in enumerate(said)
    ]
    with open(path, "ab") as file:
        file.write(b"".join(encode_entry(entry) + b"\n" for entry in entries))
    return path


@pytest.mark.requirement("R10")
def test_a_message_of_a_person_is_found_by_its_meaning_and_an_agents_by_its_words(
    tmp_path: Path, meanings: Meanings
) -> None:
    logged(tmp_path, "one", [(USER, "We never ship before noon."), (ASSISTANT, "Noted: no release before noon.")])
    with SessionSearch(tmp_path, embedder=meanings) as search:
        assert [hit.handle for hit in search.search("when do we deploy?")] == ["one-0"]
        assert {hit.handle for hit in search.search("noon")} == {"one-0", "one-1"}
        assert meanings.texts.count("We never ship before noon.") == 1
        assert not any("Noted" in text for text in meanings.texts)
    with SessionSearch(tmp_path) as search:
        assert search.search("when do we deploy?") == []


@pytest.mark.requirement("R10")
def test_vectors_follow_the_logs(tmp_path: Path, meanings: Meanings) -> None:
    with SessionSearch(tmp_path) as search:
        logged(tmp_path, "one", [(USER, "We never ship before noon.")])
        search.refresh()  # indexed before there was an embedder
    with SessionSearch(tmp_path, embedder=meanings) as search:
        assert [hit.handle for hit in search.search("when do we deploy?")] == ["one-0"]
        path = logged(tmp_path, "two", [(USER, "An espresso, please.")])
        assert [hit.handle for hit in search.search("coffee")] == ["two-0"]
        path.unlink()
        assert search.search("coffee") == []


@pytest.mark.requirement("R10")
def test_if_the_embedder_fails_past_sessions_are_searched_by_words(tmp_path: Path, meanings: Meanings) -> None:
    meanings.failure = ModelUnavailable("it is down")
    told: list[Event] = []
    logged(tmp_path, "one", [(USER, "We never ship before noon.")])
    with SessionSearch(tmp_path, embedder=meanings, listener=told.append) as search:
        assert [hit.handle for hit in search.search("ship")] == ["one-0"]
    assert all(isinstance(event, FellBack) and "it is down" in event.why for event in told)
    assert told


# -- the endpoint


class Endpoint(BaseHTTPRequestHandler):
    """Answers like OpenAI's ``/embeddings``, in another order than asked."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rows = [
            {"index": at, "embedding": [3.0 * len(text), 4.0 * len(text)]} for at, text in enumerate(asked["input"])
        ]
        is_right = self.path == "/v1/embeddings" and asked["model"] in ("small", "cut")
        self.send_response(200 if is_right else 404)
        if asked["model"] == "cut":
            self.send_header("content-length", "1000000")
        self.end_headers()
        self.wfile.write(json.dumps({"data": rows[::-1]} if is_right else {"error": {"message": "no"}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.requirement("R10")
def test_an_endpoint_gives_vectors_of_length_one_in_order(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = EndpointEmbedder(f"{endpoint}#small").vectors(["a", "bb"] * 40)
    assert len(found) == 80
    assert [round(value, 3) for value in found[0]] == [0.6, 0.8]
    with pytest.raises(ModelError, match="no"):
        EndpointEmbedder(f"{endpoint}#large").vectors(["a"])
    with pytest.raises(ModelError, match="IncompleteRead"):
        EndpointEmbedder(f"{endpoint}#cut").vectors(["a"])


class Crowded:
    """A model whose vectors all point nearly the same way, as those of some retrieval models do."""

    name = "crowded"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        self.calls.append(list(texts))
        return [unit([4.0, *(uniform(text, place) for place in range(200))]) for text in texts]


def uniform(text: str, place: int) -> float:
    return int(hex_of(f"{place} {text}".encode())[:8], 16) / 2**32 - 0.5


@pytest.mark.requirement("R10")
def test_unrelated_texts_are_unlike_whatever_their_cosine_is_in_the_model() -> None:
    model = Crowded()
    texts = [f"text {number}" for number in range(12)]
    bare = [likeness(one, other) for one, other in combinations(model.vectors(texts), 2)]
    centred = CentredEmbedder(model)
    first, *others = centred.vectors(texts)
    likenesses = [likeness(one, other) for one, other in combinations([first, *others], 2)]
    assert min(bare) > RecallPolicy().min_certainty  # without the centre every memory would be shown
    assert max(likenesses) < RecallPolicy().min_certainty
    assert centred.vectors(texts[:1]) == [first]
    assert [len(call) - 60 for call in model.calls[1:]] == [12, 1 - 60]  # the reference prompts are embedded once
    assert centred.name != model.name


class Intentions:
    """A model whose first dimension tells questions from other prompts, and whose others are three meanings."""

    name = "intentions"

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        return [unit([0.8 if "?" in text else -0.8, *Meanings().vectors([text])[0]]) for text in texts]


@pytest.mark.requirement("R10")
def test_a_general_question_shows_no_memory_by_its_meaning_alone(tmp_path: Path) -> None:
    model = CentredEmbedder(Intentions())
    memory = Memory(tmp_path, embedder=model)
    memory.save(RULE, type="feedback", why="the build has no network")
    memory.save("The espresso machine is on the second floor", type="project", why="people ask")
    work, question = model.vectors(["add a framework", "is a framework a library?"])
    assert model.specificity(work) > 0 > model.specificity(question)
    assert [one.description for one in memory.recall("add a framework")] == [RULE]
    assert memory.recall("is a framework a library?") == []
    assert memory.recall("is a framework a library?", everything=True)[0].description == RULE
    assert memory.recall("is it unittest, never pytest?")[0].description == RULE, "its words say so too"


@pytest.mark.requirement("R10")
def test_twin_an_embedder_that_cannot_tell_general_questions_shows_it(tmp_path: Path, meanings: Meanings) -> None:
    assert saved(tmp_path, meanings).recall("is a framework a library?")


@pytest.mark.requirement("R10")
def test_a_memory_is_certain_only_if_its_likeness_stands_out() -> None:
    def certain(**likenesses: float) -> list[str]:
        return [match.file for match in fused([], likenesses, 5) if is_certain(match, RecallPolicy())]

    assert certain(a=0.4, b=0.1) == ["a"]
    assert certain(a=0.4, b=0.35) == [], "two topics of the question, or one that all memories share"
    assert certain(a=0.4) == ["a"]
    [shown] = fused([], {"a": 0.4, "b": 0.35}, 5, without={"a"})
    assert (shown.certainty or 0) < 0.2, "a memory that is shown already is ahead of the next one"
    [_, second] = fused([], {"a": 0.9, "b": 0.6}, 5)
    assert not is_certain(second, RecallPolicy()), "the nearest memory is shown, and not what is only near it"


@pytest.mark.requirement("R10")
def test_a_prompt_about_own_work_needs_less_likeness_than_a_general_one() -> None:
    def shown(specificity: float) -> list[str]:
        found = fused([], {"a": 0.4, "b": 0.2}, 5, specificity=specificity)
        return [match.file for match in found if is_certain(match, RecallPolicy())]

    assert (shown(0.2), shown(0.0), shown(-0.2)) == (["a"], [], [])


@pytest.mark.requirement("R10")
def test_words_halve_the_certainty_that_a_memory_needs_and_decide_alone_without_vectors() -> None:
    words = Match("a", 1.0, ("x", "y", "z"), 2.0, ((3, 2.0, 0.8),))

    def shown(**likenesses: float) -> bool:
        return any(match.file == "a" and is_certain(match, RecallPolicy()) for match in fused([words], likenesses, 5))

    assert is_certain(words, RecallPolicy()), "there are no vectors"
    assert shown(b=0.5), "the memory has no vector"
    assert shown(a=0.2)
    assert not shown(a=0.2, b=0.5), "its meaning says that another memory is meant"


def test_an_embedder_that_is_named_is_centred(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert isinstance(open_embedder(f"{endpoint}#small"), CentredEmbedder)


def test_an_endpoint_that_does_not_answer_is_a_model_error() -> None:
    with pytest.raises(ModelError):
        EndpointEmbedder("http://127.0.0.1:9/v1#small", timeout_seconds=5).vectors(["a"])


@pytest.mark.parametrize("name", ["local:", "minilm", "local:/no/such/file.gguf"])
def test_a_name_that_is_no_embedder_says_how_to_write_one(name: str) -> None:
    with pytest.raises(ModelUnknown, match="gguf"):
        open_embedder(name)


# -- hooks


@pytest.mark.requirement("R10")
def test_a_hook_finds_by_the_saved_vectors_and_makes_none(
    tmp_path: Path, meanings: Meanings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "memory"
    saved(folder, meanings)
    meanings.texts.clear()
    monkeypatch.setattr("reverie.models.embedders.open_embedder", lambda name: meanings)
    read = MemoryReader(str(folder), None, query="which framework?", home=str(tmp_path), embedder="meanings")
    [found] = read.search("which framework?")
    assert found.likeness > 0.9
    assert meanings.texts == ["which framework?"]
    meanings.failure = ModelUnavailable("it is down")
    assert read.search("which framework?") == []


# -- repeated wishes in other words


def found_wishes(home: Path, embedder: Meanings) -> list[str]:
    """Return the quotes of wishes that two sessions repeat, as a process of its own finds them."""
    first = TypedMessage("s1", "m1", "From now on every release goes out on a Monday.", 1.0)
    second = TypedMessage("s2", "m2", "Please always ship it when the week begins.", 2.0)
    past = PastSayings([first], embed=ExtractionVectors(home, embedder).vectors)
    return [quote.text for wish in past.repeated([second]) for quote in wish.quotes]


@pytest.mark.requirement("L5.0")
def test_the_reference_sentences_of_extraction_are_embedded_once_for_a_home_and_model(tmp_path: Path) -> None:
    references = set(reference_sentences().all)
    first, second = Meanings(), Meanings()
    found = found_wishes(tmp_path, first)
    assert references <= set(first.texts)
    assert found_wishes(tmp_path, second) == found
    assert second.texts, "the messages themselves have vectors"
    assert references.isdisjoint(second.texts)
    other = Meanings()
    other.name = "another model"
    found_wishes(tmp_path, other)
    assert references <= set(other.texts), "another model's vectors are not used"


@pytest.mark.requirement("L5.0")
def test_damaged_reference_vectors_are_made_again_and_a_failed_embedder_leaves_none(tmp_path: Path) -> None:
    references, path = set(reference_sentences().all), tmp_path / FILE_NAME
    failing = Meanings()
    failing.failure = ModelUnavailable("no endpoint")
    assert found_wishes(tmp_path, failing) == []
    assert not path.exists()
    found_wishes(tmp_path, Meanings())
    whole = path.read_bytes()
    for damaged in (whole[:-4], whole[:100] + b"x" + whole[101:], whole[:64], b""):
        path.write_bytes(damaged)
        embedder = Meanings()
        found_wishes(tmp_path, embedder)
        assert references <= set(embedder.texts)
        assert path.read_bytes() == whole
