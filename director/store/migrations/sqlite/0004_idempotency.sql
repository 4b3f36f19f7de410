-- Requests that must happen once, with their answers, until they expire. The same text runs on PostgreSQL but for BYTEA.
CREATE TABLE once (
    actor         TEXT NOT NULL,
    name          TEXT NOT NULL,
    request       TEXT NOT NULL,
    claim         TEXT NOT NULL,
    claimed_until BIGINT NOT NULL,
    witness       TEXT NOT NULL,
    status        BIGINT NOT NULL,
    header        TEXT NOT NULL,
    body          BLOB NOT NULL,
    expires_at    BIGINT NOT NULL,
    PRIMARY KEY (actor, name)
);
CREATE INDEX once_expired ON once (expires_at);
