-- Grants by whom they are for, projects of clusters and plans, and groups of people (a JSON list).
CREATE TABLE grants (
    document TEXT NOT NULL,
    provider TEXT NOT NULL, -- of a group; empty for a user
    subject  TEXT NOT NULL,
    role     TEXT NOT NULL,
    project  TEXT NOT NULL,
    cluster  TEXT NOT NULL,
    PRIMARY KEY (document, provider, subject)
);
CREATE INDEX grants_subject ON grants (provider, subject);
ALTER TABLE documents ADD COLUMN project TEXT NOT NULL DEFAULT '';
CREATE INDEX documents_project ON documents (project) WHERE project <> '';
ALTER TABLE plans ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE plan_archives ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN user_groups TEXT NOT NULL DEFAULT '';
