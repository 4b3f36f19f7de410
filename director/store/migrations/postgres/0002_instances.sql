-- The processes that run plans on this database, each with the time of its last sign of life.
CREATE TABLE instances (
    id         TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);

-- 1 once a person wants the running attempt to end now; its holder reads it when it renews the lease.
ALTER TABLE plan_steps ADD COLUMN stop_asked BIGINT NOT NULL DEFAULT 0;
