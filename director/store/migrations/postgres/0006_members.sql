-- Which version a machine runs as a member of its cluster; empty while it is none.
ALTER TABLE machines ADD COLUMN kubernetes TEXT NOT NULL DEFAULT '';
