"""An appliance of 2 vCPUs and 4 GB that keeps 200 clusters of 5 nodes on pretended hypervisors. An emulated one needs
hours for so many; KAAS_SIZING is their number."""

import hashlib
import json
import os
import statistics
import subprocess
import time

from vms import VM, WORK, answers, check, ctl, first_boot, good, stand_ins, trusted_key, wait

CLUSTERS, WORKERS, MEMORY = int(os.environ.get("KAAS_SIZING", "200")), 4, 4096
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
metadata: {name: c%03d}
spec:
  release: k8s
  provider: lab
  image: node
  network: nodes
  masters: {count: 1, cpus: 2, memory: 4GiB, disk: 30GiB}
  workers: [{name: worker, count: %d, cpus: 1, memory: 4GiB, disk: 30GiB}]
"""


def fill(vm: VM) -> None:
    """Give the appliance the documents, and what it takes for a node image and a release bundle."""
    top = f"{WORK}/sizing-files"
    os.makedirs(f"{top}/data")
    image = hashlib.sha256(b"a stand-in for the node image node\n").hexdigest()
    with open(f"{top}/world.yaml", "w", encoding="utf-8") as f:
        f.write(WORLD % (HOSTS, image))
    with open(f"{top}/clusters.yaml", "w", encoding="utf-8") as f:
        f.write("".join(CLUSTER % (i, WORKERS) for i in range(CLUSTERS)))
    stand_ins(f"{top}/state", f"{top}/world.yaml", f"{top}/data")
    packed = subprocess.run(["tar", "-C", f"{top}/data", "-c", "bundles", "images"], capture_output=True, check=True)
    vm.send(packed.stdout, "sudo tar -C /data -x --no-same-owner && sudo chown -R director:director /data/bundles "
            "/data/images")
    good("the world is stored", ctl(vm, "apply", "-f", f"{top}/world.yaml"))


def ready(vm: VM, lists: list) -> int:
    """Return how many clusters are ready, and add how long the list took as directorctl has it."""
    began = time.monotonic()
    listed = ctl(vm, "get", "clusters", "-o", "json")
    lists.append(time.monotonic() - began)
    if listed.returncode:
        raise AssertionError(listed.stdout + listed.stderr)
    states = [c["status"] for c in json.loads(listed.stdout)["items"]]
    if "failed" in states:
        raise AssertionError(f"{states.count('failed')} clusters failed")
    return states.count("ready")


def spent(vm: VM) -> float:
    """Return the seconds of a core that the service has used."""
    text = vm.on("cat /sys/fs/cgroup/system.slice/director.service/cpu.stat", check=True).stdout
    return int(text.split()[1]) / 1e6


def sizing() -> None:
    """Create the fleet, and look at what the director and the machine have used of their memory, cores and disk."""
    vm = VM("sizing", "10.89.0.15", "52:54:00:89:00:15", memory=MEMORY)
    first_boot(vm)
    vm.send(json.dumps({
        "simulate": True, "creationsPerHour": 0, "trustedKeys": [trusted_key()],
        "simulation": {"plays": {"tasks": 3, "latency": "50ms"}},
    }).encode(), "sudo tee /data/etc/director.yaml >/dev/null")
    # A director that has begun on real hypervisors does not become a simulated one.
    vm.on("sudo systemctl stop director && sudo mv /data/director /data/director.alone && sudo director setup apply && "
          "sudo systemctl restart director", check=True)
    wait("the simulated director", lambda: answers(vm.address))
    check("the API takes the password", vm.login(vm.authority()).returncode == 0)
    fill(vm)
    lists, began = [], time.monotonic()
    done = ctl(vm, "apply", "-f", f"{WORK}/sizing-files/clusters.yaml", "--start", "--yes")
    good(f"{CLUSTERS} clusters are stored, planned and started in {time.monotonic() - began:.0f} s", done)
    wait("the fleet", lambda: ready(vm, lists) == CLUSTERS, limit=14400)
    check(f"{CLUSTERS} clusters of {WORKERS + 1} nodes are ready after {time.monotonic() - began:.0f} s", True)
    time.sleep(120)  # the records of what it did are swept
    before, since = spent(vm), time.monotonic()
    time.sleep(60)
    idle = (spent(vm) - before) / (time.monotonic() - since)
    seen = vm.on("cat /proc/$(systemctl show -P MainPID director)/status /proc/meminfo; sudo du -sm /data/director",
                 check=True).stdout
    kib = {line.split(":")[0]: int(line.split()[1]) for line in seen.splitlines() if line.endswith(" kB")}
    disk = seen.splitlines()[-1].split()[0]
    print(f"        the director: {kib['VmHWM'] / 1024:.0f} MiB at most, {kib['VmRSS'] / 1024:.0f} MiB now, "
          f"{100 * idle:.1f} % of an emulated core while idle; the VM has {kib['MemAvailable'] / 1024:.0f} of "
          f"{kib['MemTotal'] / 1024:.0f} MiB left; /data/director has {disk} MiB; the list of all took "
          f"{statistics.median(lists):.2f} s (median), {max(lists):.2f} s at most", flush=True)
    check("the director held less than half of the memory", kib["VmHWM"] < MEMORY * 1024 / 2, str(kib["VmHWM"]))
    check("a quarter of the memory is left", kib["MemAvailable"] > MEMORY * 1024 / 4, str(kib["MemAvailable"]))
    oom = vm.on("sudo journalctl -k --no-pager --grep 'Out of memory'")
    check("no process ended for want of memory", "Out of memory" not in oom.stdout, oom.stdout)
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)
    check("all clusters are ready still", ready(vm, lists) == CLUSTERS)
    vm.forget()
    vm.destroy()
