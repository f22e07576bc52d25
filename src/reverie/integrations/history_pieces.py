"""Split a host's history into the pieces of a log: a message, a reply, the result of one tool call.

Hosts rebuild their messages before every call, and frameworks split, join and decorate them. So a piece is identified
by its content: cache marks, thinking and empty fields do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from hashlib import blake2b
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from ..conversation.entries import clean
from ..values import field, record

Block: TypeAlias = "dict[str, Any]"
T = TypeVar("T")
N = TypeVar("N")

_MARK: Final = "cache_control"
_NAME_LENGTH: Final = 16
_PLAIN: Final = (str, int, float, bytes)
THOUGHT: Final = frozenset({"thinking", "redacted_thinking"})
"""The types of blocks with a model's thinking, which only the provider that wrote them reads."""
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


@record
class HistoryPiece:
    """A message, a reply or one tool result of a host's history; ``key`` is the digest by which it is recognised.

    ``id`` is the call that a result answers. ``own`` is the host's form of the piece where the wire's form holds
    less; it is stored in the log. A piece with ``stands`` opens the conversation, as an instruction or the host's
    own summary does, and no compaction removes it.
    """

    kind: Literal["said", "reply", "result"]
    key: bytes
    content: str | list[Block]
    id: str = ""
    is_error: bool = False
    own: list[Any] = field(default_factory=lambda: [])
    stands: bool = False


def pieces_of(messages: Iterable[Mapping[str, Any]]) -> list[HistoryPiece]:
    """Return the pieces of messages in the wire's shape, results before text; replies in a row become one piece."""
    pieces: list[HistoryPiece] = []
    for message in messages:
        _read(message, pieces)
    return pieces


def _read(message: Mapping[str, Any], pieces: list[HistoryPiece]) -> None:
    content = message.get("content")
    own: list[Any] = message.get("own") or []
    if message.get("role") == "assistant":
        blocks = _blocks(content)
        if pieces and pieces[-1].kind == "reply":  # a host may send one reply in several messages
            last = pieces.pop()
            blocks, own = [*_blocks(last.content), *blocks], [*last.own, *own]
        pieces.append(HistoryPiece("reply", reply_key(blocks), blocks, own=own))
        return
    said: list[Block] = []
    for block in _blocks(content):
        if block.get("type") == "tool_result":
            pieces.append(_result(block))
        else:
            said.append(block)
    if said:
        kept = content if isinstance(content, str) else said
        pieces.append(HistoryPiece("said", message_key(said), kept, own=own, stands=message.get("stands") is True))


class HistoryReader:
    """Reads one host's history before every call, and each unchanged message only once."""

    def __init__(self) -> None:
        self._messages: list[Any] = []
        """Copies of the messages that were read, because a host may change its own in place."""
        self._ends: list[int] = []
        self._pieces: list[HistoryPiece] = []

    def pieces(self, messages: Iterable[Mapping[str, Any]]) -> list[HistoryPiece]:
        """Return the pieces of the whole history; messages that were read before give the same objects."""
        messages = list(messages)
        same = common_length(self._messages, messages)
        while same and not self._ends_a_piece(same - 1):
            same -= 1
        del self._messages[same:], self._ends[same:]
        del self._pieces[self._ends[-1] if same else 0 :]
        for message in messages[same:]:
            kept = detached(message)
            _read(kept, self._pieces)
            self._messages.append(kept)
            self._ends.append(len(self._pieces))
        return list(self._pieces)

    def _ends_a_piece(self, at: int) -> bool:
        """Return whether the message at an index added a piece that no later message can extend."""
        before = self._ends[at - 1] if at else 0
        return self._messages[at].get("role") != "assistant" and self._ends[at] > before


def common_length(known: Sequence[Any], given: Sequence[Any]) -> int:
    """Return how many leading items of two sequences are equal; 0 if the items cannot be compared."""
    try:
        if known == given[: len(known)]:  # the usual case: a history grows at its end
            return len(known)
        pairs = zip(known, given, strict=False)
        return next((at for at, (one, other) in enumerate(pairs) if one != other), len(given))
    except Exception:  # objects of a host may not be comparable: then nothing counts as equal
        return 0


