-- Who keeps the VM of a machine on purpose while it is no member of its cluster; empty for nobody. What is out of its cluster now is kept, by whoever took it out.
ALTER TABLE machines ADD COLUMN kept_by TEXT NOT NULL DEFAULT '';
UPDATE machines SET kept_by = 'unknown' WHERE state = 'detached' AND kubernetes = '' AND deleted_at = 0;
