-- What hooks are told and asked, written with the journal; and the keys that sign it. The secret halves are secrets.
CREATE TABLE hook_deliveries (
    id          TEXT PRIMARY KEY,
    hook        TEXT NOT NULL,
    plan_id     TEXT NOT NULL,    -- empty for a test
    seq         BIGINT NOT NULL, -- of the event in the journal that it was written with
    step_id     TEXT NOT NULL,
    event       TEXT NOT NULL,    -- JSON
    state       TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    next_at     BIGINT NOT NULL,
    deadline    BIGINT NOT NULL, -- 0 where no plan waits
    attempts    BIGINT NOT NULL,
    first_at    BIGINT NOT NULL, -- when it was first received
    http_status BIGINT NOT NULL,
    problem     TEXT NOT NULL,
    decision    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    answered_at BIGINT NOT NULL,
    replayed    BIGINT NOT NULL,
    old         BIGINT NOT NULL, -- 1 once its step was told to ask again
    lease_owner TEXT NOT NULL,
    lease_until BIGINT NOT NULL
);
CREATE INDEX hook_deliveries_due ON hook_deliveries (state, next_at);
CREATE INDEX hook_deliveries_plan ON hook_deliveries (plan_id, seq);
CREATE INDEX hook_deliveries_created ON hook_deliveries (created_at);
CREATE TABLE hook_keys (
    id         TEXT PRIMARY KEY,
    hook       TEXT NOT NULL,    -- uid of the document
    algorithm  TEXT NOT NULL,
    public     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL  -- 0 for the current key
);
CREATE INDEX hook_keys_hook ON hook_keys (hook);
CREATE TABLE hook_gone (
    hook       TEXT PRIMARY KEY, -- uid of the document
    generation BIGINT NOT NULL, -- of the document whose endpoint said that it is gone
    at         BIGINT NOT NULL
);
