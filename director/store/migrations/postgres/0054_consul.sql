-- How the last comparison of each Consul with what is wanted there went. The body is JSON: what is shown, and not searched.
CREATE TABLE consul_states (
    consul    TEXT PRIMARY KEY,
    looked_at BIGINT NOT NULL, -- a comparison began; other directors wait for its period
    body      TEXT NOT NULL,
    confirmed TEXT NOT NULL -- the id of the removals that a person has agreed to
);
