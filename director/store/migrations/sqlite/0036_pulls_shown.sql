-- From where credentials of clusters were shown that were set up without: a cluster no longer pulls without them once each of its nodes has shown them.
CREATE TABLE pulls_shown (
    cluster_uid TEXT NOT NULL,
    address     TEXT NOT NULL,
    PRIMARY KEY (cluster_uid, address)
);
