"""Content blocks as a provider accepts them; a block that is not allowed in its place becomes text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from ...arguments import check_type
from ...errors import InputError
from ..entries import Message, clean
from .documents import pdf_problem
from .images import GENERAL, base64_head, image_data, image_problem, media_in

Block = dict[str, Any]

STUB: Final = "[This tool call was interrupted; no result was recorded.]"
FAILED: Final = "[The tool failed without saying why.]"
IMAGE_GONE: Final = "[image]"
DOCUMENT_GONE: Final = "[PDF document]"
TEXT_CALL: Final = "reverie_text_"
"""The beginning of the id of a call that no request shows: a command in the text of a reply."""
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,256}\Z")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
_MEDIA: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SERVER_RESULTS: Final = frozenset(
    {
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "mcp_tool_result",
    }
)
_SERVER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_KEYS: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"type", "text", "citations"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context", "citations"}),
    "tool_use": frozenset({"type", "id", "name", "input", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "compaction": frozenset({"type", "content", "signature", "encrypted_content", "tool_changes"}),
    "mcp_tool_listing": frozenset({"type", "mcp_server_name", "tools"}),
    "fallback": frozenset({"type", "from", "to", "trigger"}),
    "server_tool_use": frozenset({"type", "id", "name", "input", "caller"}),
    "mcp_tool_use": frozenset({"type", "id", "name", "input", "server_name"}),
    **dict.fromkeys(_SERVER_RESULTS, frozenset({"type", "tool_use_id", "content", "caller"})),
    "mcp_tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}


def check_content(argument: str, given: object, *, may_be_empty: bool = True) -> None:
    """Raise ``InputError`` unless an argument is text or a list of content blocks."""
    if not may_be_empty and (not given or (isinstance(given, str) and not given.strip())):
        raise InputError(f"{argument} is empty: pass some text")
    check_type(argument, given, (str, list), "text or a list of content blocks")
    for item in cast("list[object]", given) if isinstance(given, list) else ():
        block = cast(Block, item) if isinstance(item, dict) else {}
        kind = block.get("type")
        if not isinstance(kind, str) or (kind == "text" and not isinstance(block.get("text"), str)):
            raise InputError(
                f"{argument} has an item that is no content block: pass text or a list of content blocks, such as "
                "{'type': 'text', 'text': '...'}"
            )
        if kind in ("image", "document") and not isinstance(block.get("source"), dict):
            raise InputError(f"{argument} has a block {kind!r} without a source: pass it as the Messages API takes it")


def text_block(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def placeholder(role: str) -> Block:
    """Return the text block that replaces the content of a message without any acceptable content."""
    return text_block("[no content]" if role == "assistant" else "[empty message]")


def result_stub(tool_use_id: str) -> Block:
    """Return an error result, the placeholder for a tool result that never arrived."""
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": STUB, "is_error": True}


def as_blocks(message: Message) -> list[Block]:
    """Return a message's content as a list of blocks; the message's own list unless the content is a string."""
    content = message["content"]
    return [text_block(content)] if isinstance(content, str) else content


def unmatched_result(block: Block) -> list[Block]:
    """Return a list of blocks for a tool result whose call is not in the view: a label, then its content."""
    said = f"[Result of an earlier tool call, {block['tool_use_id']}]"
    content = block.get("content") or ""
    if isinstance(content, str):
        return [text_block(f"{said}\n{content}".rstrip())]
    return [text_block(said), *(part if part["type"] != "tool_reference" else block_as_text(part) for part in content)]


def block_as_text(block: Any) -> Block:
    """Return a text block with the type and the JSON of a block that is not allowed in its place."""
    kind: Any = cast(Block, block).get("type") if isinstance(block, dict) else None
    label = kind if isinstance(kind, str) and kind.strip() else "unknown"
    return text_block(f"[{label} block] {_spelled(block)}")


def _spelled(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return msgspec.json.encode(clean(value)).decode()


def call_as_text(block: Block) -> Block:
    """Return a text block with the name, id and input of a tool call that is not allowed in its place."""
    return text_block(f"[Tool call {block['name']} {block['id']}] {_spelled(block['input'])}")


def has_thinking(message: Message) -> bool:
    """Say whether a message has a thinking block, readable or not."""
    return any(block["type"] in ("thinking", "redacted_thinking") for block in as_blocks(message))


def is_text_call(tool_use_id: str) -> bool:
    """Say whether a call is a command that the model gave as text, so that requests show its result as text too."""
    return tool_use_id.startswith(TEXT_CALL)


def result_as_text(block: Block) -> list[Block]:
    """Return the content of a tool result as blocks of a message of the user."""
    content: Any = block.get("content") or []
    return [text_block(content)] if isinstance(content, str) else cast("list[Block]", content)


def count_images(blocks: list[Block]) -> int:
    """Return the number of images in these blocks, including those inside tool results."""
    return sum(1 for number, _ in media_in(blocks) if number >= 0)


def accepted_message(message: Message, role: str) -> Message | None:
    """Return the message as a provider accepts it from this role; None if none of its content can be shown."""
    content = message.get("content")
    plain = len(message) == 2 and message.get("role") == role
    if isinstance(content, str):
        if not content or content.isspace():
            return None
        return message if plain else {"role": role, "content": content}
    if not isinstance(content, list):
        return None if content is None else {"role": role, "content": [block_as_text(content)]}
    blocks, same = _all_admitted(cast("list[Any]", content), _ADMISSIONS.get(role, _user_block))
    if not blocks:
        return None
    return message if same and plain else {"role": role, "content": blocks}


def _all_admitted(given: list[Any], admit: Callable[[Block], Block | None]) -> tuple[list[Block], bool]:
    """Return the accepted blocks, and whether all blocks were accepted unchanged."""
    blocks: list[Block] = []
    same = True
    for block in given:
        if not isinstance(block, dict):
            kept = _bare(block)
        else:
            found = cast(Block, block)
            kept = _text(found, admit is _assistant_block) if found.get("type") == "text" else admit(found)
        same = same and kept is block
        if kept is not None:
            blocks.append(kept)
    return blocks, same


def _user_block(found: Block) -> Block | None:
    match found.get("type"):
        case "tool_result":
            return _tool_result(found)
        case "image" | "document":
            return _media(found)
        case "thinking" | "redacted_thinking":
            return None
        case _:
            return block_as_text(found)


def _system_block(found: Block) -> Block | None:
    """Return a block of a system message that a session wrote itself."""
    return found if found.get("type") in ("tool_addition", "tool_removal") else _user_block(found)


def _compaction(found: Block) -> Block:
    """Return a provider's summary as it came, without keys that a client may have added."""
    content, signature = found.get("content"), found.get("signature")
    signed = signature is None or (isinstance(signature, str) and content is not None)
    right = signed and (content is None or (isinstance(content, str) and content))
    return _trimmed(found) if right and "content" in found else block_as_text(found)


