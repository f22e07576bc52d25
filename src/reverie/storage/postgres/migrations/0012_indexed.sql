-- The fencing number up to which the words of a log were added: only a holder of its lease can have appended since. So a
-- search looks at the logs that were opened since they were indexed, not at all logs. Appends do not touch this index.
ALTER TABLE reverie.leases ADD COLUMN indexed bigint NOT NULL DEFAULT 0;
CREATE INDEX leases_behind ON reverie.leases (tenant, name)
    WHERE indexed < fence AND name ~ '^projects/[^/]+/[^/]+[.]jsonl$';

-- The logs with a word. The planner would read and unpack every row of a small table; the index has the answer.
CREATE FUNCTION reverie.logs_with(word tsquery, for_tenant text, place text, most bigint)
RETURNS SETOF text LANGUAGE sql STABLE SET enable_seqscan = off AS $$
    SELECT key FROM reverie.words WHERE words @@ word AND tenant = for_tenant AND key LIKE place LIMIT most
$$;
