-- A list counts the existing machines of each cluster and shows its newest plan. Both are answered by an index alone.
DROP INDEX machines_cluster;
CREATE INDEX machines_cluster ON machines (cluster_uid, deleted_at);
DROP INDEX plans_cluster;
CREATE INDEX plans_cluster ON plans (cluster, created_at DESC, id);