def is_signed_summary(block: Any) -> bool:
    """Say whether a block is a summary that a provider wrote and signed."""
    if not isinstance(block, dict):
        return False
    found = cast(Block, block)
    signature, content = found.get("signature"), found.get("content")
    named = found.get("type") == "compaction"
    return named and isinstance(signature, str) and isinstance(content, str) and bool(signature and content)


def summary_as_text(block: Any) -> Any:
    """Return the words of a signed summary as a text block; any other block as it is."""
    if not is_signed_summary(block):
        return block
    return text_block(f"[Summary of the conversation so far]\n{block.get('content')}")


def edit_block(tool_use_ids: list[str]) -> Block | None:
    """Return the block that deletes these results from the provider's cache, or None if no id is valid."""
    named = [called for called in tool_use_ids if _ID.match(called)]
    return {"type": "cache_edits", "tool_use_ids": named} if named else None


def _assistant_block(found: Block) -> Block | None:
    match found.get("type"):
        case "tool_use":
            return _tool_use(found)
        case "thinking":
            signed = isinstance(found.get("thinking"), str) and isinstance(found.get("signature"), str)
            return _trimmed(found) if signed and found["signature"] else None
        case "redacted_thinking":
            data = found.get("data")
            return _trimmed(found) if isinstance(data, str) and data else None
        case "compaction":
            return _compaction(found)
        case "mcp_tool_listing" if isinstance(found.get("tools"), list) and isinstance(
            found.get("mcp_server_name"), str
        ):
            return _trimmed(found)
        case "fallback" if isinstance(found.get("to"), dict):
            return _trimmed(found)
        case str(kind) if kind in _SERVER_USES or kind in _SERVER_RESULTS:
            return _server_block(found, kind)
        case _:
            return block_as_text(found)


_ADMISSIONS: Final = {"assistant": _assistant_block, "system": _system_block}


def _server_block(found: Block, kind: str) -> Block:
    """Return a call that the provider runs, or its result; as text if a provider would reject it."""
    if kind in _SERVER_USES:
        fits = _well_called(found) and (kind != "mcp_tool_use" or isinstance(found.get("server_name"), str))
    else:
        answered = found.get("tool_use_id")
        fits = isinstance(answered, str) and _ID.match(answered) is not None and "content" in found
    return _trimmed(found) if fits else block_as_text(found)


def paired_server_tools(blocks: list[Block], last: bool) -> list[Block]:
    """Return an assistant message's blocks; provider-run calls and results without a counterpart become text.

    With ``last`` (the conversation's last message), a call at its end may still wait for its result.
    """
    answered = {block["tool_use_id"] for block in blocks if block["type"] in _SERVER_RESULTS}
    called: set[str] = set()
    settled: set[str] = set()
    out: list[Block] = []
    for position, block in enumerate(blocks):
        kind = block["type"]
        if kind in _SERVER_USES:
            waiting = last and position == len(blocks) - 1
            fresh = block["id"] not in called
            called.add(block["id"])
            out.append(block if fresh and (block["id"] in answered or waiting) else block_as_text(block))
        elif kind in _SERVER_RESULTS:
            fits = block["tool_use_id"] in called and block["tool_use_id"] not in settled
            settled.add(block["tool_use_id"])
            out.append(block if fits else block_as_text(block))
        else:
            out.append(block)
    return out


