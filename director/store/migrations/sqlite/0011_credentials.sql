-- Accounts of providers. The password is inside of the seal, with the name that it is for; the key is not in this database.
CREATE TABLE credentials (
    name       TEXT PRIMARY KEY,
    user_name  TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL
);
