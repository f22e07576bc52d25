"""Memories as files beneath ``/memories``, as the memory tool shows them to a model.

A memory with front matter is shown whole and edited as it is. Text that the model writes without front matter gets
derived front matter, which is hidden: the model reads back its own text. Every change is one transaction of the
store, journaled with its author, and updates the index. Writing never raises trust. A name without ``.md``
(``progress.txt``) is stored with it (``progress.txt.md``). A folder exists as long as it holds a memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..errors import InputError
from ..memories.rules.secrets import refuse_secrets
from ..memories.rules.taxonomy import description_for
from ..memories.store.drafts import Draft
from ..memories.store.frontmatter import FrontMatter, Value, parse, render
from ..memories.store.index import INDEX, changed, listed_line
from ..memories.store.names import check_file, composed, title_for
from ..memories.store.records import read_record, revised_text, version_of
from ..memories.store.side_files import read_plain
from ..memories.store.store import MemoryStore, Transaction
from ..memories.store.trust import TRUSTS, Trust, claimed, worst

ROOT: Final = "/memories"
_MARK: Final = "memory_tool"
"""The field that marks derived front matter; its value is the name under which the model knows the file."""
_TYPE: Final = "project"
_WHY: Final = "written by the memory tool"
_LEVELS: Final = 2
_NUMBER_WIDTH: Final = 6
_MAX_LINES: Final = 999_999


class MemoryFiles:
    """The commands of the memory tool; they raise ``InputError`` in the words of the tool's documentation."""

    def __init__(self, directory: str, *, author: str = "agent", source: str = "", trust: Trust | None = None) -> None:
        """Work on a memory directory; ``trust`` can lower the trust of new memories below an agent's."""
        self._shelf = MemoryStore(directory)
        self._author = author
        self._source = source
        self._trust: Trust = worst(("agent", trust)) if trust else "agent"

    # -- the six commands

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Return the listing of a directory, two levels deep with sizes, or a file's text with line numbers.

        ``view_range`` is the first and the last line to show; -1 as the last means the end of the file.
        """
        inner = _inner(path)
        text = self._text(inner)
        if text is None:
            return self._listed(path, inner)
        lines = text.split("\n")
        if len(lines) > _MAX_LINES:
            raise InputError(f"File {path} exceeds maximum line limit of 999,999 lines.")
        start, end = 0, len(lines)
        if view_range and len(view_range) == 2:
            start = max(1, view_range[0]) - 1
            end = len(lines) if view_range[1] == -1 else view_range[1]
        shown = "\n".join(_numbered(lines[start:end], start + 1))
        return f"Here's the content of {path} with line numbers:\n{shown}"

    def create(self, path: str, file_text: str) -> str:
        """Create a file and return a confirmation; raise ``InputError`` if the path exists."""
        inner = _inner(path)
        if not inner or inner == INDEX or self._is_folder(inner):
            raise InputError(f"File {path} already exists")

        def plan(desk: Transaction) -> Draft:
            if desk.read(_file(inner)) is not None:
                raise InputError(f"File {path} already exists")
            return self._draft(desk, "saved", {inner: (file_text, None)})

        self._shelf.commit(plan)
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that occurs exactly once in a file and return the lines around the change."""

        def edited(text: str) -> str:
            places = _places(text, old_str)
            if not places:
                raise InputError(
                    f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
                )
            if len(places) > 1:
                lines = ", ".join(str(text[:at].count("\n") + 1) for at in places)
                raise InputError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            return text.replace(old_str, new_str)

        before, after = self._edit(path, edited)
        changed_line = before[: before.find(old_str)].count("\n")
        lines = after.split("\n")
        start, end = max(0, changed_line - 2), min(len(lines), changed_line + 3)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        return head + "\n".join(_numbered(lines[start:end], start + 1))

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert a text after a line of a file, 0 being the start, and return a confirmation."""

        def edited(text: str) -> str:
            lines = text.split("\n")
            if lines[-1] == "":
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                raise InputError(
                    f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
                )
            lines.insert(insert_line, insert_text.rstrip("\n"))
            joined = "\n".join(lines)
            return joined if joined.endswith("\n") else joined + "\n"

        self._edit(path, edited)
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        """Delete a file or all files of a directory and return a confirmation; the journal can restore them."""
        inner = _inner(path)
        if not inner:
            raise InputError("Cannot delete the /memories directory itself")
        _refuse_index(inner, path)

        def plan(desk: Transaction) -> Draft:
            gone = [_file(name) for name in self._found(inner)]
            if not gone:
                raise InputError(f"The path {path} does not exist")
            index = changed(desk.index, dict.fromkeys(gone))
            return Draft("forgotten", self._author, _WHY, dict.fromkeys(gone), index, self._sources())

        self._shelf.commit(plan)
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Rename a file or a directory and return a confirmation; raise ``InputError`` if the new path exists."""
        old, new = _inner(old_path), _inner(new_path)
        if not old:
            raise InputError("Cannot rename the /memories directory itself")
        _refuse_index(old, old_path)
        if not new or new == INDEX or self._is_folder(new) or self._text(new) is not None:
            raise InputError(f"The destination {new_path} already exists")

        def plan(desk: Transaction) -> Draft:
            moved = {name: new + name[len(old) :] for name in self._found(old)}
            if not moved:
                raise InputError(f"The path {old_path} does not exist")
            texts: dict[str, tuple[str, bytes | None]] = {}
            for name, target in moved.items():
                data = desk.read(_file(name))
                texts[target] = (_visible(data or b""), data)
            return self._draft(desk, "updated", texts, gone=[_file(name) for name in moved], edited=False)

        self._shelf.commit(plan)
        return f"Successfully renamed {old_path} to {new_path}"

    def clear(self) -> str:
        """Delete all memories and return a confirmation; the journal can restore them."""

        def plan(desk: Transaction) -> Draft | None:
            gone = [head.file for head in desk.heads()]
            index = changed(desk.index, dict.fromkeys(gone))
            return Draft("forgotten", self._author, _WHY, dict.fromkeys(gone), index) if gone else None

        self._shelf.commit(plan)
        return "All memory cleared"

    # -- reading

    def _text(self, inner: str) -> str | None:
        """Return the part of a file that the model sees; None if the file does not exist."""
        if inner == INDEX:
            return self._shelf.read_index() or None
        if not inner:
            return None
        self._shelf.finish_writes()
        check_file(_file(inner))
        data = read_plain(self._shelf.root, _file(inner))
        if data is None or (not inner.endswith(".md") and _mark(data) is None):
            return None
        return _visible(data)

    def _names(self) -> dict[str, int]:
        """Return a dict from each file's name, as the model knows it, to the size of its visible part in bytes."""
        names: dict[str, int] = {}
        for head in self._shelf.scan().memories:
            data = read_plain(self._shelf.root, head.file)
            if data is not None:
                names[_name(head.file, data)] = len(_visible(data).encode("utf-8", "replace"))
        index = self._shelf.read_index()
        if index:
            names[INDEX] = len(index.encode("utf-8", "replace"))
        return names

    def _is_folder(self, inner: str) -> bool:
        return any(name.startswith(f"{inner}/") for name in self._names())

    def _listed(self, path: str, inner: str) -> str:
        start = f"{inner}/" if inner else ""
        beneath = {name[len(start) :]: size for name, size in self._names().items() if name.startswith(start)}
        if inner and not beneath:
            raise InputError(f"The path {path} does not exist. Please provide a valid path.")
        stem = path.rstrip("/")
        lines = [f"{self._folder_size(inner)}\t{path}"]
        lines += [f"{size}\t{stem}/{name}" for name, size in self._tree(beneath, inner, 1)]
        head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
        return "\n".join([head, *lines])

    def _tree(self, beneath: Mapping[str, int], inner: str, level: int) -> list[tuple[str, str]]:
        """Return sorted pairs of name and size, a folder before its files, down to the second level."""
        found: list[tuple[str, str]] = []
        for name in sorted({one.split("/", 1)[0] for one in beneath}):
            if name in beneath:
                found.append((name, _size(beneath[name])))
            inside = {one[len(name) + 1 :]: size for one, size in beneath.items() if one.startswith(f"{name}/")}
            if inside:
                folder = f"{inner}/{name}" if inner else name
                found.append((f"{name}/", self._folder_size(folder)))
                if level < _LEVELS:
                    found += [(f"{name}/{one}", size) for one, size in self._tree(inside, folder, level + 1)]
        return found

    def _folder_size(self, inner: str) -> str:
        try:
            return _size(os.stat(self._shelf.path(inner), follow_symlinks=False).st_size)
        except OSError:
            return _size(0)

    # -- changing

    def _edit(self, path: str, edited: Callable[[str], str]) -> tuple[str, str]:
        """Change the visible text of a file under the store's lock; return the text before and after."""
        inner = _inner(path)
        _refuse_index(inner, path)
        seen: list[str] = []

        def plan(desk: Transaction) -> Draft:
            data = desk.read(_file(inner)) if inner else None
            if data is None or (not inner.endswith(".md") and _mark(data) is None):
                if not inner or self._is_folder(inner):
                    raise InputError(f"The path {path} is not a file.")
                raise InputError(f"The path {path} does not exist. Please provide a valid path.")
            text = _visible(data)
            seen[:] = [text, edited(text)]
            return self._draft(desk, "updated", {inner: (seen[1], data)})

        if inner and not self._is_folder(inner):
            check_file(_file(inner))
        self._shelf.commit(plan)
        return seen[0], seen[1]

    def _found(self, inner: str) -> list[str]:
        """Return the names of a path's files without the index: the file itself, or all files beneath a folder."""
        return [name for name in self._names() if name != INDEX and (name == inner or name.startswith(f"{inner}/"))]

    def _draft(
        self,
        desk: Transaction,
        act: str,
        texts: Mapping[str, tuple[str, bytes | None]],
        *,
        gone: Sequence[str] = (),
        edited: bool = True,
    ) -> Draft:
        """Return a draft that writes visible texts, deletes the files ``gone`` and updates the index.

        ``texts`` maps a file to its new visible text and its bytes before, None for a new file. A text with a
        secret raises an error.
        """
        files: dict[str, bytes | None] = dict.fromkeys(gone)
        lines: dict[str, str | None] = dict.fromkeys(gone)
        expect: dict[str, str | None] = {}
        for inner, (text, before) in texts.items():
            file = _file(inner)
            check_file(file)
            for part in (text, f"{_words(file)}: {text.strip()}"):
                refuse_secrets(part, "the memory")
            data = self._kept(inner, text, before, desk.now, edited=edited)
            files[file] = data
            lines[file] = listed_line(read_record(file, data))
            if file not in gone:
                found = desk.read(file)
                expect[file] = None if found is None else version_of(found)
        index = changed(desk.index, lines)
        return Draft(
            "saved" if act == "saved" else "updated", self._author, _WHY, files, index, self._sources(), expect=expect
        )

    def _kept(self, inner: str, text: str, before: bytes | None, now: str, *, edited: bool) -> bytes:
        """Return the bytes to store for a visible text: the text itself, or the text with derived front matter.

        With ``edited`` the trust can fall to this tool's, and never rises.
        """
        known = read_record(_file(inner), before) if before is not None else None
        trust = self._trust if known is None else worst((known.trust, self._trust)) if edited else known.trust
        fields = _own_fields(text)
        try:
            if fields is not None and inner.endswith(".md"):
                changes: dict[str, Value | None] = {}
                if TRUSTS.index(claimed(str(fields.get("trust", "")))) < TRUSTS.index(trust):
                    changes["trust"] = trust
                if edited and before is not None and "modified" in fields:
                    changes["modified"] = f"{now[:19]}Z"
                return (revised_text(text, changes) if changes else text).encode()
            derived: dict[str, Value] = {
                "name": title_for(text) or inner.rsplit("/", 1)[-1],
                "description": description_for(text) or inner,
                "type": (known.type if known is not None and known.type else _TYPE),
                "source": list(dict.fromkeys((*(known.source if known else ()), *self._sources()))),
                "trust": trust,
                "created": (known.created if known is not None and known.created else f"{now[:19]}Z"),
                "modified": f"{now[:19]}Z",
                _MARK: inner,
            }
            return render(FrontMatter({key: value for key, value in derived.items() if value}, text)).encode()
        except UnicodeEncodeError as error:
            raise InputError("the text holds half a character pair; write whole characters") from error

    def _sources(self) -> tuple[str, ...]:
        return (self._source,) if self._source else ()


