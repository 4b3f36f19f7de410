-- How often in a row a step was interrupted, and until when it may be not ready.
ALTER TABLE plan_steps ADD COLUMN interruptions BIGINT NOT NULL DEFAULT 0;
ALTER TABLE plan_steps ADD COLUMN deadline BIGINT NOT NULL DEFAULT 0;
