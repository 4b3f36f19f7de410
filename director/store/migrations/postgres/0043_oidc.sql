-- Who a person is to an OpenID Connect provider, and the logins there that have been used.
ALTER TABLE users ADD COLUMN subject TEXT NOT NULL DEFAULT '';
CREATE TABLE used_logins (
    hash TEXT PRIMARY KEY, -- SHA-256 of the state
    at   BIGINT NOT NULL
);
