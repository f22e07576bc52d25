"""Claude Code sessions: one JSON line per block, chained by ``parentUuid``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..conversation.entries import ASSISTANT, ATTACHMENT, SYSTEM, USER
from ..values import object_of, record, rows_of
from . import claude_requests
from .chains import STRAY, Branch, Node, newest_branch, replies_together
from .foreign_values import Record, as_count, as_list, as_number, as_text
from .import_result import ImportedSession, RecordSource, SessionDraft, plain, sound_content

NAME: Final = "claude-code"

_SPEAKING: Final = frozenset({"user", "assistant", "attachment", "system"})
_BOOKKEEPING: Final = frozenset(
    {
        "progress", "file-history-snapshot", "queue-operation", "summary", "custom-title", "ai-title", "last-prompt",
        "agent-name", "agent-color", "agent-setting", "tag", "mode", "permission-mode", "pr-link", "worktree-state",
        "attribution-snapshot", "content-replacement", "task-summary", "speculation-accept", "started", "result",
        "atis-latch", "tools-used",
    }
) | claude_requests.RECORDS  # fmt: skip
_UNSENT: Final = frozenset({"prompt_snapshot", "hook_success", "hook_progress", "hook_cancelled"})
"""Attachments that the model does not see: the prompt is outside the messages, a hook's output in other records."""
_SILENT: Final = frozenset({"turn_duration", "stop_hook_summary", "hook_progress", "file_snapshot", "agents_killed"})
_MOST_SESSIONS: Final = 50
_SYNTHETIC: Final = "<synthetic>"
_TOKENS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


@record
class TranscriptLine:
    """A record of the file with its node in the tree, its side chain and its session."""

    row: Record
    node: Node
    side: str
    session: str


