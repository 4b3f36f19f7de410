-- Since when a plan is in its phase and a step in its status, and who agreed to the start.
ALTER TABLE plans ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
ALTER TABLE plans ADD COLUMN approved_by TEXT NOT NULL DEFAULT '';
ALTER TABLE plan_steps ADD COLUMN since BIGINT NOT NULL DEFAULT 0;

-- A paused plan holds its cluster too, and so does one that is being undone.
DROP INDEX plans_holder;
CREATE UNIQUE INDEX plans_holder ON plans (cluster) WHERE phase IN ('running', 'paused', 'cancelling', 'parked', 'undoing');
DROP INDEX plan_steps_leased;
CREATE INDEX plan_steps_moving ON plan_steps (status) WHERE status IN ('running', 'waiting', 'undo_due', 'undoing');

-- What running steps have taken of budgets that all plans share, and who waits for some.
CREATE TABLE budget_uses (
    budget  TEXT NOT NULL,
    plan_id TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    step_id TEXT NOT NULL,
    PRIMARY KEY (budget, plan_id, step_id)
);
CREATE TABLE budget_waits (
    plan_id TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    step_id TEXT NOT NULL,
    budget  TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    since   BIGINT NOT NULL,
    PRIMARY KEY (plan_id, step_id)
);
CREATE INDEX budget_waits_first ON budget_waits (budget, since);

-- How long steps of a class have taken of late, for the estimates of plans.
CREATE TABLE step_times (
    class   TEXT PRIMARY KEY,
    micros  BIGINT NOT NULL,
    samples BIGINT NOT NULL
);
