-- People whom an identity provider keeps: their provider, their name there, and when it last confirmed them.
ALTER TABLE users ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN full_name TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN checked_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX users_provider ON users (provider) WHERE provider <> '';
