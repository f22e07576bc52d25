"""Load and replace text files atomically, with their encoding and line ends kept."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from contextlib import suppress
from typing import Final

from ...errors import InputError, UnsafePath
from ...paths import TEMPORARY_PREFIX, closed_after, remove_orphans, write_durably
from ...values import record
from ..context import ToolContext
from .read_state import version_of
from .workspace import open_parent_folder, open_plain_file

MAX_EDIT_BYTES: Final = 25_000_000
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@record
class TextFile:
    """A file as it is on disk, and its text; ``newline`` is the line end of the file.

    If every line of the file ends with CRLF, ``text`` has ``\\n`` instead; a mixture of line ends stays as it is.
    """

    target: str
    data: bytes
    stat: os.stat_result
    text: str
    encoding: str
    bom: bytes
    newline: str

    @property
    def version(self) -> str:
        """The SHA-256 of the file's content."""
        return version_of(self.data)


def load(path: str, context: ToolContext) -> TextFile:
    """Read a whole text file; raise an error with advice if it is too large, binary or may not be opened."""
    opened = open_plain_file(path, context)
    with open(opened.descriptor, "rb", buffering=0) as file:
        if opened.stat.st_size > MAX_EDIT_BYTES:
            raise InputError(
                f"{opened.target} is {opened.stat.st_size:,} bytes, more than the {MAX_EDIT_BYTES:,} that can be "
                "edited here; use Bash (sed, split) for it"
            )
        data = file.readall()
        found = os.fstat(opened.descriptor)
    text, encoding, bom = decoded_text(data, opened.target)
    newline = _newline(text)
    if newline == "\r\n":
        text = text.replace("\r\n", "\n")
    return TextFile(opened.target, data, found, text, encoding, bom, newline)


def decoded_text(data: bytes, path: str) -> tuple[str, str, bytes]:
    """Return the text of a file, its encoding and its byte order mark; raise ``InputError`` for a binary file."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            with suppress(UnicodeDecodeError):
                return data[len(bom) :].decode(encoding), encoding, bom
    if b"\0" in data:
        raise InputError(f"{path} is a binary file; inspect it with Bash (file, xxd | head, strings)")
    try:
        return data.decode("utf-8"), "utf-8", b""
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1", b""  # every byte is a letter there, so unedited parts stay the same


def encoded_text(text: str, file: TextFile | None) -> bytes:
    """Return a text as bytes with the encoding and line ends of the file it replaces; UTF-8 for None."""
    if file is None:
        return _bytes(text, "utf-8")
    if file.newline == "\r\n":
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return file.bom + _bytes(text, file.encoding)


def _bytes(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        letter = text[error.start : error.end][:8]
        raise InputError(
            f"{letter!a} cannot be written in {encoding}, the encoding of the file; leave it out, or convert the file "
            "to UTF-8 first"
        ) from None


def _newline(text: str) -> str:
    ends = text.count("\r\n")
    return "\r\n" if ends and ends == text.count("\n") and ends == text.count("\r") else "\n"


def replace_text(path: str, data: bytes, context: ToolContext, *, before: TextFile | None) -> str:
    """Write a file's content atomically and return its resolved path.

    ``before`` is the file to replace, whose rights are kept; None creates a new file. If the file has changed
    since ``before`` was loaded, or the new file exists already, raise and change nothing.
    """
    with open_parent_folder(path, context, create=before is None) as (folder, name, target):
        _remove_orphans(folder)
        temporary = f"{TEMPORARY_PREFIX}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if before is None else 0o600, dir_fd=folder)
        try:
            try:
                write_durably(descriptor, data)
                if before is not None:
                    _keep_rights(descriptor, before.stat)
            finally:
                os.close(descriptor)
            _put(folder, temporary, name, target, before)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        return target


def remove_text(before: TextFile, context: ToolContext) -> None:
    """Remove a file; raise and change nothing if it has changed since it was loaded."""
    with open_parent_folder(before.target, context) as (folder, name, target):
        _refuse_changed(folder, name, target, before)
        os.unlink(name, dir_fd=folder)


def _remove_orphans(folder: int) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with suppress(OSError), closed_after(os.open(".", flags, dir_fd=folder)) as listed:
        remove_orphans(listed)


def _keep_rights(descriptor: int, before: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _put(folder: int, temporary: str, name: str, target: str, before: TextFile | None) -> None:
    if before is None:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise UnsafePath(f"{target} was created in the meantime; read it first", path=target) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)  # a file system without hard links
        else:
            os.unlink(temporary, dir_fd=folder)
        return
    _refuse_changed(folder, name, target, before)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _refuse_changed(folder: int, name: str, target: str, before: TextFile) -> None:
    now = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if _identity(now) != _identity(before.stat) or target != before.target:
        raise InputError(f"{target} changed on disk since you read it: read it again, then edit")


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, stat.S_IFMT(found.st_mode)
