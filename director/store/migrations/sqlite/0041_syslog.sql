-- How far the audit trail has gone out to the log server, and which director sends it until when.
CREATE TABLE audit_sent (
    one   INTEGER PRIMARY KEY, -- always 1
    id    INTEGER NOT NULL,    -- of the last entry that has arrived
    seq   INTEGER NOT NULL,    -- its number in the chain; 0 for one from before it
    owner TEXT NOT NULL,
    until INTEGER NOT NULL
);
