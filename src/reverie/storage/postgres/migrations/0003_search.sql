-- The distinct words of each log, by the offset at which a part begins: candidates of a search, which ranks them by the
-- messages themselves. It holds no text, can be rebuilt from the logs, and goes with them.
CREATE TABLE reverie.words (
    tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    key    text COLLATE "C" NOT NULL,
    start  bigint NOT NULL,
    file   bigint NOT NULL,
    upto   bigint NOT NULL,
    words  tsvector NOT NULL,
    PRIMARY KEY (tenant, key, start)
);
CREATE INDEX words_by_word ON reverie.words USING gin (words);
ALTER TABLE reverie.words ENABLE ROW LEVEL SECURITY;
ALTER TABLE reverie.words FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON reverie.words USING (tenant = current_setting('reverie.tenant', true))
    WITH CHECK (tenant = current_setting('reverie.tenant', true));
