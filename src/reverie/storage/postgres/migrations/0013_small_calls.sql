-- A row of a call takes half the room: NULL in place of the usual value, of a zero, and of an expected value that is the actual
-- one. Rows that are there keep what they have.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['source', 'layer', 'reason', 'broke', 'lost_usd', 'lost_tokens',
        'read', 'write_5m', 'write_1h', 'uncached', 'output',
        'expected_read', 'expected_write_5m', 'expected_write_1h', 'expected_uncached', 'expected_output'] LOOP
        EXECUTE format('ALTER TABLE reverie.calls ALTER COLUMN %1$I DROP DEFAULT, ALTER COLUMN %1$I DROP NOT NULL', name);
        IF name ~ '(read|write_..|uncached|output|tokens)$' THEN
            EXECUTE format('ALTER TABLE reverie.calls ALTER COLUMN %1$I TYPE int USING least(%1$I, 2147483647)', name);
        END IF;
    END LOOP;
END
$$;