def has_server_tools(blocks: list[Block]) -> bool:
    """Say whether the blocks include calls that the provider runs itself, or results of these calls."""
    return any(block["type"] in _SERVER_USES or block["type"] in _SERVER_RESULTS for block in blocks)


def _bare(value: Any) -> Block | None:
    if isinstance(value, str):
        return text_block(value) if value.strip() else None
    return block_as_text(value)


def _trimmed(block: Block) -> Block:
    """Return the block without keys that the provider rejects; the same object if there are none."""
    allowed = _KEYS[block["type"]]
    if allowed.issuperset(block):
        return block
    return {key: value for key, value in block.items() if key in allowed}


def _text(block: Block, cites: bool) -> Block | None:
    """Return a text block; ``cites`` means that it may have citations, which a provider takes from replies only."""
    text = block.get("text")
    if not isinstance(text, str):
        return block_as_text(block)
    if not text or text.isspace():
        return None
    citations = block.get("citations")
    if citations is not None and not (cites and isinstance(citations, list)):
        return text_block(text)
    return _trimmed(block)


def _well_called(block: Block) -> bool:
    called, name = block.get("id"), block.get("name")
    return (
        isinstance(called, str)
        and isinstance(name, str)
        and isinstance(block.get("input"), dict)
        and _ID.match(called) is not None
        and _NAME.match(name) is not None
    )


def _tool_use(block: Block) -> Block:
    return _trimmed(block) if _well_called(block) else block_as_text(block)


def _tool_result(block: Block) -> Block:
    answered = block.get("tool_use_id")
    if not (isinstance(answered, str) and _ID.match(answered)):
        return block_as_text(block)
    fixed = _trimmed(block)
    if not isinstance(block.get("is_error", False), bool):
        fixed = {**fixed, "is_error": bool(block["is_error"])}
    return _result_content(fixed) if not fixed.get("is_error") else _failed(_result_content(fixed))


def _failed(block: Block) -> Block:
    """Return an error result that a provider accepts: non-empty text only, else without its error flag."""
    content = block.get("content")
    if not content or (isinstance(content, str) and content.isspace()):
        return {**block, "content": FAILED}
    if isinstance(content, str) or all(part["type"] == "text" for part in cast("list[Block]", content)):
        return block
    return {key: value for key, value in block.items() if key != "is_error"}


def _result_content(fixed: Block) -> Block:
    content = fixed.get("content")
    if content is None or isinstance(content, str):
        return fixed
    if not isinstance(content, list):
        return {**fixed, "content": block_as_text(content)["text"]}
    parts, same = _all_admitted(cast("list[Any]", content), _result_part)
    return fixed if same else {**fixed, "content": parts}


def _result_part(found: Block) -> Block:
    return _media(found) if found.get("type") in ("image", "document") else block_as_text(found)


def _media(block: Block) -> Block:
    """Return an image or document if the provider can read its source, else a short text block."""
    kind = block["type"]
    source = block.get("source")
    if not isinstance(source, dict) or not _readable(cast(Block, source), kind):
        return text_block(f"[{kind}]")
    if kind == "image":
        return _sendable(_trimmed(block))
    problem = pdf_problem(block)
    return _trimmed(block) if problem is None else text_block(f"[document that cannot be sent: {problem}]")


def _sendable(image: Block) -> Block:
    """Return an image with the type that its bytes have; a text block if no provider would accept it."""
    given = image_data(image)
    head = None if given is None else base64_head(given[0])
    if given is not None and head is not None and head.media_type != given[1]:
        image = {**image, "source": {**image["source"], "media_type": head.media_type}}
    problem = image_problem(image, GENERAL, many=False)
    return image if problem is None else text_block(f"[image that cannot be sent: {problem}]")


def _readable(source: Block, kind: str) -> bool:
    match source.get("type"):
        case "base64":
            data, media = source.get("data"), source.get("media_type")
            right = media in _MEDIA if kind == "image" else media == "application/pdf"
            return right and isinstance(data, str) and bool(data) and set(source) == {"type", "data", "media_type"}
        case "url":
            url = source.get("url")
            return isinstance(url, str) and url.startswith(("https://", "http://")) and set(source) == {"type", "url"}
        case "file":
            file = source.get("file_id")
            return isinstance(file, str) and bool(file) and set(source) == {"type", "file_id"}
        case "text" if kind == "document":
            data = source.get("data")
            plain = source.get("media_type") == "text/plain" and set(source) == {"type", "data", "media_type"}
            return plain and isinstance(data, str) and bool(data.strip())
        case _:
            return False
