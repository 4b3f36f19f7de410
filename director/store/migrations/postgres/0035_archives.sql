-- What went out of the database into files. The director on host has the file; its checksum is in hexadecimal digits. Times are microseconds since 1970 in UTC.
CREATE TABLE plan_archives (
    plan_id     TEXT PRIMARY KEY,
    operation   TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    phase       TEXT NOT NULL,
    summary     TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    done        BIGINT NOT NULL,
    total       BIGINT NOT NULL,
    archived_at BIGINT NOT NULL,
    host        TEXT NOT NULL,
    file        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    size        BIGINT NOT NULL
);
CREATE INDEX plan_archives_cluster ON plan_archives (cluster, created_at);
CREATE TABLE audit_archives (
    name        TEXT PRIMARY KEY,
    month       TEXT NOT NULL,
    entries     BIGINT NOT NULL,
    archived_at BIGINT NOT NULL,
    host        TEXT NOT NULL,
    file        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    size        BIGINT NOT NULL
);
CREATE INDEX audit_at ON audit (at);
