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
