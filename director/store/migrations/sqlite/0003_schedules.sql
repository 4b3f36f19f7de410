-- Which slots of its schedule have been dealt with: all up to cursor. Times are microseconds since 1970 in UTC; 0 is "not yet".
CREATE TABLE schedule_cursors (
    uid      TEXT PRIMARY KEY,
    position BIGINT NOT NULL
);

-- The record of every slot. The key lets one of several directors have it.
CREATE TABLE schedule_runs (
    uid         TEXT NOT NULL,
    slot        BIGINT NOT NULL,
    attempt     BIGINT NOT NULL,
    schedule    TEXT NOT NULL,
    job         TEXT NOT NULL,
    asked_by    TEXT NOT NULL,
    status      TEXT NOT NULL,
    missed      BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    message     TEXT NOT NULL,
    hint        TEXT NOT NULL,
    plan_id     TEXT NOT NULL,
    owner       TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (uid, slot, attempt)
);
CREATE INDEX schedule_runs_leased ON schedule_runs (lease_until) WHERE status = 'running';
