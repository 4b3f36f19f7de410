-- 1 for a director that binds what it seals to the owner and the name of its row. As long as one does not, rows without a binding are accepted.
ALTER TABLE instances ADD COLUMN binds BIGINT NOT NULL DEFAULT 0;