def looks(row: Record) -> bool:
    """Return whether a record is a line of a Claude Code session."""
    kind = as_text(row.get("type"))
    if kind in _SPEAKING or kind == "progress":
        of_qwen = "systemPayload" in row or "parts" in object_of(row.get("message"))  # its chats have the same outline
        return "parentUuid" in row and ("sessionId" in row or "uuid" in row) and not of_qwen
    if kind == "summary":
        return "leafUuid" in row
    if kind == "file-history-snapshot":
        return "snapshot" in row
    return kind in _BOOKKEEPING and "sessionId" in row


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list of sessions: the main conversation, then other sessions and side chains in the same file."""
    lines, first = _lines(source)
    requests = claude_requests.requests_in(source.rows)
    in_file = {line.node.uuid for line in lines}
    out: list[ImportedSession] = []
    groups: dict[str, list[TranscriptLine]] = {}
    for line in lines:
        groups.setdefault(line.side, []).append(line)
    main = groups.pop("", [])
    while main:
        branch = newest_branch([line.node for line in main])
        kept = {node.uuid for node in branch.kept}
        mine = {line.session for line in main if line.node.uuid in kept}
        others = [line for line in main if line.session not in mine]
        if len(out) + 1 >= _MOST_SESSIONS or not any(line.node.speaks for line in others):
            others = []
        left = {line.node.uuid for line in others}
        out.append(_session(source, main, branch, requests, first if not out else None, left, in_file))
        main = others
    for side, group in groups.items():
        branch = newest_branch([line.node for line in group])
        if branch.kept:
            out.append(_session(source, group, branch, requests, first if not out else None, set(), in_file, side))
    if not out:
        first.session_id = first.session_id or source.stem
        out.append(first.done(source.damage))
    return out


def _lines(source: RecordSource) -> tuple[list[TranscriptLine], SessionDraft]:
    """Return the lines that have an id, and a draft with the title and the counts of skipped records."""
    first = SessionDraft(NAME, "", source)
    lines: dict[str, TranscriptLine] = {}
    settled: set[str] = set()  # the lines that stand behind all of their ancestors
    session = ""
    side_of: dict[str, str] = {}
    titles: dict[str, str] = {}
    usual = next((id for row in source.rows if (id := as_text(row.get("sessionId")))), source.stem)
    for row in source.rows:
        kind, uuid = as_text(row.get("type")), as_text(row.get("uuid"))
        _note_title(row, kind, titles)
        if kind not in _SPEAKING:
            first.skip(f"bookkeeping: {kind}" if kind in _BOOKKEEPING else f"unknown type: {kind[:40]}")
        if not uuid:
            if kind in _SPEAKING:
                first.skip("message without an id")
            continue
        if uuid in lines:
            first.skip("repeated line")
            if uuid in settled:
                continue
            del lines[uuid]  # a damaged file: the later place may be behind its parent
        node = _node(row, kind, uuid)
        side = ""
        if row.get("isSidechain") is True:
            parent = side_of.get(node.parent or "")
            side = as_text(row.get("agentId")) or parent or uuid[:8]
            side_of[uuid] = side
        if node.parent in (None, STRAY) or node.parent in settled:
            settled.add(uuid)
        session = as_text(row.get("sessionId")) or session or usual
        lines[uuid] = TranscriptLine(row, node, side, session)
    recorded = [title for leaf, title in titles.items() if leaf in lines]
    first.title = titles.get("custom-title") or titles.get("ai-title") or (recorded[-1] if recorded else "")
    return list(lines.values()), first


def _note_title(row: Record, kind: str, titles: dict[str, str]) -> None:
    if kind == "summary":
        titles[as_text(row.get("leafUuid"))] = as_text(row.get("summary"))
    elif kind in ("custom-title", "ai-title"):
        titles[kind] = as_text(row.get("customTitle")) or as_text(row.get("aiTitle")) or as_text(row.get("title"))


def _node(row: Record, kind: str, uuid: str) -> Node:
    parent = as_text(row.get("parentUuid")) or as_text(row.get("logicalParentUuid")) or None
    if parent is None and not as_text(row.get("sessionId")):
        parent = STRAY  # Claude Code names the session in every line: this is no new beginning of it
    message = object_of(row.get("message"))
    blocks = rows_of(message.get("content"))
    reply, uses, answers = "", (), ()
    if kind == "assistant" and not _synthetic(row, message):
        reply = as_text(message.get("id"))
        uses = tuple(as_text(block.get("id")) for block in blocks if block.get("type") == "tool_use")
    elif kind == "user":
        answers = tuple(as_text(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result")
    boundary = row.get("subtype") == "compact_boundary" or row.get("isCompactSummary") is True
    preserved = as_text(object_of(object_of(row.get("compactMetadata")).get("preservedSegment")).get("tailUuid"))
    return Node(uuid, parent, kind in _SPEAKING, reply, uses, answers, kind == "attachment", boundary, preserved)


def _synthetic(row: Record, message: Record) -> bool:
    return message.get("model") == _SYNTHETIC or row.get("isApiErrorMessage") is True


def _session(
    source: RecordSource,
    lines: Sequence[TranscriptLine],
    branch: Branch,
    requests: claude_requests.RecordedRequests,
    first: SessionDraft | None,
    left: set[str],
    in_file: set[str],
    side: str = "",
) -> ImportedSession:
    by_uuid = {line.node.uuid: line for line in lines}
    kept = [by_uuid[node.uuid] for node in replies_together(branch.kept)]
    session = next((line.session for line in reversed(kept) if line.session), "") or source.stem
    draft = SessionDraft(NAME, f"{session}.agent-{side}" if side else session, source)
    if first is not None:
        draft.skipped, draft.title = first.skipped, first.title
    draft.agent = side or None
    draft.cwd = next((cwd for line in kept if (cwd := as_text(line.row.get("cwd")))), "")
    for node in branch.abandoned:
        if node.uuid not in left:
            draft.abandon(node.uuid)
    for _ in branch.bridged:
        draft.skip("lost parent (joined to the message before it)")
    draft.begins_late = branch.lacks_root(in_file)
    summaries = _summaries(kept)
    taken = {summary.node.uuid for summary in summaries.values() if summary is not None}
    for line in kept:
        if line.node.uuid not in taken:
            _emit(draft, line, summaries)
    _add_requests(draft, kept, requests)
    if first is not None:
        draft.bill = claude_requests.bill_in(source.rows)
    return draft.done(source.damage if first is not None else ())


def _summaries(kept: Sequence[TranscriptLine]) -> dict[str, TranscriptLine | None]:
    """Return the line with the summary by compaction boundary; None if none comes before the model's next reply."""
    found: dict[str, TranscriptLine | None] = {}
    open_boundary = ""
    for line in kept:
        if line.row.get("subtype") == "compact_boundary":
            open_boundary = line.node.uuid
            found[open_boundary] = None
        elif line.node.reply:
            open_boundary = ""
        elif open_boundary and line.row.get("isCompactSummary") is True:
            found[open_boundary] = line
            open_boundary = ""
    return found


