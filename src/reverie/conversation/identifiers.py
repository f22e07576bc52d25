"""Exact names in messages: paths, links, commit hashes, ids, tests, error lines, numbers from the user, symbols.

A text is split into words once and every distinct word is classified once (cached), so the cost is linear in the text
and repeated words are nearly free.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import filterfalse, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from .authorship import Utterance, strings_of, utterances
from .entries import Entry
from .tokens.estimate import estimate_text

Kind: TypeAlias = Literal["path", "url", "sha", "id", "test", "error", "number", "symbol"]


class Identifier(NamedTuple):
    """An exact name found in a text, such as a path or a commit hash, and its kind."""

    kind: Kind
    text: str


EXACT: Final[frozenset[Kind]] = frozenset({"path", "url", "sha", "id", "test", "error", "number"})
"""The kinds that cannot be paraphrased; symbols are not among them, since most can be found again in the code."""

STRUCK: Final = "[a name that is not in the log]"
_WORD: Final = re.compile(r"[\w./@+~:#%=&?$-]{3,}")
_GAPS: Final = {one: " " for one in range(128) if not _WORD.match(3 * chr(one))}
_MAX_WORD: Final = 256
_MAX_ERROR: Final = 200
_FRESH_CHARS: Final = 2_000  # of chosen names before they are joined to the text that has the others
_MISSES: Final = 32  # names that do not fit the budget before the search stops
_LINE_CHARS: Final = 800
_SCANNED: Final = 400_000  # characters of one text; of a longer text only both ends are scanned
_ENDINGS: Final = (
    "py pyi pyx ipynb js jsx mjs cjs ts tsx mts cts vue svelte go rs c h cc cpp cxx hpp hh cs java kt kts scala swift "
    "mm rb php pl lua jl exs erl hs mli clj dart zig nim pony sql sh bash zsh ps1 html htm css scss sass less xml svg "
    "json jsonl json5 yaml yml toml ini cfg conf lock md mdx rst txt log csv tsv tex bib proto graphql gradle cmake mk "
    "diff patch traj wasm pot jinja j2 tmpl png jpg jpeg gif webp pdf ico zip gz tar whl dll dylib exe db sqlite pem "
    "crt tf hcl nix bzl dcm"
)
_EXTENSIONS: Final = frozenset(_ENDINGS.split())
_PLAIN: Final = frozenset({"Makefile", "Dockerfile", "LICENSE", "README", "CHANGELOG", "Gemfile", "Rakefile", "go.mod"})
# Objects with a member that looks like a file extension: console.log, this.db.
_OBJECTS: Final = frozenset(
    ("console", "math", "Math", "np", "self", "this", "os", "e", "t", "logger", "process", "cls")
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,9}://[^\s\"'`<>()\[\]{}|\\^]{3,}")
_SHA: Final = re.compile(r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}\Z")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_TEST: Final = re.compile(r"(?:test_\w{2,}|\w{2,}_test|Test[A-Z]\w+|\w+Tests?|Benchmark[A-Z]\w+)\Z")
_SEGMENT: Final = re.compile(r"[\w.@+~#$%=&-]+\Z")
_PLACE: Final = re.compile(r"(?::\d+){1,2}:?\Z|#L\d+(?:-L?\d+)?\Z|(?<=[a-z])-\d+\Z")
_NUMBER: Final = re.compile(r"(?<![\w.-])(?:\d{4}-\d\d-\d\d|[#$€£]?\d[\d,._]*(?:\d(?:[a-zA-Z]{1,3}\b)?%?|%))(?![\w-])")
_SYMBOL: Final = re.compile(r"[A-Za-z_$][\w$]{3,47}\Z")
_HINT: Final = re.compile(
    "rror|xception:|Warning:|Fault:|FAIL|atal:|anic:|ERR!|not ok |not found|No such file or directory|egmentation fault"
    "|ermission denied"
)
_HINT_WORD: Final = re.compile(
    r"rror|xception:|Warning:|Fault:|FAIL|atal:|anic:|ERR|\bok\b|found|directory|fault|denied"
)
"""A word that every text with a hint has; the words that remain of a text are far fewer than its characters."""
_SIGNAL: Final = re.compile(
    r"(?<!\w)(?:[a-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Fault|Warning|Panic) ?:|\berror(?:\[\w+\]| TS\d+)?:"
    r"|\b[Ff]atal:|\bpanic:|\bFAIL(?:ED|:)|\bERR!|\bnot ok \d|command not found|No such file or directory"
    r"|[Ss]egmentation fault|[Pp]ermission denied|^AssertionError\b"
)
_CODE: Final = re.compile(
    r"\s*(?:\d+[→:\t|-]|[+-](?![-+])|#|//|\*|/\*|--(?!-)|\}|except\b|raise\b|throw\b|catch\b|return\b|if\b|else\b|case\b"
    r"|log\w*\.|print\w*\(|console\.|fmt\.|t\.\w+\(|assert\b|const\b|let\b|var\b|def\b|func\b|class\b|with\b|\w+ ?:?= )"
    r"|.*(?:[;{,(]|=>|[^)]:)\Z|.*(?:\$\{|%[vsdwq]\b|\bcatch\b|Errorf?\()"
)
_NAMELESS: Final = 65_536
_nameless: Final[set[str]] = set()
_LEAD: Final = re.compile(r"(?:E  +|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]?\s*|[>|]\s+)*")


class TextNames:
    """Search of a text for exact names; one that is a single word is looked for in the distinct words only."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._distinct = frozenset(_words(text))
        self._words = "\n".join(self._distinct)

    def __contains__(self, name: str) -> bool:
        return name in self._distinct or name in (self._words if _WORD.fullmatch(name) else self._text)


