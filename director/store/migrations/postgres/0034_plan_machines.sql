-- Which plan names which machine, so that nobody has to read all plans for it: with an empty step the machine is one of the plan's nodes, and otherwise the
-- step makes its VM. A plan whose indexed is 0 was written by an older director; whoever asks writes its rows first.
CREATE TABLE plan_machines (
    machine_id TEXT NOT NULL,
    plan_id    TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    step_id    TEXT NOT NULL,
    PRIMARY KEY (machine_id, plan_id, step_id)
);
CREATE INDEX plan_machines_plan ON plan_machines (plan_id);
ALTER TABLE plans ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX plans_unindexed ON plans (indexed) WHERE indexed = 0;
CREATE INDEX plans_phase ON plans (phase);
