-- Digest of the outer registries that the nodes of a cluster were told of; empty for none.
ALTER TABLE clusters ADD COLUMN installed_registries TEXT NOT NULL DEFAULT '';
