-- Who did what to a tenant's data, and the money that its calls cost. Rows of reverie.audit are never changed: the
-- role of the programs may insert and read them only.

ALTER TABLE reverie.blobs ALTER COLUMN data DROP NOT NULL;  -- NULL if the bytes are in an object store

CREATE TABLE reverie.audit (
    tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id     bigint GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    who    text NOT NULL,                  -- role, user and machine of the program
    act    text NOT NULL,                  -- erase, retain, export, move, delete
    detail jsonb NOT NULL,                 -- counts and hashes, never content
    PRIMARY KEY (tenant, id)
);

CREATE TABLE reverie.calls (
    tenant  text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id      text NOT NULL,                 -- the uuid of the call's log entry, so that a repeated insert changes nothing
    session text NOT NULL,
    project text NOT NULL,
    day     date NOT NULL,
    usd     double precision NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX ON reverie.calls (tenant, day) INCLUDE (project, usd);
CREATE INDEX ON reverie.calls (tenant, session);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['audit', 'calls'] LOOP
        EXECUTE format('ALTER TABLE reverie.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE reverie.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON reverie.%I USING (tenant = current_setting(''reverie.tenant'', true)) '
            'WITH CHECK (tenant = current_setting(''reverie.tenant'', true))', name);
    END LOOP;
END
$$;
