"""An appliance of an earlier commit that is upgraded to this one, and back: what it had has to stay."""

import json
import os
import time

from vms import DISKS, IMAGE, VM, check, creation, ctl, first_boot, good, manifest, plays, schema, steps, wait
from world import clusters, fill, pretend

# Plays that are slow enough for an upgrade to begin and to end in one.
SIMULATION = {"boot": "20s", "plays": {"tasks": 10, "latency": "3s"}}
KINDS = ("providers", "networks", "releases", "images", "clusters", "schedules", "grants")


def documents(vm: VM) -> dict:
    """Return the specs of all documents by kind and name."""
    found = {}
    for kind in KINDS:
        listed = ctl(vm, "get", kind, "-o", "json")
        if listed.returncode:
            raise AssertionError(listed.stdout + listed.stderr)
        for item in json.loads(listed.stdout)["items"]:
            found[f"{kind}/{item['name']}"] = item["document"]["spec"]
    return found


def before() -> None:
    """Upgrade an appliance of an earlier commit in the middle of a plan, and go back to it."""
    earlier = os.environ["APPLIANCE_TEST_BEFORE"]
    vm = VM("before", "10.89.0.16", "52:54:00:89:00:16", image=f"{earlier}/director.qcow2")
    (former, _, _), (version, _, known) = manifest(earlier), manifest(os.path.dirname(IMAGE))
    data = first_boot(vm)
    pretend(vm, SIMULATION)
    fill(vm)
    old = schema(vm)
    check(f"version {former} runs, with the schema {old}", running(vm) == former, running(vm))
    first = creation(vm, clusters(vm, 2, "first"), "first")
    good("its plan ends", ctl(vm, "follow", first))
    second = creation(vm, clusters(vm, 2, "second"), "second")
    wait("a play runs", lambda: plays(vm, second))
    kept, ended = documents(vm), steps(vm, first)

    began = time.monotonic()
    good("it is upgraded in the middle of a plan",
         ctl(vm, "appliance", "upgrade", f"{os.path.dirname(IMAGE)}/director-upgrade.tar", "--yes", "--within", "40m"),
         f"The director is version {version} (root b)")
    print(f"        after {time.monotonic() - began:.0f} s", flush=True)
    vm.forget()
    vm.wait_ssh()
    wait("it takes changes", lambda: running(vm) == version)
    good("the plan goes on to its end", ctl(vm, "follow", second))
    check("each of its steps is done", set(steps(vm, second).values()) == {"done"}, str(steps(vm, second)))
    check(f"the schema is {schema(vm)} now", schema(vm).startswith(known), schema(vm))
    check("the documents are those of before", documents(vm) == kept, str(documents(vm)))
    check("the first plan is as it was", steps(vm, first) == ended, str(steps(vm, first)))
    good("its cluster's authority can be unsealed", ctl(vm, "kubeconfig", "first", "--admin"), "client-key-data")
    third = creation(vm, clusters(vm, 2, "third"), "third")
    good("the plan of a new cluster ends", ctl(vm, "follow", third))
    good("a cluster of before is deleted", ctl(vm, "delete", "cluster", "first", "--yes", "--wait"))
    healthy(vm)
    back(vm, former, old, kept, data)
    vm.forget()
    vm.destroy()


def back(vm: VM, former: str, old: str, kept: dict, data: str) -> None:
    """Go back to the version of before: refused while it would lose changes, and then by what was saved."""
    if schema(vm) != old:
        refused = ctl(vm, "appliance", "rollback", "--yes")
        check("a rollback that would lose changes is refused", refused.returncode != 0 and
              "does not know the database" in refused.stdout + refused.stderr, refused.stdout + refused.stderr)
    began = time.monotonic()
    good("a rollback restores what was saved",
         ctl(vm, "appliance", "rollback", "--lose-changes", "--yes", "--within", "40m"),
         f"The director is version {former} (root a)")
    print(f"        after {time.monotonic() - began:.0f} s", flush=True)
    vm.forget()
    vm.wait_ssh()
    wait("it takes changes", lambda: running(vm) == former)
    check("the schema is that of before", schema(vm) == old, schema(vm))
    check("the documents are those of before the upgrade", documents(vm) == kept, str(documents(vm)))
    healthy(vm)

    vm.forget()
    vm.stop()
    os.remove(f"{DISKS}/{vm.name}-root.qcow2")
    vm.image = IMAGE
    vm.start(vm.disk("root"), data)
    vm.page()
    vm.wait_ssh()
    wait("a root disk of this version takes changes", lambda: ctl(vm, "get", "clusters").returncode == 0)
    check("a new root disk finds the documents of before", documents(vm) == kept, str(documents(vm)))
    if not schema(vm).startswith(old[:4]):
        returned(vm, former, kept)
    healthy(vm)


def returned(vm: VM, former: str, kept: dict) -> None:
    """The new root disk has copied the data before it changed the database; that copy is restored."""
    good("a cluster is deleted", ctl(vm, "delete", "cluster", "first", "--yes", "--wait"))
    asked = vm.on("sudo director setup return")
    check("data of the former root disk was copied, and is not restored unasked", asked.returncode != 0 and
          f"the data of version {former}" in asked.stderr, asked.stdout + asked.stderr)
    good("it is restored", vm.on("sudo director setup return --lose-changes"), f"The data of version {former}")
    wait("it takes changes", lambda: ctl(vm, "get", "clusters").returncode == 0)
    check("with the documents of then", documents(vm) == kept, str(documents(vm)))


def running(vm: VM) -> str:
    """Return the version that runs, or nothing while nobody answers."""
    return json.loads(ctl(vm, "appliance", "status", "-o", "json").stdout or "{}").get("running", {}).get("version", "")


def healthy(vm: VM) -> None:
    """Check that no unit failed."""
    failed = vm.on("systemctl --failed --no-legend --plain").stdout
    check("no unit failed", not failed, failed)
