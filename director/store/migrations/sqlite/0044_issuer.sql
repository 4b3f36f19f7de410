-- The keys that sign tokens for clusters. The private halves are secrets. A user's uid is never that of another one.
CREATE TABLE issuer_keys (
    id           TEXT PRIMARY KEY,
    public       TEXT NOT NULL,    -- a JSON Web Key
    published_at INTEGER NOT NULL,
    starts_at    INTEGER NOT NULL  -- signs from here until the next one starts
);
ALTER TABLE users ADD COLUMN uid TEXT NOT NULL DEFAULT '';
UPDATE users SET uid = 'p' || lower(hex(randomblob(10)));
