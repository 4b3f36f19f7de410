-- Where other directors reach this one; empty for one that does not say.
ALTER TABLE instances ADD COLUMN address TEXT NOT NULL DEFAULT '';
