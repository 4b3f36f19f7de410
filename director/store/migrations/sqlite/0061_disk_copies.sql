-- A data disk that is a copy names the disk that it was copied from, so that it is told from disks
-- that a node has left behind.
ALTER TABLE kept_disks ADD COLUMN copy_of TEXT NOT NULL DEFAULT '';
