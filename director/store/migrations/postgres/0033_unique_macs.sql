-- No two adapters of the living have the same MAC address. Those that had one from before are numbered, so that they stay as they are: a VM's address never changes.
-- New rows have the number 0.
ALTER TABLE machine_nics ADD COLUMN mac_double INTEGER NOT NULL DEFAULT 0;
UPDATE machine_nics SET mac_double = (
    SELECT count(*) FROM machine_nics AS other WHERE other.mac = machine_nics.mac AND other.deleted_at = 0
        AND (other.machine_id < machine_nics.machine_id OR other.machine_id = machine_nics.machine_id AND other.ord < machine_nics.ord)
) WHERE deleted_at = 0 AND mac IN (SELECT mac FROM machine_nics WHERE deleted_at = 0 AND mac <> '' GROUP BY mac HAVING count(*) > 1);
CREATE UNIQUE INDEX machine_nics_mac ON machine_nics (mac, mac_double) WHERE deleted_at = 0 AND mac <> '';
