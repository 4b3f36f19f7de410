"""manyNodes.py DATABASE CLUSTER PREFIX EACH: give each cluster whose name begins with PREFIX so many nodes, as copies
of the nodes of CLUSTER. The director must not run. Plans that make as many take hours."""

import ipaddress
import sqlite3
import sys
import uuid

path, model, prefix, each = *sys.argv[1:4], int(sys.argv[4])
db = sqlite3.connect(path)
db.row_factory = sqlite3.Row


def insert(table: str, row: dict) -> None:
    """Write a row."""
    columns = ", ".join(row)
    db.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def sight(machine: str) -> dict | None:
    """Return what was seen of the machine."""
    row = db.execute("SELECT * FROM node_sights WHERE machine_id = ?", (machine,)).fetchone()
    return dict(row) if row else None


of_role = "SELECT * FROM machines WHERE cluster = ? AND role = ? AND deleted_at = 0"
master, worker = (dict(db.execute(of_role, (model, role)).fetchone()) for role in ("master", "worker"))
installed = dict(db.execute("SELECT * FROM clusters WHERE name = ?", (model,)).fetchone())
sights = {m["id"]: sight(m["id"]) for m in (master, worker)}
address = ipaddress.ip_address("10.66.0.0")
with db:
    clusters = db.execute("SELECT uid, name FROM documents WHERE kind = 'Cluster' AND name LIKE ? || '%' AND name <> ?",
                          (prefix, model)).fetchall()
    for uid, name in clusters:
        insert("clusters", installed | {"uid": uid, "name": name})
        for n in range(each):
            like, address = worker if n else master, address + 1
            made = like | {
                "id": uuid.uuid4().hex[:20], "cluster_uid": uid, "cluster": name, "address": str(address),
                "name": like["name"].replace(model, name).replace("worker-1", f"worker-{n}"),
                "vm_id": str(uuid.uuid4()),
                "mac": "52:54:" + ":".join(f"{b:02x}" for b in address.packed),
            }
            insert("machines", made)
            if sights[like["id"]]:
                insert("node_sights", sights[like["id"]] | {"machine_id": made["id"], "cluster_uid": uid})
print(len(clusters) * each)
