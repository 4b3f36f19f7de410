-- A schema that no release has: tests upgrade to it, and return from it; see director/store/embed_next.go.
CREATE TABLE next_schema (id TEXT PRIMARY KEY);
