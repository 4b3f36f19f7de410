"""An appliance of 2 vCPUs and 4 GB that keeps 200 clusters of 5 nodes on pretended hypervisors.

An emulated one would need hours to make so many. A director of the same tree makes them on this machine, the appliance
goes on with its data, and makes some more beside them. KAAS_SIZING is the number of clusters that it is given."""

import json
import os
import statistics
import subprocess
import time

from vms import PASSWORD, VM, WORK, Director, answers, check, ctl, first_boot, good, simulated, wait
from world import clusters, fill, pretend, settings

CLUSTERS, MORE, WORKERS, MEMORY = int(os.environ.get("KAAS_SIZING", "200")), 3, 4, 4096
SIMULATION = {"plays": {"tasks": 3, "latency": "50ms"}}
DATA = "/data/director"


def ready(director: Director) -> int:
    """Return how many clusters are ready."""
    counted = ctl(director, "summary", "-o", "json")
    if counted.returncode:
        raise AssertionError(counted.stdout + counted.stderr)
    states = json.loads(counted.stdout)["cluster_status"]
    if states.get("failed"):
        raise AssertionError(f"{states['failed']} clusters failed")
    return states.get("ready", 0)


def listed(director: Director) -> float:
    """Return the seconds that the list of all clusters takes as directorctl has it."""
    began = time.monotonic()
    done = ctl(director, "get", "clusters", "-o", "json")
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return time.monotonic() - began


def make(director: Director, count: int, *names: str) -> float:
    """Make clusters beside those that are there until all of the count are ready; return the seconds it took."""
    began = time.monotonic()
    good(f"{len(names)} clusters are stored, planned and started",
         ctl(director, "apply", "-f", clusters(director, WORKERS, *names), "--start", "--yes"))
    wait("the fleet", lambda: ready(director) == count, limit=3600)
    return time.monotonic() - began


def grown(world: str) -> str:
    """Make the fleet with a director on this machine, and return its state directory."""
    here = Director("grown", "127.0.0.1:18443")
    top = f"{WORK}/{here.name}-files"
    state = f"{top}/state"
    os.makedirs(state)
    with open(f"{top}/password", "w", encoding="utf-8") as f:
        f.write(PASSWORD + "\n")
    with open(f"{top}/director.yaml", "w", encoding="utf-8") as f:
        json.dump(settings(SIMULATION) | {
            "stateDir": state, "address": "127.0.0.1", "adminPasswordFile": f"{top}/password", "forks": 200,
        }, f)
    with simulated(here, state, "-config", f"{top}/director.yaml", world):
        good("the director on this machine takes the password", here.login(f"{state}/tls/ca.crt"))
        took = make(here, CLUSTERS, *(f"c{i:03d}" for i in range(CLUSTERS)))
    print(f"        {CLUSTERS} clusters of {WORKERS + 1} nodes were made in {took:.0f} s on this machine", flush=True)
    return state


def move(state: str, world: str, vm: VM) -> None:
    """Replace the state of the appliance's director by that of one that has ended."""
    vm.on(f"sudo systemctl stop director && sudo mv {DATA} {DATA}.own", check=True)
    packed = subprocess.run(["tar", "-C", state, "-c", "."], capture_output=True, check=True).stdout
    vm.send(packed, f"sudo install -d -o director -g director -m 0700 {DATA} && sudo tar -C {DATA} -x --no-same-owner "
            f"&& sudo chown -R director:director {DATA}")
    vm.on("sudo director setup apply && sudo systemctl start director", check=True)
    wait("the director with the fleet", lambda: answers(vm.address))
    good("the API takes the password", vm.login(vm.authority()))
    # The director on this machine had images and bundles below its state directory.
    good("it has its own images and bundles", ctl(vm, "apply", "-f", world))


def spent(vm: VM) -> float:
    """Return the seconds of a core that the service has used."""
    text = vm.on("cat /sys/fs/cgroup/system.slice/director.service/cpu.stat", check=True).stdout
    return int(text.split()[1]) / 1e6


def sizing() -> None:
    """Give an appliance the fleet, and look at what the director and the machine use of memory, cores and disk."""
    vm = VM("sizing", "10.89.0.15", "52:54:00:89:00:15", memory=MEMORY)
    first_boot(vm)
    pretend(vm, SIMULATION)
    fill(vm)
    world = f"{WORK}/{vm.name}-files/world.yaml"
    move(grown(world), world, vm)
    check(f"it has {CLUSTERS} ready clusters of {WORKERS + 1} nodes", ready(vm) == CLUSTERS)
    took = make(vm, CLUSTERS + MORE, *(f"more-{i}" for i in range(MORE)))
    lists = [listed(vm) for _ in range(11)]
    time.sleep(120)  # the records of what it did are swept
    before, since = spent(vm), time.monotonic()
    time.sleep(60)
    idle = (spent(vm) - before) / (time.monotonic() - since)
    seen = vm.on(f"cat /proc/$(systemctl show -P MainPID director)/status /proc/meminfo; sudo du -sm {DATA}",
                 check=True).stdout
    kib = {line.split(":")[0]: int(line.split()[1]) for line in seen.splitlines() if line.endswith(" kB")}
    disk = seen.splitlines()[-1].split()[0]
    # The director has another address now, and each cluster is told the keys of its tokens again meanwhile.
    print(f"        {MORE} more were made in {took:.0f} s, while the others were told its address; it took "
          f"{kib['VmHWM'] / 1024:.0f} MiB at most, {kib['VmRSS'] / 1024:.0f} MiB now, and {100 * idle:.1f} % of an "
          f"emulated core while idle; the VM has {kib['MemAvailable'] / 1024:.0f} of {kib['MemTotal'] / 1024:.0f} MiB "
          f"left; {DATA} has {disk} MiB; the list of all took {statistics.median(lists):.2f} s (median of "
          f"{len(lists)}), {max(lists):.2f} s at most", flush=True)
    check("the director held less than half of the memory", kib["VmHWM"] < MEMORY * 1024 / 2, str(kib["VmHWM"]))
    check("a quarter of the memory is left", kib["MemAvailable"] > MEMORY * 1024 / 4, str(kib["MemAvailable"]))
    oom = vm.on("sudo journalctl -k --no-pager --grep 'Out of memory'")
    check("no process ended for want of memory", "Out of memory" not in oom.stdout, oom.stdout)
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)
    check("all clusters are ready still", ready(vm) == CLUSTERS + MORE)
    vm.forget()
    vm.destroy()