def detached(value: Any) -> Any:
    """Return a deep copy of a value, with a new plain object in place of each object that cannot be copied."""
    if isinstance(value, dict):
        return {key: detached(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [detached(item) for item in cast("list[Any]", value)]
    if type(value) is tuple:
        return tuple(detached(item) for item in cast("tuple[Any, ...]", value))
    if value is None or isinstance(value, _PLAIN):
        return value
    try:
        return deepcopy(value)
    except Exception:  # an object that cannot be copied equals nothing
        return object()


def message_key(content: Any) -> bytes:
    """Return a digest of a message's content, without cache marks and fields that are None."""
    return _digest(["said", *(_bare(block) for block in _blocks(content))])


def reply_key(content: Any) -> bytes:
    """Return a digest of a reply's text, calls and other blocks, without thinking and cache marks."""
    words: list[str] = []
    rest: list[Any] = []
    for block in _blocks(content):
        kind = block.get("type")
        if kind == "text":
            words.append(str(block.get("text", "")).strip())
        elif kind == "tool_use":
            rest.append([block.get("id"), block.get("name"), block.get("input")])
        elif kind not in THOUGHT:
            rest.append(_bare(block))
    return _digest(["reply", "\n".join(filter(None, words)), rest])


def has_thought(blocks: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a reply has thinking; a session may leave it out because its provider would refuse it."""
    return any(block.get("type") in THOUGHT for block in blocks)


def is_text(content: Any) -> bool:
    """Return whether content is a text or has only text blocks."""
    return all(map(_is_text, block_list(content)))


def signatures(content: Any) -> list[str]:
    """Return the signatures of a reply's thinking, and the data of hidden thinking."""
    thoughts = (block for block in block_list(content) if block.get("type") in THOUGHT)
    return [str(one) for block in thoughts if (one := block.get("signature") or block.get("data"))]


def content_key(content: Any) -> bytes:
    """Return a digest of a result's content; a list of text blocks has the digest of the joined text."""
    if isinstance(content, Sequence) and not isinstance(content, (str, bytes)):
        blocks = cast("Sequence[Any]", content)
        if blocks and all(_is_text(block) for block in blocks):
            content = "\n".join(block["text"] for block in blocks)  # the same content as one text
        else:
            content = [_bare(block) for block in blocks]
    return _digest(content if content is not None else "")


def without_cache_marks(value: Any) -> Any:
    """Return a block, or a list of blocks, without the host's cache breakpoints."""
    if isinstance(value, list):
        given = cast("list[Any]", value)
        bared = [without_cache_marks(item) for item in given]
        return given if all(one is other for one, other in zip(bared, given, strict=True)) else bared
    if not isinstance(value, dict):
        return value
    fields = cast(Block, value)
    content = fields.get("content")
    bare = without_cache_marks(content) if isinstance(content, list) else content
    if _MARK not in fields and bare is content:
        return fields
    out = {key: item for key, item in fields.items() if key != _MARK}
    return {**out, "content": bare} if "content" in out else out


def _result(block: Block) -> HistoryPiece:
    content = without_cache_marks(block.get("content"))
    return HistoryPiece(
        "result",
        content_key(content),
        "" if content is None else content,
        str(block.get("tool_use_id", "")),
        block.get("is_error") is True,
    )


def block_list(content: Any) -> list[Block]:
    """Return content as a list of blocks; a text, and an item of a list that is no block, is a text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    items = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else ()
    return [cast(Block, one) if isinstance(one, dict) else {"type": "text", "text": str(one)} for one in items]


def _blocks(content: Any) -> list[Block]:
    return [cast(Block, without_cache_marks(block)) for block in block_list(content)]


def _is_text(block: Any) -> bool:
    fields = cast(Block, block) if isinstance(block, dict) else {}
    return fields.get("type") == "text" and isinstance(fields.get("text"), str)


def _bare(block: Any) -> Any:
    """Return a block, or a list of blocks, without cache marks and fields that are None, at every depth."""
    if isinstance(block, list):
        return [_bare(item) for item in cast("list[Any]", block)]
    if not isinstance(block, dict):
        return block
    return {key: _bare(value) for key, value in cast(Block, block).items() if key != _MARK and value is not None}


def _digest(value: Any) -> bytes:
    try:
        said = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        said = _encode(clean(value))
    return blake2b(said, digest_size=16).digest()


class ReplyIndex(Generic[T]):
    """Replies in the host's own form, found by their digest."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[T]] = {}

    def add(self, key: bytes, reply: T) -> None:
        """Add a reply after earlier ones with the same digest."""
        self._known.setdefault(key, []).append(reply)

    def drop(self, key: bytes) -> None:
        """Remove the last reply with this digest; raise if the digest is unknown."""
        self._known[key].pop()

    def found(self, keys: Sequence[bytes]) -> list[T | None]:
        """Return a list with the reply for each digest, None if unknown.

        A digest that occurs n times gets the last n replies with it, in order.
        """
        left = Counter(keys)
        found: list[T | None] = []
        for key in keys:
            known = self._known.get(key, [])
            found.append(known[-left[key]] if left[key] <= len(known) else None)
            left[key] -= 1
        return found


class HistoryTranslator(Generic[T, N]):
    """Translates a host's history to the wire's shape and back; of a grown history, only the new part.

    A subclass names the facts of a history that count in a comparison, and translates one message back to items.
    """

    def __init__(self) -> None:
        self._placeholders = Placeholders()
        self._replies: ReplyIndex[T] = ReplyIndex()
        self._told: list[Any] = []
        """Copies of the translated items, because a host may change its own in place; ``_wired`` are their messages."""
        self._wired: list[Block] = []
        self._sent: list[Block] = []
        """The wire messages that were translated back; ``_found`` are the items they gave."""
        self._found: list[list[N]] = []
        self._shown: Any = None

    def continues(self, history: Sequence[Any]) -> bool:
        """Return whether a history begins with the whole translated one."""
        return common_length(self._told, self._facts(history)) == len(self._told)

    def translated_back(self, sent: Sequence[Block], shown: Any = None) -> list[N]:
        """Return wire messages as the host's items; ``shown`` is all that their translation depends on beside them."""
        same = common_length(self._sent, sent) if shown == self._shown else 0
        self._shown = shown
        del self._sent[same:], self._found[same:]
        new = [(message, block_list(message["content"])) for message in sent[same:]]
        replies = iter(self._replies.found([reply_key(said) for one, said in new if one["role"] == "assistant"]))
        for message, content in new:
            is_reply = message["role"] == "assistant"
            self._found.append(self._reply_items(next(replies), content) if is_reply else self._user_items(content))
            self._sent.append(message)
        return [item for found in self._found for item in found]

    def _facts(self, history: Sequence[Any]) -> Sequence[Any]:
        return history

    def _reply_items(self, reply: T | None, content: list[Block]) -> list[N]:
        raise NotImplementedError

    def _user_items(self, content: list[Block]) -> list[N]:
        raise NotImplementedError


class Placeholders:
    """Texts that replace objects of the host, such as its images, in the log, and map back to them."""

    def __init__(self) -> None:
        self._things: dict[str, Any] = {}

    def block(self, kind: str, thing: Any, says: Any = None) -> Block:
        """Return a text block that replaces a host's object, and remember the object.

        The text names ``kind`` and a digest of ``says``, or of the object if ``says`` is None.
        """
        text = f"[{kind} {_digest(thing if says is None else says).hex()[:_NAME_LENGTH]}]"
        self._things[text] = thing
        return {"type": "text", "text": text}

    def thing(self, block: Mapping[str, Any]) -> Any:
        """Return the host's object for a placeholder block; None for any other block."""
        return self._things.get(str(block.get("text"))) if block.get("type") == "text" else None
