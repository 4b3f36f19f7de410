-- Every start of a director on this database. A cluster has the id of the newest one; an id that is not here is of
-- another copy of this director.
CREATE TABLE director_runs (
    ord        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    host       TEXT    NOT NULL,
    started_at BIGINT  NOT NULL
);
-- Which take-over of this director has reached the cluster, and the other copy that has written into it since.
CREATE TABLE claims (
    cluster_uid TEXT   NOT NULL PRIMARY KEY,
    takeover    BIGINT NOT NULL DEFAULT 0,
    run         TEXT   NOT NULL DEFAULT '', -- of the other copy; empty for none
    host        TEXT   NOT NULL DEFAULT '',
    noticed_at  BIGINT NOT NULL DEFAULT 0
);
