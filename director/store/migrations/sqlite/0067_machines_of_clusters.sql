-- Planning reads the machines of a cluster, former ones included, and those of its provider. The unique index on
-- cluster_uid and name covers existing machines only.
CREATE INDEX machines_cluster ON machines (cluster_uid);
CREATE INDEX machines_provider ON machines (provider) WHERE deleted_at = 0;