def _emit(draft: SessionDraft, line: TranscriptLine, summaries: dict[str, TranscriptLine | None]) -> None:
    row, uuid = line.row, line.node.uuid
    kind, time = as_text(row.get("type")), as_text(row.get("timestamp"))
    if kind == "system":
        _emit_system(draft, line, summaries, time)
    elif kind == "attachment":
        attachment, content = object_of(row.get("attachment")), _attached(row)
        name = as_text(attachment.get("type"))
        if name == "prompt_snapshot":
            draft.skip("bookkeeping: prompt_snapshot")
            return
        body: Record = {"attachment": {"type": name} if "rendered" in row else attachment}
        if content:
            body["message"] = {"role": "user", "content": content}
        draft.add(ATTACHMENT, body, time, uuid)
    elif kind == "assistant":
        _emit_reply(draft, line, time)
    elif row.get("isCompactSummary") is True:
        _emit_compacted(draft, line, line, time)
    else:
        content = sound_content(object_of(row.get("message")).get("content"))
        if content is None:
            draft.skip("message without content")
            return
        stored = as_text(object_of(row.get("toolUseResult")).get("persistedOutputPath")).replace("\\", "/")
        if stored and len(line.node.answers) == 1:
            draft.stored_results[stored.rsplit("/", 1)[-1]] = line.node.answers[0]
        more: Record = {"meta": True} if row.get("isMeta") is True else {}
        draft.say(USER, "user", content, time, uuid, **more)


def _emit_reply(draft: SessionDraft, line: TranscriptLine, time: str) -> None:
    row = line.row
    message = object_of(row.get("message"))
    content = sound_content(message.get("content"))
    if _synthetic(row, message):
        body: Record = {"subtype": "synthetic", "text": plain(content), "error": row.get("isApiErrorMessage") is True}
        draft.add(SYSTEM, body, time, line.node.uuid)
        return
    if content is None:
        draft.skip("message without content")
        return
    reply = draft.reply(
        as_text(message.get("id")) or line.node.uuid,
        model=as_text(message.get("model")),
        usage=_sound_usage(message.get("usage")),
        stop_reason=as_text(message.get("stop_reason")),
        request_id=as_text(row.get("requestId")),
    )
    draft.say(ASSISTANT, "assistant", content, time, line.node.uuid, reply=reply)
    draft.spend(as_number(row.get("costUSD")))


def _sound_usage(usage: Any) -> Record | None:
    """Return the usage as it was reported; None if a count is invalid or all are zero."""
    counts = object_of(usage)
    given = [counts[name] for name in _TOKENS if counts.get(name) is not None]
    if not any(given) or any(as_count(count) != count for count in given):
        return None
    return counts


