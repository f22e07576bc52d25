-- Documents and logs by (tenant, key), their bytes by (tenant, file, seq), blobs by content hash, and leases.
-- Every table has row-level security with FORCE: a transaction sees and writes only the rows of the tenant that it
-- named with SET LOCAL reverie.tenant, and nothing if it named none.

CREATE TABLE reverie.files (
    tenant  text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    key     text COLLATE "C" NOT NULL,
    file    bigint GENERATED ALWAYS AS IDENTITY,
    size    bigint NOT NULL,
    last    bigint NOT NULL,               -- the seq of the last entry
    torn    boolean NOT NULL,              -- the last line has no newline
    digest  bytea,                         -- SHA-256 of the content; NULL once a line was appended
    changed timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, key)
);

-- seq is the offset of the entry's first byte in its file: the primary key admits one entry at each place, so a log
-- cannot fork, and a part of a log is found by its offset.
CREATE TABLE reverie.entries (
    tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    file   bigint NOT NULL,
    seq    bigint NOT NULL,
    fence  bigint,                         -- the fencing number of the lease under which it was written
    data   bytea,                          -- NULL if the bytes are in reverie.blobs
    blob   bytea,
    PRIMARY KEY (tenant, file, seq)
);

CREATE TABLE reverie.blobs (
    tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    digest bytea NOT NULL,                 -- SHA-256
    uses   bigint NOT NULL,                -- the entries that name it
    data   bytea NOT NULL,
    PRIMARY KEY (tenant, digest)
);

-- A row stays after its release, so that its fencing number only grows.
CREATE TABLE reverie.leases (
    tenant  text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    name    text COLLATE "C" NOT NULL,
    holder  text NOT NULL,
    process text NOT NULL,                 -- the holder's process, for a take-over on the same machine
    fence   bigint NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 50);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['files', 'entries', 'blobs', 'leases'] LOOP
        EXECUTE format('ALTER TABLE reverie.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE reverie.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON reverie.%I USING (tenant = current_setting(''reverie.tenant'', true)) '
            'WITH CHECK (tenant = current_setting(''reverie.tenant'', true))', name);
    END LOOP;
END
$$;

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
