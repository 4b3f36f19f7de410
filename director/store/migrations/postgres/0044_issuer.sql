-- The keys that sign tokens for clusters. The private halves are secrets. A user's uid is never that of another one.
CREATE TABLE issuer_keys (
    id           TEXT PRIMARY KEY,
    public       TEXT NOT NULL,   -- a JSON Web Key
    published_at BIGINT NOT NULL,
    starts_at    BIGINT NOT NULL  -- signs from here until the next one starts
);
ALTER TABLE users ADD COLUMN uid TEXT NOT NULL DEFAULT '';
UPDATE users SET uid = 'p' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 20);
