-- A service account is a program's user: it has no password, and API tokens alone.
ALTER TABLE users ADD COLUMN service INTEGER NOT NULL DEFAULT 0;
-- A token of a login, of a browser, or for the API. idle is in microseconds; 0 means that a token ends at expires_at alone.
ALTER TABLE tokens ADD COLUMN kind TEXT NOT NULL DEFAULT 'login';
ALTER TABLE tokens ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN scope TEXT NOT NULL DEFAULT 'all';
ALTER TABLE tokens ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX tokens_names ON tokens (user_name, name) WHERE kind = 'api';
