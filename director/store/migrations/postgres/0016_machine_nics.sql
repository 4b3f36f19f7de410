-- Every adapter of every machine with its address, so that an address is given away once on a network, whatever it is for. The adapter with ord 0 is the
-- machine's first; machines of before have that alone. Rows of tombstones stay, as the tombstones do.
CREATE TABLE machine_nics (
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    ord        INTEGER NOT NULL,
    role       TEXT NOT NULL,
    network    TEXT NOT NULL,
    address    TEXT NOT NULL,
    mac        TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    PRIMARY KEY (machine_id, ord)
);
INSERT INTO machine_nics (machine_id, ord, role, network, address, mac, deleted_at)
    SELECT id, 0, 'internal', network, address, mac, deleted_at FROM machines;
CREATE UNIQUE INDEX machine_nics_address ON machine_nics (network, address) WHERE deleted_at = 0;
