-- Campaigns with what people said of them. How far one is follows from the plans of its clusters.
CREATE TABLE campaigns (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    spec        TEXT NOT NULL, -- JSON
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    revision    BIGINT NOT NULL DEFAULT 0,
    paused_at   BIGINT NOT NULL DEFAULT 0,
    paused_by   TEXT NOT NULL DEFAULT '',
    reason      TEXT NOT NULL DEFAULT '',
    ended_at    BIGINT NOT NULL DEFAULT 0,
    ended_by    TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL DEFAULT '', -- the director that moves it on
    lease_until BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX campaigns_open ON campaigns (created_at) WHERE ended_at = 0;
CREATE TABLE campaign_clusters (
    campaign_id TEXT NOT NULL REFERENCES campaigns (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    uid         TEXT NOT NULL,
    project     TEXT NOT NULL DEFAULT '', -- when the campaign was made
    ord         BIGINT NOT NULL,
    wave        BIGINT NOT NULL DEFAULT 0,
    verdict     TEXT NOT NULL DEFAULT '',
    plan_id     TEXT NOT NULL DEFAULT '',
    message     TEXT NOT NULL DEFAULT '',
    hint        TEXT NOT NULL DEFAULT '',
    path        TEXT NOT NULL DEFAULT '', -- JSON
    difference  TEXT NOT NULL DEFAULT '',
    checked     BIGINT NOT NULL DEFAULT 0,
    agreed_hash TEXT NOT NULL DEFAULT '',
    agreed_by   TEXT NOT NULL DEFAULT '',
    agreed_at   BIGINT NOT NULL DEFAULT 0,
    skipped_by  TEXT NOT NULL DEFAULT '',
    skipped_at  BIGINT NOT NULL DEFAULT 0,
    why         TEXT NOT NULL DEFAULT '',
    tolerated   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (campaign_id, name)
);
CREATE INDEX campaign_clusters_plan ON campaign_clusters (plan_id) WHERE plan_id <> '';
