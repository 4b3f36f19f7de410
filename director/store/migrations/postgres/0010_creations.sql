-- The VMs that were asked for of late, for the budgets of creations. A step counts once, however often it is tried.
CREATE TABLE creations (
    plan_id  TEXT NOT NULL,
    step_id  TEXT NOT NULL,
    provider TEXT NOT NULL,
    machine  TEXT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (plan_id, step_id)
);
CREATE INDEX creations_at ON creations (at);
