-- Certificates as they were seen last, and where.
CREATE TABLE certificates (
    id          TEXT PRIMARY KEY,
    cluster_uid TEXT NOT NULL, -- '' for the director's own
    cluster     TEXT NOT NULL,
    node        TEXT NOT NULL,
    source      TEXT NOT NULL, -- tls, file, api or database
    place       TEXT NOT NULL, -- address, path or object
    name        TEXT NOT NULL,
    ca          BOOLEAN NOT NULL,
    subject     TEXT NOT NULL,
    issuer      TEXT NOT NULL,
    serial      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    begins_at   BIGINT NOT NULL,
    ends_at     BIGINT NOT NULL,
    seen_at     BIGINT NOT NULL,
    asked_at    BIGINT NOT NULL, -- later than seen_at if it did not show itself
    problem     TEXT NOT NULL
);
CREATE INDEX certificates_where ON certificates (cluster_uid, node, source);
CREATE INDEX certificates_ends ON certificates (ends_at);
