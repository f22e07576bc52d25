-- The tables of procrastinate carry the tenant of each job. A program sees the jobs of its own tenant, a worker those of
-- all: its role stands in worker_roles. engine.py adds later columns and policies, also to tables that are there.

ALTER TABLE procrastinate_jobs ADD COLUMN tenant text GENERATED ALWAYS AS (args ->> 'tenant') STORED;
ALTER TABLE procrastinate_jobs ADD CONSTRAINT has_tenant CHECK (tenant <> '' AND tenant IS NOT NULL);
CREATE INDEX ON procrastinate_jobs (tenant, status);
CREATE TABLE worker_roles (role name PRIMARY KEY);

ALTER TABLE procrastinate_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE procrastinate_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON procrastinate_jobs USING (tenant = current_setting('reverie.tenant', true));
ALTER TABLE procrastinate_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE procrastinate_events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON procrastinate_events USING (
    EXISTS (SELECT FROM reverie_jobs.procrastinate_jobs AS job WHERE job.id = job_id)
);
