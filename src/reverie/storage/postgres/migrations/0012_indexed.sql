-- The fencing number up to which the words of a log were added: only a holder of its lease can have appended since. So a
-- search looks at the logs that were opened since they were indexed, not at all logs. Appends do not touch this index.
ALTER TABLE reverie.leases ADD COLUMN indexed bigint NOT NULL DEFAULT 0;
CREATE INDEX leases_behind ON reverie.leases (tenant, name)
    WHERE indexed < fence AND name ~ '^projects/[^/]+/[^/]+[.]jsonl$';
