-- The audit trail is a chain: hash is the SHA-256 of the entry and of the hash before it. Rows with seq 0 and an id up to before_id are from before the chain.
ALTER TABLE audit ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN problem TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN request TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN diff TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN hash BLOB NOT NULL DEFAULT X'';
CREATE UNIQUE INDEX audit_seq ON audit (seq) WHERE seq > 0;
-- The one row is locked by who adds to the chain.
CREATE TABLE audit_head (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    seq       INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    before_id INTEGER NOT NULL
);
INSERT INTO audit_head (id, seq, hash, before_id) SELECT 1, 0, X'', COALESCE(MAX(id), 0) FROM audit;
CREATE TABLE audit_checkpoints (
    seq       INTEGER PRIMARY KEY,
    director  TEXT NOT NULL,
    hash      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    signature BLOB NOT NULL
);
