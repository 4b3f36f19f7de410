"""An appliance whose hypervisors are pretended: its director is the real one, and so are its VM, disks and API."""

import hashlib
import json
import os
import subprocess

from vms import VM, WORK, Director, answers, ctl, good, stand_ins, trusted_key, wait

HOSTS = ", ".join("{name: h%d, cpus: 256, memory: 2TiB, disk: 64TiB}" % i for i in range(8))
WORLD = """apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: sim, sim: {hosts: [%s]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: nodes}
spec: {provider: lab, mode: open, cidr: 10.88.0.0/16, gateway: 10.88.0.1, pool: {from: 10.88.1.0, to: 10.88.9.250}}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s}
spec: {bundle: /data/bundles/k8s, kubernetes: v1.37.1, unsigned: it is made in this test}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: node}
spec: {source: /data/images/node.img, sha256: "%s", kubernetes: v1.37.1, unsigned: it is made in this test}
"""
CLUSTER = """---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: %s}
spec:
  release: k8s
  provider: lab
  image: node
  network: nodes
  masters: {count: 1, cpus: 2, memory: 4GiB, disk: 30GiB}
  workers: [{name: worker, count: %d, cpus: 1, memory: 4GiB, disk: 30GiB}]
"""


def world() -> str:
    """Return the documents that a cluster needs, with the checksum of the stand-in for a node image."""
    return WORLD % (HOSTS, hashlib.sha256(b"a stand-in for the node image node\n").hexdigest())


def settings(simulation: dict) -> dict:
    """Return the settings of a director whose hypervisors are pretended."""
    return {"simulate": True, "creationsPerHour": 0, "trustedKeys": [trusted_key()], "simulation": simulation}


def pretend(vm: VM, simulation: dict) -> None:
    """Have the director of an appliance that was set up pretend its hypervisors, and log in."""
    vm.send(json.dumps(settings(simulation)).encode(), "sudo tee /data/etc/director.yaml >/dev/null")
    # A director that has begun on real hypervisors does not become a simulated one.
    vm.on("sudo systemctl stop director && sudo mv /data/director /data/director.alone && sudo director setup apply && "
          "sudo systemctl restart director", check=True)
    wait("the simulated director", lambda: answers(vm.address))
    good("the API takes the password", vm.login(vm.authority()))


def clusters(director: Director, workers: int, *names: str) -> str:
    """Write the documents of clusters, and return their file."""
    file = f"{WORK}/{director.name}-files/{names[0]}.yaml"
    with open(file, "w", encoding="utf-8") as f:
        f.write("".join(CLUSTER % (name, workers) for name in names))
    return file


def fill(vm: VM) -> None:
    """Give the appliance the documents of a world, and what it takes for a node image and a release bundle."""
    top = f"{WORK}/{vm.name}-files"
    os.makedirs(f"{top}/data")
    with open(f"{top}/world.yaml", "w", encoding="utf-8") as f:
        f.write(world())
    stand_ins(f"{top}/state", f"{top}/world.yaml", f"{top}/data")
    packed = subprocess.run(["tar", "-C", f"{top}/data", "-c", "bundles", "images"], capture_output=True, check=True)
    vm.send(packed.stdout, "sudo tar -C /data -x --no-same-owner && sudo chown -R director:director /data/bundles "
            "/data/images")
    good("the world is stored", ctl(vm, "apply", "-f", f"{top}/world.yaml"))
