-- What was seen of nodes last. The body is JSON: what is shown, and not searched.
CREATE TABLE node_sights (
    machine_id  TEXT PRIMARY KEY,
    cluster_uid TEXT NOT NULL,
    state       TEXT NOT NULL, -- ready, cordoned, pending, problem or unseen
    kubelet     TEXT NOT NULL,
    problem     TEXT NOT NULL,
    ends_at     BIGINT NOT NULL, -- the soonest end of a certificate that is relied on; 0 if none was seen
    body        TEXT NOT NULL
);
CREATE INDEX node_sights_cluster ON node_sights (cluster_uid);
-- Which director looks at a cluster, and why it could not be asked.
CREATE TABLE cluster_sights (
    cluster_uid TEXT PRIMARY KEY,
    looked_at   BIGINT NOT NULL, -- a look began
    seen_at     BIGINT NOT NULL, -- the cluster answered last
    unseen      TEXT NOT NULL
);
