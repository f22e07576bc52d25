"""The words of all logs of a tenant in the database: which logs a search has to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...ports import Stamp
from ...values import record
from .connections import Connections

_MAX_WORD_BYTES: Final = 200
_BEHIND: Final = """
SELECT head.key, head.file, head.size, coalesce(max(part.upto) FILTER (WHERE part.file = head.file), 0)
FROM reverie.files AS head LEFT JOIN reverie.words AS part ON part.tenant = head.tenant AND part.key = head.key
WHERE head.tenant = %s AND head.key ~ '^projects/[^/]+/[^/]+[.]jsonl$'
GROUP BY head.key, head.file, head.size
HAVING head.size > coalesce(max(part.upto) FILTER (WHERE part.file = head.file), 0)
"""
_ADD: Final = """
WITH outdated AS (DELETE FROM reverie.words WHERE tenant = %(tenant)s AND key = %(key)s AND file <> %(file)s)
INSERT INTO reverie.words (tenant, key, start, file, upto, words)
VALUES (%(tenant)s, %(key)s, %(start)s, %(file)s, %(upto)s, array_to_tsvector(%(words)s::text[]))
ON CONFLICT (tenant, key, start) DO NOTHING RETURNING start
"""
# The rarer a word, the more it says: the sum of log(sessions / sessions with the word) over the words of the query.
_CANDIDATES: Final = """
WITH asked AS (SELECT word::tsquery AS word FROM unnest(%(queries)s::text[]) AS word),
found AS (
    SELECT DISTINCT asked.word::text AS word, part.key FROM asked JOIN reverie.words AS part ON part.words @@ asked.word
    WHERE part.tenant = %(tenant)s AND part.key LIKE %(place)s
), rare AS (
    SELECT word, ln(1 + (SELECT count(*) FROM reverie.files WHERE tenant = %(tenant)s)::float / count(*)) AS weight
    FROM found GROUP BY word
)
SELECT head.key, head.size, (extract(epoch FROM head.changed) * 1000000000)::bigint, head.file
FROM found JOIN rare USING (word) JOIN reverie.files AS head ON head.tenant = %(tenant)s AND head.key = found.key
GROUP BY head.key, head.size, head.changed, head.file ORDER BY sum(weight) DESC, head.key LIMIT %(most)s
"""
_THERE: Final = "SELECT key FROM reverie.files WHERE tenant = %s AND key = ANY(%s)"


@record
class LogBehind:
    """A log with bytes whose words are not in the database yet, from ``start`` on."""

    key: str
    file: int
    size: int
    start: int


class SharedWords:
    """The words of the logs of one tenant, which any machine adds and all machines search."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def behind(self) -> list[LogBehind]:
        """Return the logs that have grown or were replaced since their words were added."""
        rows = self._connections.rows("the words of logs", _BEHIND, (self._connections.tenant,))
        return [LogBehind(*row) for row in rows]

    def add(self, log: LogBehind, upto: int, words: Iterable[str]) -> None:
        """Add the words of the bytes of a log up to an offset; another machine may have done so already."""
        kept = sorted({word for word in words if word and len(word.encode()) <= _MAX_WORD_BYTES and "\0" not in word})
        values = {"key": log.key, "file": log.file, "start": log.start, "upto": upto, "words": kept}
        self._connections.row(log.key, _ADD, {"tenant": self._connections.tenant, **values})

    def candidates(self, words: Sequence[str], *, project: str | None, most: int) -> list[Stamp]:
        """Return at most so many logs with the rarest of these words; ``abc*`` is a beginning."""
        place = "projects/%" if project is None else f"projects/{_escaped(project)}/%"
        queries = [_quoted(word.removesuffix("*")) + (":*" if word.endswith("*") else "") for word in words if word]
        values = {"tenant": self._connections.tenant, "queries": queries, "place": place, "most": most}
        return [Stamp(*row) for row in self._connections.rows("the words of logs", _CANDIDATES, values)]

    def existing(self, keys: Sequence[str]) -> set[str]:
        """Return those of these logs that exist."""
        rows = self._connections.rows("the words of logs", _THERE, (self._connections.tenant, list(keys)))
        return {key for (key,) in rows}


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
