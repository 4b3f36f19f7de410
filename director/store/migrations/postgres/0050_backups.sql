-- Backups of clusters that are complete in their targets.
CREATE TABLE backups (
    id          TEXT PRIMARY KEY,
    cluster     TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    target      TEXT NOT NULL,
    made_at     BIGINT NOT NULL,
    plan_id     TEXT NOT NULL,
    manifest    TEXT NOT NULL, -- as in the target
    verified_at BIGINT NOT NULL,   -- when the archive was last read to its end
    problem     TEXT NOT NULL  -- what was wrong with it then
);
CREATE INDEX backups_cluster ON backups (cluster_uid, made_at);