def _emit_system(
    draft: SessionDraft, line: TranscriptLine, summaries: dict[str, TranscriptLine | None], time: str
) -> None:
    subtype = as_text(line.row.get("subtype"))
    if subtype == "compact_boundary":
        summary = summaries.get(line.node.uuid)
        if summary is not None and _summary_text(summary):
            _emit_compacted(draft, line, summary, time)
            return
        draft.skip("compaction without a readable summary")
    text = as_text(line.row.get("content"))
    if subtype in _SILENT or not text:
        draft.skip(f"bookkeeping: {subtype or 'system'}"[:60])
        return
    draft.add(SYSTEM, {"subtype": subtype, "text": text}, time, line.node.uuid)


def _summary_text(line: TranscriptLine) -> str:
    return plain(object_of(line.row.get("message")).get("content"))


def _emit_compacted(draft: SessionDraft, boundary: TranscriptLine, summary: TranscriptLine, time: str) -> None:
    text = _summary_text(summary)
    if not text:
        draft.skip("compaction without a readable summary")
        return
    said = object_of(boundary.row.get("compactMetadata"))
    segment = object_of(said.get("preservedSegment"))
    head = as_text(segment.get("headUuid")) or as_text(segment.get("head"))
    known = {entry.uuid for entry in draft.entries if entry.message is not None}
    draft.compacted(
        "Claude Code",
        text,
        time,
        (boundary is summary and boundary.node.parent) or boundary.node.uuid,  # the boundary's, also if it is damaged
        manual=said.get("trigger") == "manual",
        tokens_before=as_count(said.get("preTokens")),
        first_kept=head if head in known else None,
    )


def _attached(row: Record) -> str | list[Record]:
    """Return the text of an attachment as the host sent it, in an older file its first text field; else nothing."""
    if "rendered" in row:
        texts = [plain(one.get("content")) for one in rows_of(row["rendered"])]
        return [{"type": "text", "text": text} for text in texts if text.strip()]
    attachment = object_of(row.get("attachment"))
    if as_text(attachment.get("type")) in _UNSENT:
        return ""
    for name in ("content", "prompt", "snippet", "stdout"):
        value = attachment.get(name)
        inner = object_of(value)
        text = plain(value) or as_text(object_of(inner.get("file")).get("content")) or as_text(inner.get("content"))
        text = text or "\n".join(item for item in as_list(value) if isinstance(item, str))
        if text.strip():
            path = as_text(attachment.get("filename")) or as_text(attachment.get("path"))
            return f"{path}:\n{text}" if path else text
    return ""


def _add_requests(draft: SessionDraft, kept: Sequence[TranscriptLine], found: claude_requests.RecordedRequests) -> None:
    """Add the exact prompt, tools and messages of the newest recorded call to a session."""
    request, newest = "", 0
    for place, line in enumerate(kept):
        if named := as_text(line.row.get("requestRef")):
            request, newest = (named, place) if named != request else (request, newest)
    if not request:
        return
    draft.system, draft.tools = found.shape_of(request)
    said = list(_said(kept))
    sent = found.messages_of(request, (message for _, message in said))
    if sent is not None:
        draft.window = [*sent, *(message for place, message in said if place >= newest)]


def _said(kept: Sequence[TranscriptLine]) -> Iterator[tuple[int, Record]]:
    """Yield the messages of a conversation as they are sent, with the place of the first line of each.

    The pieces of a reply are one message, and so are the results that follow each other.
    """
    open_as, blocks = "", list[Any]()
    for place, line in enumerate(kept):
        content = object_of(line.row.get("message")).get("content")
        if line.row.get("type") not in ("user", "assistant") or not content:
            continue
        joins = line.node.reply or ("results" if line.node.answers else "")
        if joins and joins == open_as:
            blocks.extend(as_list(content))
            continue
        open_as, blocks = joins, list(as_list(content))
        role = "assistant" if line.node.reply else "user"
        yield place, {"role": role, "content": blocks if joins else content}
