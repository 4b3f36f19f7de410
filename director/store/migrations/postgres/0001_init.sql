-- Times are microseconds since 1970 in UTC; 0 is "not yet".

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE documents (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    uid        TEXT NOT NULL UNIQUE,
    generation BIGINT NOT NULL,
    body       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What was really installed; a cluster's document says what should be.
CREATE TABLE clusters (
    uid                  TEXT PRIMARY KEY,
    name                 TEXT NOT NULL UNIQUE,
    installed_generation BIGINT NOT NULL,
    installed_body       TEXT NOT NULL,
    endpoint             TEXT NOT NULL,
    installed_at         BIGINT NOT NULL
);

-- The ledger. A row is written before the hypervisor is asked for anything, and outlives the VM as a tombstone, so that an id is never used twice.
CREATE TABLE machines (
    id          TEXT PRIMARY KEY,
    cluster_uid TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    name        TEXT NOT NULL,
    role        TEXT NOT NULL,
    pool        TEXT NOT NULL,
    provider    TEXT NOT NULL,
    network     TEXT NOT NULL,
    image       TEXT NOT NULL,
    address     TEXT NOT NULL,
    mac         TEXT NOT NULL,
    host        TEXT NOT NULL,
    vm_id       TEXT NOT NULL,
    cpus        BIGINT NOT NULL,
    memory      BIGINT NOT NULL,
    state       TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    deleted_at  BIGINT NOT NULL
);
CREATE UNIQUE INDEX machines_name ON machines (cluster_uid, name) WHERE deleted_at = 0;
CREATE UNIQUE INDEX machines_address ON machines (network, address) WHERE deleted_at = 0;

CREATE TABLE plans (
    id          TEXT PRIMARY KEY,
    operation   TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    hash        TEXT NOT NULL,
    content     TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    phase       TEXT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    message     TEXT NOT NULL,
    hint        TEXT NOT NULL,
    seq         BIGINT NOT NULL
);
CREATE INDEX plans_newest ON plans (created_at DESC);
-- One plan at a time holds a cluster.
CREATE UNIQUE INDEX plans_holder ON plans (cluster) WHERE phase IN ('running', 'cancelling', 'parked');

CREATE TABLE plan_steps (
    plan_id     TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    step_id     TEXT NOT NULL,
    ord         BIGINT NOT NULL,
    status      TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    failures    BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    not_before  BIGINT NOT NULL,
    message     TEXT NOT NULL,
    hint        TEXT NOT NULL,
    lease_owner TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (plan_id, step_id)
);
CREATE INDEX plan_steps_leased ON plan_steps (status) WHERE status IN ('running', 'waiting');

-- The journal, the truth about every run. The key makes a second writer of the same sequence number fail.
CREATE TABLE events (
    plan_id TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
    seq     BIGINT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (plan_id, seq)
);

-- Sealed blobs; the key to them is not in this database.
CREATE TABLE secrets (
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (owner, name)
);

CREATE TABLE users (
    name        TEXT PRIMARY KEY,
    role        TEXT NOT NULL,
    password    TEXT NOT NULL,
    must_change BOOLEAN NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

CREATE TABLE tokens (
    hash       TEXT PRIMARY KEY,
    user_name  TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- Who did what.
CREATE TABLE audit (
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL
);
