"""Prompts of an editor as content blocks of a message, and its MCP servers as settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AcpMcpServer,
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    HttpMcpServer,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    SseMcpServer,
    TextContentBlock,
    TextResourceContents,
)

from ...conversation.wire.blocks import text_block
from ...errors import InputError
from ...settings.records import McpServer
from ...values import record

PromptBlock: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
EditorServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")


@record
class EditorPrompt:
    """A prompt: its content blocks, its text alone, and the files that it names, to attach before it."""

    blocks: list[dict[str, Any]]
    text: str
    files: list[str]


def prompt_of(blocks: Sequence[PromptBlock]) -> EditorPrompt:
    """Return the blocks of an editor's prompt as content of a message; raise InputError for one that has no form."""
    content: list[dict[str, Any]] = []
    texts: list[str] = []
    files: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                texts.append(block.text)
                content.append(text_block(block.text))
            case ImageContentBlock():
                source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
                content.append({"type": "image", "source": source})
            case ResourceContentBlock():
                path = path_of(block.uri)
                files += [path] if path else []
                content.append(text_block(f"@{path or block.uri}"))
            case EmbeddedResourceContentBlock():
                content.append(text_block(_embedded(block)))
            case AudioContentBlock():
                raise InputError("audio is not supported: send text, images or files")
    if not any(one["type"] != "text" or one["text"].strip() for one in content):
        raise InputError("the prompt is empty: send text, an image or a file")
    return EditorPrompt(content, "\n".join(texts), files)


def _embedded(block: EmbeddedResourceContentBlock) -> str:
    found = block.resource
    if not isinstance(found, TextResourceContents):
        raise InputError(f"{found.uri} is no text: send an image as an image block, and another file by its link")
    return f"{path_of(found.uri) or found.uri}:\n```\n{found.text}\n```"


def path_of(uri: str) -> str:
    """Return the path of a file's URI; an empty text for any other URI."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""


def servers_of(given: Iterable[EditorServer]) -> Mapping[str, McpServer]:
    """Return an editor's MCP servers as settings; raise InputError for a kind that is not supported."""
    found: dict[str, McpServer] = {}
    for one in given:
        name = _FOREIGN.sub("-", one.name).strip("-") or f"server-{len(found) + 1}"
        match one:
            case McpServerStdio():
                variables = {variable.name: variable.value for variable in one.env}
                found[name] = McpServer(command=one.command, args=tuple(one.args), env=variables)
            case HttpMcpServer():
                found[name] = McpServer(url=one.url, headers={each.name: each.value for each in one.headers})
            case _:
                raise InputError(f"the MCP server {one.name!r} must use stdio or HTTP")
    return found
