"""The words of all logs of a tenant in the database: which logs a search has to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...ports import Stamp
from ...values import record
from .connections import Connections

_MAX_WORD_BYTES: Final = 200
_MAX_LOGS_PER_WORD: Final = 20_000
"""The most logs that one word may propose: a word that is in more of them says little."""
_BEHIND: Final = """
SELECT head.key, head.file, head.size, coalesce(max(part.upto) FILTER (WHERE part.file = head.file), 0), held.fence
FROM reverie.leases AS held JOIN reverie.files AS head ON head.tenant = held.tenant AND head.key = held.name
LEFT JOIN reverie.words AS part ON part.tenant = head.tenant AND part.key = head.key
WHERE held.tenant = %s AND held.indexed < held.fence AND held.name ~ '^projects/[^/]+/[^/]+[.]jsonl$'
GROUP BY head.key, head.file, head.size, held.fence
"""
_BEHIND_AT_ALL: Final = """
SELECT head.key, head.file, head.size, coalesce(max(part.upto) FILTER (WHERE part.file = head.file), 0), 0::bigint
FROM reverie.files AS head LEFT JOIN reverie.words AS part ON part.tenant = head.tenant AND part.key = head.key
WHERE head.tenant = %s AND head.key ~ '^projects/[^/]+/[^/]+[.]jsonl$'
GROUP BY head.key, head.file, head.size
HAVING head.size > coalesce(max(part.upto) FILTER (WHERE part.file = head.file), 0)
"""
_SETTLE: Final = """
UPDATE reverie.leases AS held SET indexed = done.fence
FROM unnest(%(keys)s::text[], %(fences)s::bigint[], %(sizes)s::bigint[]) AS done (key, fence, size)
WHERE held.tenant = %(tenant)s AND held.name = done.key AND held.fence = done.fence
    AND held.expires <= clock_timestamp() AND EXISTS (
        SELECT FROM reverie.files AS head
        WHERE head.tenant = %(tenant)s AND head.key = done.key AND head.size = done.size)
RETURNING held.fence
"""
# Nothing is added for a log that was replaced or deleted since it was read: its head is locked against both.
_ADD: Final = """
INSERT INTO reverie.words (tenant, key, start, file, upto, words)
SELECT head.tenant, head.key, %(start)s, head.file, %(upto)s, array_to_tsvector(%(words)s::text[])
FROM (SELECT tenant, key, file FROM reverie.files
    WHERE tenant = %(tenant)s AND key = %(key)s AND file = %(file)s FOR KEY SHARE) AS head
ON CONFLICT (tenant, key, start) DO NOTHING RETURNING start
"""
# The rarer a word, the more it says: the sum of log(1 + logs found / logs with the word) over the words of the query.
_CANDIDATES: Final = """
WITH asked AS (SELECT word::tsquery AS word FROM unnest(%(queries)s::text[]) AS word),
found AS (
    SELECT DISTINCT asked.word::text AS word, part.key FROM asked
    CROSS JOIN LATERAL reverie.logs_with(asked.word, %(tenant)s, %(place)s, %(per_word)s) AS part (key)
), rare AS (
    SELECT word, ln(1 + (SELECT count(DISTINCT key) FROM found)::float / count(*)) AS weight FROM found GROUP BY word
)
SELECT head.key, head.size, (extract(epoch FROM head.changed) * 1000000000)::bigint, head.file
FROM found JOIN rare USING (word) JOIN reverie.files AS head ON head.tenant = %(tenant)s AND head.key = found.key
GROUP BY head.key, head.size, head.changed, head.file ORDER BY sum(weight) DESC, head.key LIMIT %(most)s
"""
_COUNTS: Final = """
SELECT asked.word, count(DISTINCT found.key)
FROM unnest(%(words)s::text[], %(queries)s::text[]) AS asked (word, query)
CROSS JOIN LATERAL reverie.logs_with(asked.query::tsquery, %(tenant)s, 'projects/%%', %(most)s) AS found (key)
GROUP BY asked.word
UNION ALL
SELECT '', count(*) FROM (SELECT FROM reverie.words WHERE tenant = %(tenant)s AND start = 0 LIMIT %(most)s) AS first
"""
_THERE: Final = "SELECT key FROM reverie.files WHERE tenant = %s AND key = ANY(%s)"


@record
class LogBehind:
    """A log with bytes whose words are not in the database yet, from ``start`` on."""

    key: str
    file: int
    size: int
    start: int
    fence: int
    """The fencing number of the last lease on it; 0 if it was not asked for."""


class SharedWords:
    """The words of the logs of one tenant, which any machine adds and all machines search."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def behind(self, *, at_all: bool = False) -> list[LogBehind]:
        """Return the logs that were opened since their words were added; ``at_all`` also those that no lease names."""
        sql = _BEHIND_AT_ALL if at_all else _BEHIND
        rows = self._connections.rows("the words of logs", sql, (self._connections.tenant,))
        return [LogBehind(*row) for row in rows]

    def settle(self, logs: Sequence[tuple[LogBehind, int]]) -> None:
        """Note that the words of logs were added up to an offset, unless they are open or have grown."""
        if not logs:
            return
        values = {
            "tenant": self._connections.tenant,
            "keys": [log.key for log, _ in logs],
            "fences": [log.fence for log, _ in logs],
            "sizes": [upto for _, upto in logs],
        }
        self._connections.rows("the words of logs", _SETTLE, values)

    def add(self, log: LogBehind, upto: int, words: Iterable[str]) -> None:
        """Add the words of the bytes of a log up to an offset; another machine may have done so already."""
        kept = sorted({word for word in words if word and len(word.encode()) <= _MAX_WORD_BYTES and "\0" not in word})
        values = {"key": log.key, "file": log.file, "start": log.start, "upto": upto, "words": kept}
        self._connections.row(log.key, _ADD, {"tenant": self._connections.tenant, **values})

    def candidates(self, words: Sequence[str], *, project: str | None, most: int) -> list[Stamp]:
        """Return at most so many logs with the rarest of these words; ``abc*`` is a beginning."""
        place = "projects/%" if project is None else f"projects/{_escaped(project)}/%"
        queries = [_quoted(word.removesuffix("*")) + (":*" if word.endswith("*") else "") for word in words if word]
        values = {
            "tenant": self._connections.tenant,
            "queries": queries,
            "place": place,
            "per_word": _MAX_LOGS_PER_WORD,
            "most": most,
        }
        return [Stamp(*row) for row in self._connections.rows("the words of logs", _CANDIDATES, values)]

    def counts(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of logs, and for each of some words the number of those that have it; 20,000 at most."""
        values = {
            "tenant": self._connections.tenant,
            "words": list(words),
            "queries": [_quoted(word) for word in words],
            "most": _MAX_LOGS_PER_WORD,
        }
        found = dict(self._connections.rows("the words of logs", _COUNTS, values))
        return found.pop("", 0), found

    def existing(self, keys: Sequence[str]) -> set[str]:
        """Return those of these logs that exist."""
        rows = self._connections.rows("the words of logs", _THERE, (self._connections.tenant, list(keys)))
        return {key for (key,) in rows}


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
