"""An appliance that creates a cluster without a way out, is upgraded meanwhile, and loses a disk, and then
everything."""

import json
import os
import re
import time

from vms import (
    LIMIT, PASSWORD, ROOT, VM, WORK, Bundles, check, ctl, first_boot, good, sh, steps, trusted_key, wait)

HYPERVISOR = "10.91.0.2"  # of the lab with the nodes, which test.sh joins to that of the appliance
MODELS = f"{WORK}/models"


def on_hypervisor(*command: str) -> str:
    """Run a command on the hypervisor that the nodes are on."""
    return sh("ssh", "-n", "-F", "none", "-i", f"{WORK}/hypervisor.id", "-o", "BatchMode=yes", "-o",
              "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
              f"root@{HYPERVISOR}", *command).stdout


def write_models() -> None:
    """Write the documents of the demo for this hypervisor, and a place for backups."""
    os.makedirs(MODELS, exist_ok=True)
    for name in ("cluster", "network", "provider"):
        with open(f"{ROOT}/docs/examples/demo/{name}.yaml", encoding="utf-8") as f:
            text = f.read()
        text = text.replace("uri: qemu:///system",
                            f"uri: qemu+ssh://root@{HYPERVISOR}/system?keyfile=/data/etc/providers/lab")
        with open(f"{MODELS}/{name}.yaml", "w", encoding="utf-8") as f:
            f.write(text)
    if not os.path.exists(f"{WORK}/backups.key"):
        sh("age-keygen", "-o", f"{WORK}/backups.key")
    recipient = sh("age-keygen", "-y", f"{WORK}/backups.key").stdout.strip()
    with open(f"{MODELS}/backups.yaml", "w", encoding="utf-8") as f:
        f.write("apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: disk}\n"
                f"spec: {{type: directory, directory: /data/backups/disk, recipients: [{recipient}], "
                "retention: {count: 3}}\n"
                "---\napiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: director-backup}\n"
                "spec: {cron: '15 3 * * *', job: {name: backup, params: {target: disk}}}\n")


