-- How far the audit trail has gone out to the log server, and which director sends it until when.
CREATE TABLE audit_sent (
    one   BIGINT PRIMARY KEY, -- always 1
    id    BIGINT NOT NULL,    -- of the last entry that has arrived
    seq   BIGINT NOT NULL,    -- its number in the chain; 0 for one from before it
    owner TEXT NOT NULL,
    until BIGINT NOT NULL
);