def mine(text: str, *, spoken: bool = False, errors: bool = True) -> Counter[Identifier]:
    """Return how often each exact name occurs in a text; numbers only if a person wrote it (``spoken``).

    With ``errors``, error lines are counted too. Of a text over 400,000 characters only both ends are scanned.
    """
    names, words = _parts(text, spoken=spoken, errors=errors)
    found = Counter(names)
    for word, count in Counter(words).items():
        for one in _names_in(word):
            found[one] += count
    return found


def struck_names(text: str, entries: Iterable[Entry]) -> tuple[str, int]:
    """Return a model's text with each exact name struck out that these entries lack, and the number of such names.

    A path counts as known if its last part is. Links, error lines and numbers are left alone: a model may rightly
    write them in another way.
    """
    found = [one.text for one in mine(text, errors=False) if one.kind in ("path", "sha", "id", "test")]
    logged = "\n".join(part for entry in entries for part in strings_of(entry.message)) if found else ""
    wrong = [name for name in found if name not in logged and name.rpartition("/")[2] not in logged]
    for name in sorted(wrong, key=len, reverse=True):
        text = re.sub(rf"(?<![\w/]){re.escape(name)}(?![\w/])", STRUCK, text)
    return text, len(wrong)


def mine_utterance(one: Utterance) -> Counter[Identifier]:
    """Return how often each exact name occurs in an utterance; for a tool call with an id, in its input's strings.

    The result is empty for a fenced command without an id, whose text is counted with the reply around it.
    """
    return mine_groups(((one,),))[0]


def mine_groups(groups: Iterable[Iterable[Utterance]]) -> tuple[Counter[Identifier], dict[Identifier, int]]:
    """Return how often each exact name occurs in groups of utterances, and the index of the last group that has it.

    Every distinct word is classified once, so many texts cost far less together than one by one.
    """
    counts: Counter[Identifier] = Counter()
    last: dict[Identifier, int] = {}
    spelled: Counter[str] = Counter()
    seen: dict[str, int] = {}
    for at, group in enumerate(groups):
        for one in group:
            if one.kind != "call":
                names, words = _parts(one.text, spoken=one.kind == "said", quoting=one.kind == "told")
            else:  # a fenced command without an id is part of a text that is counted already
                names, words = _parts("\n".join(strings_of(one.input)) if one.id else "", errors=False)
            counts.update(names)
            last.update(dict.fromkeys(names, at))
            spelled.update(words)
            seen.update(dict.fromkeys(words, at))
    for word, count in spelled.items():
        for name in _names_in(word):
            counts[name] += count
            last[name] = max(seen[word], last.get(name, 0))
    return counts, last


def mine_entries(entries: Iterable[Entry]) -> Counter[Identifier]:
    """Return how often each exact name occurs in these log entries together; only messages have names."""
    return mine_groups(map(utterances, entries))[0]


def _parts(
    text: str, *, spoken: bool = False, errors: bool = True, quoting: bool = False
) -> tuple[list[Identifier], list[str]]:
    """Return the error lines, links and numbers in a text, and the other words that may have names.

    With ``quoting``, error lines are only those that begin with the error itself, which excludes prose about errors.
    """
    names: list[Identifier] = []
    if len(text) > _SCANNED:
        text = f"{text[: _SCANNED // 2]}\n{text[-_SCANNED // 2 :]}"
    bare = text
    if "://" in text:
        names += (Identifier("url", url.rstrip(".,:;!?")[:_MAX_WORD]) for url in _URL.findall(text))
        bare = _URL.sub(" ", text)
    if spoken:
        names += (Identifier("number", number) for number in numbers(bare))
    words = list(filterfalse(_nameless.__contains__, _words(bare)))
    if errors and (bare is not text or not text.isascii() or _HINT_WORD.search("\n".join(words))):
        lines = (line for line in error_lines(text) if not quoting or _SIGNAL.match(line))
        names += (Identifier("error", line) for line in lines)
    return names, words


def _names_in(word: str) -> tuple[Identifier, ...]:
    """Return the exact names in a word, and remember a word without names and hints, to skip it in later texts."""
    found = classified(word) if len(word) <= _MAX_WORD else ()
    if not found and len(word) <= _MAX_WORD and not _HINT_WORD.search(word):
        if len(_nameless) >= _NAMELESS:
            _nameless.clear()
        _nameless.add(word)
    return found


def _words(text: str) -> list[str]:
    """Return the words of a text; those in other alphabets need the pattern, which takes twice as long."""
    return text.translate(_GAPS).split() if text.isascii() else _WORD.findall(text)


