-- How often in a row a step was interrupted, and until when it may be not ready.
ALTER TABLE plan_steps ADD COLUMN interruptions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE plan_steps ADD COLUMN deadline INTEGER NOT NULL DEFAULT 0;
