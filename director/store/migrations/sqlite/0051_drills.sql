-- A restore drill touches no node of its cluster: it holds up another drill of it, and nothing else.
DROP INDEX plans_holder;
CREATE UNIQUE INDEX plans_holder ON plans (cluster) WHERE phase IN ('running', 'paused', 'cancelling', 'parked', 'undoing') AND operation <> 'cluster.drill';
CREATE UNIQUE INDEX plans_drill ON plans (cluster) WHERE phase IN ('running', 'paused', 'cancelling', 'parked', 'undoing') AND operation = 'cluster.drill';

-- What restore drills have shown. They outlive their plans and their backups.
CREATE TABLE drills (
    plan_id     TEXT PRIMARY KEY,
    cluster     TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    backup      TEXT NOT NULL,
    began_at    INTEGER NOT NULL,
    answered_at INTEGER NOT NULL, -- when what it asked was as the backup's manifest has it; 0 until then
    ended_at    INTEGER NOT NULL, -- when its VM was gone; 0 until then
    problem     TEXT NOT NULL,  -- why it did not succeed
    keys        INTEGER NOT NULL  -- that were compared
);
CREATE INDEX drills_cluster ON drills (cluster_uid, began_at);
