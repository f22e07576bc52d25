-- The entries that one program appends to a log are one deflate stream, flushed after each: words that they share are
-- stored once. A stream begins anew after 256 KB, so that a part of a log is read with little before it. Rows that are there were
-- deflated by themselves: each begins a stream. The column has a new name, so that a program that does not know this stops.
ALTER TABLE reverie.entries RENAME COLUMN deflated TO begins;  -- false: it goes on; NULL: content is as it was written

-- As before, but it returns the number of the file. stream is the number of the file whose last entry's stream the line goes
-- on, NULL for a line that begins one or is as it is: bytes that were replaced meanwhile have another number.
DROP FUNCTION reverie.append;
CREATE FUNCTION reverie.append(
    for_tenant text, to_key text, line bytea, inflated_bytes bigint, stream bigint, expected bigint, lease text, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head record;
    added bigint := coalesce(inflated_bytes, octet_length(line));
BEGIN
    PERFORM set_config('reverie.tenant', for_tenant, true);
    IF number IS NOT NULL THEN
        PERFORM FROM reverie.leases WHERE tenant = for_tenant AND name = lease AND fence = number FOR SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE reverie.files
    SET last = size, size = size + torn::int + added, torn = false, digest = NULL, changed = clock_timestamp()
    WHERE tenant = for_tenant AND key = to_key AND (expected IS NULL OR size = expected)
        AND NOT (torn AND inflated_bytes IS NOT NULL) AND (stream IS NULL OR file = stream)
    RETURNING file, last, size INTO head;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO reverie.entries (tenant, file, seq, fence, content, begins)
    VALUES (for_tenant, head.file, head.last, number,
            CASE WHEN head.size - head.last > added THEN '\x0a'::bytea || line ELSE line END,
            CASE WHEN inflated_bytes IS NOT NULL THEN stream IS NULL END);
    RETURN head.file;
END
$$;

-- Rows are large, so the share of dead ones alone says when their room is free again; the server would wait for 50.
ALTER TABLE reverie.entries SET (autovacuum_vacuum_threshold = 0);
