-- Programs that ask to be let in, until a person at a browser has answered and the program has fetched its token.
CREATE TABLE login_requests (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL, -- browser or device
    secret     TEXT NOT NULL, -- SHA-256 of the code that the program shows; empty for none yet
    user_code  TEXT NOT NULL, -- SHA-256 of what the person types; empty for a browser
    host       TEXT NOT NULL, -- where the program says that it runs
    address    TEXT NOT NULL, -- from where it asked
    redirect   TEXT NOT NULL,
    state      TEXT NOT NULL,
    challenge  TEXT NOT NULL,
    status     TEXT NOT NULL, -- waiting, allowed, refused or used
    user_name  TEXT NOT NULL,
    session    TEXT NOT NULL, -- hash of the session of the person who has allowed it
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    polled_at  BIGINT NOT NULL,
    pause      BIGINT NOT NULL -- between polls, in microseconds
);
CREATE INDEX login_requests_secret ON login_requests (secret);
CREATE INDEX login_requests_user_code ON login_requests (user_code);
-- When the person of a session proved who they are, if that was before the session began.
ALTER TABLE tokens ADD COLUMN entered_at BIGINT NOT NULL DEFAULT 0;
