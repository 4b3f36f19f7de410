-- Disks that outlived their VMs, with the node that each was kept of, so that they are listed, taken over or deleted by a person, and never forgotten.
-- machine is empty for a disk that somebody else had attached. holder is the machine that took the disk over, or - while it is deleted.
CREATE TABLE kept_disks (
    id          TEXT PRIMARY KEY,
    provider    TEXT NOT NULL,
    name        TEXT NOT NULL,
    host        TEXT NOT NULL,
    machine     TEXT NOT NULL,
    serial      TEXT NOT NULL,
    size        BIGINT NOT NULL,
    cluster_uid TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    pool        TEXT NOT NULL,
    node        TEXT NOT NULL,
    plan_id     TEXT NOT NULL,
    kept_at     BIGINT NOT NULL,
    holder      TEXT NOT NULL
);
CREATE INDEX kept_disks_holder ON kept_disks (holder);
CREATE INDEX kept_disks_plan ON kept_disks (plan_id);
