"""An appliance of 2 vCPUs and 4 GB that keeps 200 clusters of 5 nodes on pretended hypervisors. An emulated one needs
hours for so many; KAAS_SIZING is their number."""

import json
import os
import statistics
import time

from vms import VM, check, ctl, first_boot, good, wait
from world import clusters, fill, pretend

CLUSTERS, WORKERS, MEMORY = int(os.environ.get("KAAS_SIZING", "200")), 4, 4096


def ready(vm: VM, lists: list) -> int:
    """Return how many clusters are ready, and add how long the list of all took as directorctl has it."""
    began = time.monotonic()
    listed = ctl(vm, "get", "clusters", "-o", "json")
    lists.append(time.monotonic() - began)
    counted = ctl(vm, "summary", "-o", "json")
    if listed.returncode or counted.returncode:
        raise AssertionError(listed.stderr + counted.stdout + counted.stderr)
    states = json.loads(counted.stdout)["cluster_status"]
    if states.get("failed"):
        raise AssertionError(f"{states['failed']} clusters failed")
    return states.get("ready", 0)


def spent(vm: VM) -> float:
    """Return the seconds of a core that the service has used."""
    text = vm.on("cat /sys/fs/cgroup/system.slice/director.service/cpu.stat", check=True).stdout
    return int(text.split()[1]) / 1e6


def sizing() -> None:
    """Create the fleet, and look at what the director and the machine have used of their memory, cores and disk."""
    vm = VM("sizing", "10.89.0.15", "52:54:00:89:00:15", memory=MEMORY)
    first_boot(vm)
    pretend(vm, {"plays": {"tasks": 3, "latency": "50ms"}})
    fill(vm)
    file = clusters(vm, WORKERS, *(f"c{i:03d}" for i in range(CLUSTERS)))
    lists, began = [], time.monotonic()
    done = ctl(vm, "apply", "-f", file, "--start", "--yes")
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
