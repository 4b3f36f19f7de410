-- The images that were brought to providers, or are about to be: the row is there before the hypervisor is asked. Times are microseconds since
-- 1970 in UTC.
CREATE TABLE provider_images (
    provider   TEXT NOT NULL,
    name       TEXT NOT NULL,
    image      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    brought_at BIGINT NOT NULL,
    PRIMARY KEY (provider, name)
);