def best_identifiers(weights: Mapping[Identifier, float], budget_tokens: int, *, present: str = "") -> list[Identifier]:
    """Return a list of the names with the highest weight per length that fit the token budget, best first.

    Names without a positive weight, and names that occur in ``present`` or in a chosen name, are left out.
    """

    def worth(item: tuple[Identifier, float]) -> tuple[float, str]:
        return (-item[1] / (len(item[0].text) + 6), item[0].text)

    out: list[Identifier] = []
    left, covered, missed = budget_tokens, present, 0
    fresh = ""
    for identifier, weight in sorted(weights.items(), key=worth):
        text = identifier.text
        if weight <= 0.0 or text in fresh or text in covered:
            continue
        cost = estimate_text(text) + 1
        if cost > left:
            missed += 1
            if left < 8 or missed == _MISSES:
                break
            continue
        left -= cost
        out.append(identifier)
        fresh = f"{fresh}\n{text}"
        if len(fresh) > _FRESH_CHARS:  # the long text is copied seldom
            covered, fresh = f"{covered}{fresh}", ""
    return out


def numbers(text: str) -> Iterator[str]:
    """Yield the numbers and dates in a text as written; a single digit only if a percent sign follows."""
    for number in _NUMBER.findall(text):
        yield number.rstrip(".,_")


def error_lines(text: str) -> Iterator[str]:
    """Yield the error lines of a program's output, cut to 200 characters, without leading timestamps or marks."""
    end = -1
    while hint := _HINT.search(text, end + 1):
        at = hint.start()
        start = text.rfind("\n", max(0, at - _LINE_CHARS), at) + 1 or max(0, at - _LINE_CHARS)
        end = text.find("\n", at, at + _LINE_CHARS)
        end = end if end >= 0 else min(len(text), at + _LINE_CHARS)
        whole = text[start:end]
        lead = _LEAD.match(whole)
        line = (whole[lead.end() :] if lead else whole).strip()
        if len(line) >= 8 and not _CODE.match(line) and _SIGNAL.search(whole):
            yield line[:_MAX_ERROR].rstrip()


@lru_cache(maxsize=4_096)
def classified(word: str) -> tuple[Identifier, ...]:
    """Return a tuple of the exact names in one word, which is empty for most words."""
    word = word.rstrip(".,:;?&=%+/-")
    word = word.lstrip(",:;?&=%+-")
    if len(word) < 3:
        return ()
    if "/" in word or "::" in word:
        return tuple(_of_path(word))
    bare = _PLACE.sub("", word)
    if "=" in bare or "&" in bare:
        return tuple(one for part in re.split("[=&]+", bare) if len(part) > 2 for one in classified(part))
    if _is_file(bare):
        return (Identifier("path", bare),)
    if _UUID.match(word):
        return (Identifier("id", word),)
    if _SHA.match(word):
        return (Identifier("sha", word),)
    return tuple(one for part in re.split(r"[.:@]+", bare) if (one := _name(part)) is not None)


def _of_path(word: str) -> Iterator[Identifier]:
    """Yield the path, tests and symbols in one word, such as ``tests/a_test.py::TestA::test_b``."""
    path, *rest = word.split("::")
    for part in rest:
        name = _name(part)
        if name is not None:
            yield name
    for piece in re.split("[=:]", path):
        piece = _PLACE.sub("", piece)
        if _is_path(piece):
            yield Identifier("path", piece)
        elif "/" not in piece and len(piece) > 2:
            yield from classified(piece)


def _is_path(word: str) -> bool:
    if not word or word.startswith("//") or word.count("/") > 40 or _is_noise(word):
        return False
    rooted = word[0] in "/~."
    segments = [part for part in word.split("/") if part not in (".", "..", "~") and (part or not rooted)]
    if not segments or not all(map(_SEGMENT.match, segments)) or not any(map(str.isalpha, word)):
        return False
    return _is_file(segments[-1]) or (len(segments) > 1 if rooted else len(segments) > 2 or word[0] == "@")


def _is_noise(word: str) -> bool:
    """Say whether a word is more likely encoded data than a path."""
    if len(word) < 40 or "." in word or "_" in word or "-" in word:
        return False
    return "+" in word or (any(map(str.isupper, word)) and any(map(str.isdigit, word)))


def _is_file(name: str) -> bool:
    if name in _PLAIN:
        return True
    stem, dot, extension = name.rpartition(".")
    if not dot or not stem or stem in _OBJECTS:
        return False
    known = extension in _EXTENSIONS or (extension.isupper() and extension.lower() in _EXTENSIONS)
    return known and _SEGMENT.match(name) is not None


def _name(part: str) -> Identifier | None:
    part = part.strip("-$#%+~?")
    if not _SYMBOL.match(part):
        return None
    if _TEST.match(part):
        return Identifier("test", part)
    humps = sum(1 for before, after in pairwise(part) if before.islower() and after.isupper())
    return Identifier("symbol", part) if 0 < humps < 10 or "_" in part.strip("_") else None
