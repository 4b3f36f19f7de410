-- Hypervisor hosts of which an administrator has said that they are off or cut off for good. They are asked nothing until they answer again.
CREATE TABLE lost_hosts (
    provider TEXT NOT NULL,
    host     TEXT NOT NULL,
    said_by  TEXT NOT NULL,
    plan_id  TEXT NOT NULL,
    said_at  INTEGER NOT NULL,
    PRIMARY KEY (provider, host)
);
CREATE INDEX machines_lost ON machines (provider) WHERE state = 'lost';
