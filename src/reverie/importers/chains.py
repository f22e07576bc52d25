"""Follow a conversation tree from its newest leaf to its root and keep parallel pieces.

Claude Code writes one reply as several lines, each the parent of the next, and makes the line of a call the parent of
its result. A plain walk from the newest leaf finds one of several parallel results and loses the others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ..values import record

STRAY: Final = "(stray)"
"""The parent of a line that names neither a parent nor a session: it keeps its position in the file."""


@record
class Node:
    """A line of the tree: its parent, and the reply, calls and results that it holds."""

    uuid: str
    parent: str | None
    speaks: bool = True
    reply: str = ""
    uses: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    attached: bool = False
    boundary: bool = False
    preserved: str = ""
    """The last of the messages that a compaction kept; these stay children of the messages that it replaced."""


@record
class Branch:
    """The lines of a conversation, the lines of abandoned branches, and the lines whose parents are missing."""

    kept: list[Node]
    abandoned: list[Node]
    bridged: list[Node]

    def lacks_root(self, in_file: Container[str]) -> bool:
        """Say whether the first line names a parent that is not in the file."""
        parent = self.kept[0].parent if self.kept else None
        return bool(parent) and parent != STRAY and parent not in in_file


def newest_branch(nodes: Sequence[Node]) -> Branch:
    """Return the lines of the newest branch, with all parallel pieces and results, and those of other branches.

    ``kept`` and ``abandoned`` are in the given order; lines that do not speak are in neither.
    """
    speaking = [node for node in nodes if node.speaks]
    if not speaking:
        return Branch([], [], [])
    by_uuid = {node.uuid: node for node in nodes}
    kept, bridged = _walk(speaking, by_uuid)
    _keep_unrivalled(speaking, kept, by_uuid)
    for node in speaking:
        if node.preserved in kept or (node.boundary and node.parent in kept):
            kept.add(node.uuid)
    _keep_siblings(speaking, kept, by_uuid)
    return Branch(
        [node for node in speaking if node.uuid in kept],
        [node for node in speaking if node.uuid not in kept],
        bridged,
    )


def _walk(speaking: Sequence[Node], by_uuid: dict[str, Node]) -> tuple[set[str], list[Node]]:
    order = {node.uuid: place for place, node in enumerate(speaking)}
    ends = _ends(speaking)
    kept: set[str] = set()
    bridged: list[Node] = []
    node = ends[-1]
    before = len(speaking)
    while node is not None and node.uuid not in kept:
        kept.add(node.uuid)
        before = min(before, order.get(node.uuid, before))
        parent = by_uuid.get(node.parent) if node.parent else None
        # The parent is missing or would form a circle: continue with the message before.
        if node.parent and (parent is None or parent.uuid in kept):
            parent = ends[before]
            bridged += [node] if parent else []
        node = parent
    return kept, bridged


def _keep_unrivalled(speaking: Sequence[Node], kept: set[str], by_uuid: dict[str, Node]) -> None:
    """Keep branches beside which no other is kept: nothing says that they were abandoned, their next line is lost."""
    parents = {node.parent for node in speaking}
    rivalled = {by_uuid[uuid].parent for uuid in kept} | {None, "", STRAY}
    climbed: set[str] = set()
    for leaf in reversed(speaking):
        if leaf.uuid in parents or leaf.uuid in kept:
            continue
        branch: list[Node] = []
        node: Node | None = leaf
        while node is not None and node.uuid not in kept and node.uuid not in climbed:
            climbed.add(node.uuid)
            branch.append(node)
            node = by_uuid.get(node.parent or "")
        if (node is None or node.uuid in kept) and branch[-1].parent not in rivalled:
            kept.update(one.uuid for one in branch)
            rivalled.update(one.parent for one in branch)


def _ends(speaking: Sequence[Node]) -> list[Node | None]:
    """Return, for each position and the end, the last earlier line that is the parent of no line.

    If there is none, the item is the line just before; the first item is None.
    """
    parents = {node.parent for node in speaking}
    out: list[Node | None] = [None]
    newest: Node | None = None
    for node in speaking:
        newest = node if node.uuid not in parents else newest
        out.append(newest or node)
    return out


def _keep_siblings(speaking: Sequence[Node], kept: set[str], by_uuid: dict[str, Node]) -> None:
    replies = {node.reply for node in speaking if node.reply and node.uuid in kept}
    kept.update(node.uuid for node in speaking if node.reply in replies)
    uses = {use for node in speaking if node.uuid in kept for use in node.uses}
    answered = {answer for node in speaking if node.uuid in kept for answer in node.answers}
    known = {use for node in speaking for use in node.uses}
    around = {node.uuid for node in speaking if node.uuid in kept and (node.uses or node.answers)}
    for node in speaking:
        if node.uuid in kept:
            continue
        wanted = set(node.answers) & uses - answered
        # A result without its call in the file was not abandoned: the line of the call was lost.
        lost = bool(node.answers) and not known & set(node.answers) and node.parent not in by_uuid
        if wanted or lost or node.parent == STRAY or (node.attached and node.parent in around):
            kept.add(node.uuid)
            answered |= wanted
            around.add(node.uuid)


def replies_together(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with the pieces of each reply next to each other, before results that came between them."""
    out: list[Node] = []
    open_reply, after = "", 0
    for node in nodes:
        if node.reply and node.reply == open_reply:
            out.insert(after, node)
            after += 1
            continue
        out.append(node)
        if node.reply or node.boundary:
            open_reply, after = node.reply, len(out)
    return out
