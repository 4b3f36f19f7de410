-- What happened on the director, in the order in which it was committed: whoever inserts holds a lock until the commit. The texts are those of
-- the audit trail and of the journals, so that a reader needs no other table.
CREATE TABLE stream (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      BIGINT NOT NULL,
    source  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    cluster TEXT NOT NULL,
    what    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    step    TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    message TEXT NOT NULL,
    hint    TEXT NOT NULL
);
CREATE INDEX stream_cluster ON stream (cluster, id);
CREATE INDEX stream_at ON stream (at);