class Cluster:
    """The cluster of the demo, and the appliance that has it."""

    def __init__(self, name: str = "cluster"):
        self.vm = VM(name, "10.89.0.14", "52:54:00:89:00:14", memory=4096)
        self.bundle, self.image = os.environ["APPLIANCE_TEST_BUNDLE"], os.environ["APPLIANCE_TEST_IMAGE"]
        self.kubeconfig, self.plan = f"{WORK}/kubeconfig", ""

    def kubectl(self, *args: str) -> str:
        """Ask the cluster itself."""
        return sh(f"{self.bundle}/bin/kubectl", "--kubeconfig", self.kubeconfig, *args, check=False).stdout

    def begin(self) -> str:
        """Set the appliance up, store its documents, and return its data disk."""
        keys = {trusted_key(self.bundle + ".pub"), trusted_key(self.image + ".pub"), trusted_key()}
        data = first_boot(self.vm, json.dumps({"trustedKeys": sorted(keys), "nodeShells": 1}))
        self.vm.put(f"{WORK}/hypervisor.id", "/data/etc/providers/lab")
        self.vm.put(f"{WORK}/hypervisor.known", "/data/etc/providers/known_hosts")
        check("the API takes the password", self.vm.login(self.vm.authority()).returncode == 0)
        write_models()
        for name in ("provider", "network", "backups"):
            good(f"{name}.yaml is stored", ctl(self.vm, "apply", "-f", f"{MODELS}/{name}.yaml"))
        good("the hypervisor passes its test", ctl(self.vm, "provider", "test", "lab"))
        return data

    def bring(self) -> None:
        """Import what a cluster is made of, and store its document."""
        for what, file, name in (("release", self.bundle, "k8s-1.37"), ("image", self.image, "debian12-k8s-1.37")):
            began = time.monotonic()
            done = ctl(self.vm, what, "import", file, name)
            good(f"the {what} is imported, after {time.monotonic() - began:.0f} s", done)
        good("a cluster is stored", ctl(self.vm, "apply", "-f", f"{MODELS}/cluster.yaml"))

    def create(self) -> None:
        """Create the cluster, and upgrade the appliance when the control plane is made."""
        upgrade = Bundles(self.vm.name).make("next")
        planned = ctl(self.vm, "plan", "demo", "-o", "json")
        good("the cluster is planned", planned)
        self.plan = json.loads(planned.stdout)["id"]
        began = time.monotonic()
        good("its plan is started", ctl(self.vm, "start", self.plan, "--yes"))
        wait("the control plane is made", lambda: any(
            status == "running" and step.startswith("control_plane")
            for step, status in steps(self.vm, self.plan).items()), 2 * LIMIT)
        reached = time.monotonic()
        print(f"        the control plane was reached after {reached - began:.0f} s", flush=True)
        good("the appliance is upgraded in the middle of the plan",
             ctl(self.vm, "appliance", "upgrade", upgrade, "--yes", "--within", "40m"),
             "The director is version next (root b)")
        print(f"        the upgrade took {time.monotonic() - reached:.0f} s", flush=True)
        self.vm.forget()
        good("the plan goes on to its end", ctl(self.vm, "follow", self.plan))
        print(f"        all took {time.monotonic() - began:.0f} s", flush=True)
        states = steps(self.vm, self.plan)
        check("each of its steps is done", set(states.values()) == {"done"}, str(states))
        good("a kubeconfig is made", ctl(self.vm, "kubeconfig", "demo", "--admin", "-o", self.kubeconfig))
        self.serves("after its creation")

    def serves(self, when: str) -> None:
        """Check that both nodes are ready, by the cluster's own word."""
        nodes = self.kubectl("get", "nodes", "--no-headers")
        check(f"two nodes are ready {when}", len(re.findall(r"^demo-\S+ +Ready ", nodes, re.M)) == 2, nodes)

    def browse(self) -> None:
        """Log in with a browser, look at the nodes, rehearse a drain, open a shell."""
        with open(f"{WORK}/password", "w", encoding="utf-8") as f:
            f.write(PASSWORD)
        good("a browser logs in and works", sh(
            "env", f"CONSOLE_REAL=https://{self.vm.address}", f"CONSOLE_REAL_PASSWORD={WORK}/password",
            "CONSOLE_REAL_CLUSTER=demo", f"{ROOT}/web/console/test.sh", "real", check=False))

    def loses_its_root(self, data: str) -> None:
        """Cut the power, and start a blank root disk of the image in front of the same data."""
        self.vm.forget()
        self.vm.destroy()
        self.vm.start(self.vm.disk("root"), data)
        self.vm.page()
        check(f"without its root disk: the log-in page after {time.monotonic() - self.vm.began:.0f} s", True)
        good("the cluster is known", ctl(self.vm, "get", "clusters"), "demo")
        self.serves("with a new root disk")

    def loses_everything(self) -> None:
        """Back the director up, and restore it on a fresh appliance of the same address."""
        self.vm.wait_ssh()
        self.vm.on("sudo install -d -o director -g director -m 0700 /data/backups/disk", check=True)
        good("the director is backed up", ctl(self.vm, "schedules", "run", "director-backup", "--wait"))
        bundle = self.vm.on("sudo find /data/backups/disk -name '*.bundle.age'", check=True).stdout.split()[-1]
        self.vm.get(bundle, f"{WORK}/director.bundle.age")
        self.vm.forget()
        self.vm.destroy()
        os.remove(f"{WORK}/{self.vm.name}.known")
        first_boot(self.vm)
        began = time.monotonic()
        self.vm.put(f"{WORK}/director.bundle.age", "/data/director.bundle.age")
        self.vm.put(f"{WORK}/backups.key", "/data/backups.key")
        for command in (
            "systemctl stop director", "mv /data/director /data/director.fresh",
            "install -d -o director -g director -m 0700 /data/director",
            "setpriv --reuid director --regid director --clear-groups --reset-env "
            "director -config /etc/director/director.yaml restore -identity /data/backups.key "
            "/data/director.bundle.age",
            "rm /data/backups.key /data/director.bundle.age",
            "systemctl start director",
        ):
            good(f"restore: {command.split()[0]}", self.vm.on(f"sudo {command}"))
        self.vm.page()
        check(f"a fresh appliance is the director again after {time.monotonic() - began:.0f} s", True)
        self.vm.put(f"{WORK}/hypervisor.id", "/data/etc/providers/lab")
        self.vm.put(f"{WORK}/hypervisor.known", "/data/etc/providers/known_hosts")
        good("the former log-in is good, and documents are there", ctl(self.vm, "get", "networks"), "demo")
        good("the hypervisor passes its test again", ctl(self.vm, "provider", "test", "lab"))

    def ends(self) -> None:
        """Delete the cluster by the restored director, and look that nothing is left of it."""
        good("the cluster is known", ctl(self.vm, "get", "clusters"), "demo")
        self.serves("with the restored director")
        good("the cluster is deleted", ctl(self.vm, "delete", "cluster", "demo", "--yes", "--wait"))
        left = on_hypervisor("virsh", "-q", "list", "--all", "--name").strip()
        check("the hypervisor has no VM of it", left == "", left)
        self.vm.forget()
        self.vm.destroy()


def cluster() -> None:
    """A cluster from the first boot to its end, with all that may happen to its director meanwhile."""
    c = Cluster()
    data = c.begin()
    c.bring()
    c.create()
    c.browse()
    c.loses_its_root(data)
    c.loses_everything()
    c.ends()


def restore() -> None:
    """A fresh appliance takes the place of one that was lost, from its backup."""
    c = Cluster("restore")
    c.begin()
    c.loses_everything()
    c.vm.forget()
    c.vm.destroy()
