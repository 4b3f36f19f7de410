-- What happened on the director, in the order in which it was committed; there is one writer at a time. The texts are those of the
-- audit trail and of the journals, so that a reader needs no other table.
CREATE TABLE stream (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    source  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    cluster TEXT NOT NULL,
    what    TEXT NOT NULL,
    actor   TEXT NOT NULL,
    step    TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    message TEXT NOT NULL,
    hint    TEXT NOT NULL
);
CREATE INDEX stream_cluster ON stream (cluster, id);
CREATE INDEX stream_at ON stream (at);