def _inner(path: str) -> str:
    """Return the part of a path beneath the root; raise ``InputError`` for a path outside it."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise InputError(f"Path must start with /memories, got: {path}")
    parts: list[str] = []
    for part in composed(path)[len(ROOT) :].split("/"):
        if part == "..":
            if not parts:
                raise InputError(f"Path {path} would escape /memories directory")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _refuse_index(inner: str, path: str) -> None:
    if inner == INDEX:
        raise InputError(f"The path {path} is the index of all memories and is updated automatically.")


def _file(inner: str) -> str:
    return inner if inner.endswith(".md") else f"{inner}.md"


def _fields(text: str) -> Mapping[str, Value]:
    try:
        return parse(text).fields
    except InputError:
        return {}


def _own_fields(text: str) -> Mapping[str, Value] | None:
    fields = _fields(text)
    return fields if fields and _MARK not in fields else None


def _mark(data: bytes) -> str | None:
    """Return the name under which the model knows a file with derived front matter; None for other files."""
    found = _fields(data.decode("utf-8", "replace")).get(_MARK)
    return found if isinstance(found, str) and found else None


def _name(file: str, data: bytes) -> str:
    mark = _mark(data)
    return mark if mark is not None and _file(mark) == file else file


def _visible(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return parse(text).body if _mark(data) is not None else text


def _places(text: str, wanted: str) -> list[int]:
    """Return the positions of a text; an empty text has more than one, so it is never unique."""
    if text.count(wanted) == 1:
        return [text.find(wanted)]
    if not wanted:
        return [0, *range(len(text) + 1)]
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        places.append(at)
        at = text.find(wanted, at + 1)
    return places


def _numbered(lines: Sequence[str], start: int) -> list[str]:
    return [f"{str(number).rjust(_NUMBER_WIDTH)}\t{line}" for number, line in enumerate(lines, start)]


def _size(size: int) -> str:
    unit = min(max(size.bit_length() - 1, 0) // 10, 3)
    scaled = size / 1024**unit
    number = f"{int(scaled)}" if scaled == int(scaled) else f"{scaled:.1f}"
    return f"{number}{'BKMG'[unit]}"


def _words(file: str) -> str:
    return re.sub(r"[_-]+", " ", file.rsplit("/", 1)[-1].removesuffix(".md"))
