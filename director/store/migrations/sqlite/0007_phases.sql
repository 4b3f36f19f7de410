-- Tasks of an outer plan under the ids of its own. A row is written before anything is planned; revision decides between two who move it at once.
CREATE TABLE phase_tasks (
    id          TEXT PRIMARY KEY,
    request     TEXT NOT NULL,
    asked_by    TEXT NOT NULL,
    state       TEXT NOT NULL,
    message     TEXT NOT NULL,
    hint        TEXT NOT NULL,
    parts       TEXT NOT NULL,
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    revision    BIGINT NOT NULL
);
