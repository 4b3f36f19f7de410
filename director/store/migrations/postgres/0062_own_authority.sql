-- The authority of all directors on this database while it changes and since it has changed, sealed. Every director
-- follows it.
CREATE TABLE own_authority (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    revision TEXT NOT NULL, -- digest of what clients trust, and of the stage
    sealed   BYTEA NOT NULL
);
-- The revision that the director has taken; empty for one that does not follow.
ALTER TABLE instances ADD COLUMN authority TEXT NOT NULL DEFAULT '';
