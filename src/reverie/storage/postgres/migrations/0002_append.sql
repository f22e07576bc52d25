-- Append one line in one statement, which is one transaction of one tenant, and return its seq; NULL if the size is not the
-- expected one, if there is no such file, or if the lease has another fencing number. The lease is locked against a
-- take-over until the commit.
CREATE FUNCTION reverie.append(
    for_tenant text, to_key text, line bytea, expected bigint, lease text, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head record;
    added bigint := octet_length(line);
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
    RETURNING file, last, size INTO head;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO reverie.entries (tenant, file, seq, fence, data)
    VALUES (for_tenant, head.file, head.last, number,
            CASE WHEN head.size - head.last > added THEN '\x0a'::bytea || line ELSE line END);
    RETURN head.last;
END
$$;
