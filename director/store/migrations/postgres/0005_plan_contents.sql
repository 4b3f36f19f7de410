-- What is frozen of a plan stands apart from what every event changes: its content can be megabytes, and a row is written whole.
CREATE TABLE plan_contents (
    plan_id TEXT PRIMARY KEY REFERENCES plans (id) ON DELETE CASCADE,
    content TEXT NOT NULL
);
INSERT INTO plan_contents (plan_id, content) SELECT id, content FROM plans;

-- What lists show of it.
ALTER TABLE plans ADD COLUMN summary TEXT NOT NULL DEFAULT '';
ALTER TABLE plans ADD COLUMN estimate BIGINT NOT NULL DEFAULT 0;
UPDATE plans SET summary = COALESCE(content::json ->> 'summary', ''), estimate = COALESCE((content::json ->> 'estimate')::bigint, 0);
ALTER TABLE plans DROP COLUMN content;

CREATE INDEX plans_cluster ON plans (cluster, created_at);
