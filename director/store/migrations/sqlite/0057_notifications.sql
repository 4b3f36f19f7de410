-- What people are told: what was found, the messages about it, and who sends them.
CREATE TABLE notification_items (
    notification TEXT NOT NULL,   -- uid of the document
    item         TEXT NOT NULL,   -- key of what was found
    body         TEXT NOT NULL,   -- JSON
    seen_at      INTEGER NOT NULL,
    message      TEXT NOT NULL,   -- id of the message that tells of it; empty before there is one
    told_at      INTEGER NOT NULL, -- when it was put into a message
    resolved_at  INTEGER NOT NULL, -- when it was found to be over; 0 while it holds
    PRIMARY KEY (notification, item)
);
CREATE INDEX notification_items_message ON notification_items (message);
CREATE TABLE notification_messages (
    id           TEXT PRIMARY KEY,
    notification TEXT NOT NULL,   -- uid of the document
    name         TEXT NOT NULL,   -- of the document
    state        TEXT NOT NULL,
    items        TEXT NOT NULL,   -- JSON
    more         INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    sent_at      INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    problem      TEXT NOT NULL,
    received     TEXT NOT NULL    -- JSON: addresses that have the mail
);
CREATE INDEX notification_messages_created ON notification_messages (created_at);
CREATE INDEX notification_messages_of ON notification_messages (notification, state);
CREATE TABLE notification_gone (
    notification TEXT PRIMARY KEY, -- uid of the document
    generation   INTEGER NOT NULL -- of the document whose endpoint said that it is gone
);
CREATE TABLE notification_sender (
    one         INTEGER PRIMARY KEY, -- always 1
    owner       TEXT NOT NULL,
    until       INTEGER NOT NULL
);
