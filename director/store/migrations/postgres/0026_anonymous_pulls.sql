-- Clusters whose nodes were set up without credentials for the registry. As long as there is one, whoever shows none may pull.
CREATE TABLE anonymous_pulls (
    cluster_uid TEXT PRIMARY KEY
);
INSERT INTO anonymous_pulls (cluster_uid) SELECT uid FROM clusters UNION SELECT cluster_uid FROM machines WHERE deleted_at = 0;
