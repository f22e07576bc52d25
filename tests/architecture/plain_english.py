"""Find sentences in the old voice: hidden subjects, passive "stands" and "is told", and "one line a call".

Run it for a list: ``python tests/architecture/plain_english.py [FILE OR FOLDER ...]``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"

COUNTED = "call|command|day|file|job|line|memory|message|model|note|piece|policy|project|run|session|setting|tool|turn"
BETWEEN = "as|at|by|for|from|in|into|is|of|on|or|per|to|under|with"
OLD_VOICE = re.compile(
    r"\b(?:what|whatever|whoever|whom)\b"
    r"|(?:^|[,;:(]\s|\b(?:and|by|for|from|knows?|of|on|or|says?|see|tells?|that|to|with)\s)who\b"
    r"|\b(?:nobody|somebody)\b"
    r"|\b(?:stands|stood)\b|\bstand (?:in|there|for|before|beside)\b"
    r"|\b(?:is|are|was|were|be) told\b"
    r"|\b(?:take|takes|taken|took) back\b|\btaking back\b"
    r"|\breckon\w*\b|\bthe house\b"
    rf"|\b(?:one|two|three|an?|\d+) (?!(?:{BETWEEN}) )\w+ an? (?:{COUNTED})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sentence:
    """One sentence of the source: where it is, which kind of text it belongs to, and its words."""

    path: Path
    line: int
    kind: str
    text: str


def sentences(text: str) -> list[str]:
    """Split a text into sentences and clauses."""
    return [part for part in re.split(r"(?<=[.;:!?])\s+|\n\s*\n", text) if part.strip()]


def is_old(sentence: str) -> bool:
    """Say whether a sentence is in the old voice; a question is not, and neither is quoted code."""
    plain = re.sub(r"``[^`]*``|`[^`]*`|\"[^\"]*\"|'[^' ]*'", " ", " ".join(sentence.split()))
    return not plain.rstrip(" )\"'").endswith("?") and OLD_VOICE.search(plain) is not None


def texts_of(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield every docstring, error text, other string with a space, and comment of a module; or the prose of a page."""
    source = path.read_text()
    if path.suffix == ".md":
        yield from _blocks(source)
        return
    nodes = list(ast.walk(ast.parse(source)))
    raised = {
        id(part)
        for node in nodes
        if isinstance(node, ast.Raise) and node.exc is not None
        for part in ast.walk(node.exc)
    }
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            words = node.value
        else:
            continue
        if " " in words:
            kind = "docstring" if id(node) in bare else "error" if id(node) in raised else "string"
            yield node.lineno, kind, words
    yield from _comments(source)


def _blocks(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield paragraphs, items of lists and cells of tables of a Markdown page, without its blocks of code."""
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), source, flags=re.MULTILINE | re.DOTALL)
    for block in re.finditer(r"(?:^.*\S.*\n?)(?:^(?! *[-*|#]| *\d+\. ).*\S.*\n?)*", prose, flags=re.MULTILINE):
        line = prose.count("\n", 0, block.start()) + 1
        for cell in re.split(r"\s\|\s", block[0].strip("| \n")):
            yield line, "text", re.sub(r"\]\([^)]*\)", "]", cell)


def _comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield comments, those of neighbouring lines joined."""
    block: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = not token.line[: token.start[1]].strip()
        if block and alone and token.start[0] == start + len(block):
            block.append(token.string.lstrip("# "))
            continue
        if block:
            yield start, "comment", "\n".join(block)
        block, start = [token.string.lstrip("# ")], token.start[0]
    if block:
        yield start, "comment", "\n".join(block)


def old_sentences(*places: Path) -> list[Sentence]:
    """Return every sentence in the old voice in these files, and in the modules of these folders."""
    paths = sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py")))
    return [
        Sentence(path, line, kind, " ".join(sentence.split()))
        for path in paths
        for line, kind, text in texts_of(path)
        for sentence in sentences(text)
        if is_old(sentence)
    ]


if __name__ == "__main__":
    found = old_sentences(*(map(Path, sys.argv[1:]) if sys.argv[1:] else [SOURCE]))
    for one in found:
        print(f"{one.path}:{one.line}: {one.kind}: {one.text}")
    print(len(found))
