#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_etcd_restore
short_description: Replaces a master's data of etcd by a snapshot
description:
  - The director lays the snapshot and C(staged.json), which says what it is, into O(dir). Each action looks at what
    there is, so a run that was cut off is continued by running again. Once a restore is finished, all actions change
    nothing until another one is staged.
  - C(prepare) checks the snapshot and restores it beside the data of etcd. The cluster runs meanwhile.
  - C(stop) takes static pods away and waits until their containers have ended.
  - C(swap) puts the data of etcd aside and the restored data in its place. Nothing is deleted.
  - C(start) brings static pods back and waits until their containers run.
  - C(leases) removes the addresses of API servers that the snapshot knows; those that run write theirs again.
  - C(nodes) removes Node objects of machines that are not O(nodes).
  - C(kubelet) restarts the kubelet, which reads everything again.
  - C(finish) removes the snapshot, and the data that earlier restores have put aside. The data that this one put aside
    stays.
  - C(former) is for a new machine that finds the data of its former one on a data disk. It puts that data aside on the
    same disk, outside of O(data_dir), where kubeadm neither sees nor removes it. On a machine that has begun to be a
    master it does nothing.
  - C(forget) removes what C(former) has put aside.
options:
  action:
    description: What to do.
    type: str
    choices: [former, prepare, stop, swap, start, leases, nodes, kubelet, finish, forget]
    required: true
  dir:
    description: Where the snapshot lies. Only root can read it.
    type: path
    default: /var/lib/kaas/etcd-restore
  data_dir:
    description: The data of etcd.
    type: path
    default: /var/lib/etcd
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  member:
    description: Name of this member of etcd.
    type: str
    default: ""
  members:
    description: The addresses of all members, by name.
    type: dict
    default: {}
  state_file:
    description: Where M(kaas_kubeadm) keeps the node's membership. A machine that has it is no new one.
    type: path
    default: /etc/kubernetes/kaas/state.json
  machine_id_file:
    description: Tells one machine from the one before it.
    type: path
    default: /etc/machine-id
  mounts:
    description: The list of mounts, as the kernel has it.
    type: path
    default: /proc/self/mountinfo
  components:
    description: Static pods that C(stop) and C(start) work on.
    type: list
    elements: str
    default: []
  nodes:
    description: Names of the cluster's nodes.
    type: list
    elements: str
    default: []
  kubeconfig:
    description: How C(nodes) reaches the API.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  crictl:
    description: The program.
    type: str
    default: crictl
  etcdctl:
    description: The program.
    type: str
    default: etcdctl
  etcdutl:
    description: The program.
    type: str
    default: etcdutl
  systemctl:
    description: The program.
    type: str
    default: systemctl
  timeout:
    description: Seconds after which a wait is given up.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Restore the snapshot beside the data
  kaas_etcd_restore:
    action: prepare
    member: demo-master-1
    members: {demo-master-1: 10.0.0.11}
"""

RETURN = r"""
restore:
  description: Id of the restore that is staged or was finished.
  type: str
  returned: prepare
done:
  description: Whether it was finished before.
  type: bool
  returned: prepare
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
"""

import hashlib
import json
import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import (
    Failure, Kubectl, clean, existing, local_etcd, read_json, run, wait_for, write_atomically)

SNAPSHOT, STAGED, DONE = "snapshot.db", "staged.json", "done.json"
# Where the data of former machines lies, below where the data disk is mounted.
FORMER = ".kaas-former-etcd"
# Revisions that the cluster has given out since the snapshot must not come again: clients have seen them.
BUMP = 1000000000
PAUSE = 1.0


def identity(text):
    """Return an id that is safe in a file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", text or ""):
        raise Failure("%r is no id of a restore" % text, "Stage the backup again")
    return text


class Restore:
    """The restore of one member."""

    def __init__(self, args, check):
        self.args, self.check = args, check
        self.did = []
        self.staged = read_json(self.path(STAGED))
        self.finished = read_json(self.path(DONE)) or {}
        self.id = identity((self.staged or self.finished).get("id")) if self.staged or self.finished else ""

    def path(self, name):
        """Return a path in the directory of restores."""
        return os.path.join(self.args["dir"], name)

    def data(self, name):
        """Return a path in the data directory of etcd."""
        return os.path.join(self.args["data_dir"], name)

    @property
    def done(self):
        """Say whether what is staged was finished before."""
        return bool(self.finished) and self.finished.get("id") == self.id

    @property
    def ready(self):
        """Return the directory of the restored data that waits for its turn."""
        return self.data(".restore-" + self.id)

    @property
    def aside(self):
        """Return the directory of the data that was there before. Once it exists, the data is aside."""
        return self.data("before-" + self.id)

    def swapped(self):
        """Say whether the restored data is in its place."""
        return os.path.isdir(self.aside) and os.path.isdir(self.data("member"))

    def disk(self):
        """Return where the data disk is mounted, and where the data of etcd is below that; nothing when it is on no
        such disk."""
        mounted = {}
        with open(self.args["mounts"], encoding="utf-8") as file:
            for line in file:
                device, root, point = line.split()[2:5]
                mounted[unescaped(point)] = (device, unescaped(root))  # the last one covers those before
        device, root = mounted.get(self.args["data_dir"], ("", "/"))
        tops = sorted(point for point, at in mounted.items() if at == (device, "/"))
        return (tops[0], root.lstrip("/")) if tops and root != "/" else None

    # actions

    def former(self):
        """Put the data of the former machine aside. Only renames on the data disk's own mount are renames and not
        copies."""
        disk = self.disk()
        left = sorted(os.listdir(self.args["data_dir"])) if disk else []
        if not left or os.path.exists(self.args["state_file"]):
            return
        self.did.append("data of the former machine")
        if self.check:
            return
        with open(self.args["machine_id_file"], encoding="utf-8") as file:
            aside = os.path.join(disk[0], FORMER, identity(file.read().strip()))
        os.makedirs(aside, mode=0o700, exist_ok=True)
        for name in left:
            os.rename(os.path.join(disk[0], disk[1], name), os.path.join(aside, name))
        sync(aside)

    def forget(self):
        """Remove the data of former machines."""
        disk = self.disk()
        for path in existing([os.path.join(disk[0], FORMER)]) if disk else []:
            self.did.append("data of former machines")
            if not self.check:
                shutil.rmtree(path)

    def prepare(self):
        """Check the snapshot, and restore it beside the data."""
        if not self.id:
            raise Failure("no backup is staged on this master",
                          "Have the director do it: directorctl backup restore BACKUP")
        if self.done or self.swapped() or os.path.isdir(self.ready):
            return
        self.verify()
        self.did.append("restored beside the data")
        if self.check:
            return
        for old in existing([self.data(".restore-*")]):
            shutil.rmtree(old)
        os.makedirs(self.args["data_dir"], mode=0o700, exist_ok=True)
        self.room()
        part = self.ready + ".part"
        members = ["%s=%s" % (name, peer(address)) for name, address in sorted(self.args["members"].items())]
        rc, out, err = run(
            [self.args["etcdutl"], "snapshot", "restore", self.path(SNAPSHOT), "--name", self.args["member"],
             "--data-dir", part, "--initial-cluster", ",".join(members), "--initial-cluster-token", "kaas-" + self.id,
             "--initial-advertise-peer-urls", peer(self.args["members"][self.args["member"]]),
             "--bump-revision", str(BUMP), "--mark-compacted"], timeout=self.args["timeout"])
        if rc != 0:
            raise Failure("etcdutl cannot restore the snapshot: %s" % clean(err or out, 500),
                          "The cluster was not touched", rc=rc)
        os.rename(part, self.ready)

    def verify(self):
        """Compare the snapshot with what the director says of it."""
        digest, size = hashlib.sha256(), 0
        try:
            with open(self.path(SNAPSHOT), "rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
                    size += len(block)
        except FileNotFoundError:
            raise Failure("the snapshot is not on this master", "Stage the backup again") from None
        if digest.hexdigest() != self.staged.get("sha256") or size != self.staged.get("size"):
            raise Failure("the snapshot on this master is not the one that was staged", "Stage the backup again")
        rc, out, err = run([self.args["etcdutl"], "snapshot", "status", self.path(SNAPSHOT), "--write-out=json"],
                           timeout=self.args["timeout"])
        try:
            seen = json.loads(out) if rc == 0 else {}
        except ValueError:
            seen = {}
        if seen.get("revision") != self.staged.get("revision") or not seen.get("totalKey"):
            raise Failure("etcdutl does not accept the snapshot: %s" % clean(err or out, 500), "Use another backup",
                          rc=rc)

    def room(self):
        """Fail when the restored data would not fit beside what is there."""
        stat = os.statvfs(self.args["data_dir"])
        free, wants = stat.f_bavail * stat.f_frsize, int(self.staged["size"] * 1.2) + (128 << 20)
        if free < wants:
            raise Failure("%s has %d MiB free, and the restored data needs %d MiB beside what is there"
                          % (self.args["data_dir"], free >> 20, wants >> 20),
                          "Make room there; the cluster was not touched")

    def manifest(self, component):
        """Return where the kubelet looks for a static pod."""
        return os.path.join(self.args["kubernetes_dir"], "manifests", component + ".yaml")

    def held(self, component):
        """Return where a static pod waits."""
        return os.path.join(self.args["kubernetes_dir"], "kaas", "held", component + ".yaml")

    def containers(self, component):
        """Return the ids of the running containers of a static pod."""
        rc, out, err = run([self.args["crictl"], "ps", "--state", "Running", "--label",
                            "io.kubernetes.container.name=" + component, "--output", "json"], timeout=60)
        if rc != 0:
            raise Failure("the container runtime does not answer: %s" % clean(err or out, 500),
                          "Look at `systemctl status containerd`")
        return [item["id"] for item in json.loads(out).get("containers") or []]

    def stop(self):
        """Take static pods away."""
        if self.done or self.swapped():
            return
        for component in self.args["components"]:
            if os.path.exists(self.manifest(component)):
                self.did.append(component)
                if not self.check:
                    os.makedirs(os.path.dirname(self.held(component)), mode=0o700, exist_ok=True)
                    os.replace(self.manifest(component), self.held(component))
        if self.check:
            return

        def ended():
            running = [name for component in self.args["components"] for name in self.containers(component)]
            for name in running:  # without the kubelet no one else stops them
                run([self.args["crictl"], "stop", "--timeout", "20", name], timeout=60)
            return not running
        if not wait_for(ended, self.args["timeout"], pause=PAUSE):
            raise Failure("%s did not stop within %d s" % (", ".join(self.args["components"]), self.args["timeout"]),
                          "Look at `crictl ps` on the master, and run again")

    def swap(self):
        """Put the data aside and the restored data in its place."""
        if self.done or self.swapped():
            return
        self.did.append("data of etcd")
        if self.check:
            return
        if self.containers("etcd"):
            raise Failure("etcd still runs", "Run again")
        if not os.path.isdir(os.path.join(self.ready, "member")):
            raise Failure("there is no restored data", "Run again")
        if not os.path.isdir(self.aside):
            if os.path.isdir(self.data("member")):
                os.makedirs(self.aside + ".part", mode=0o700, exist_ok=True)
                os.rename(self.data("member"), os.path.join(self.aside + ".part", "member"))
            else:
                os.makedirs(self.aside + ".part", mode=0o700, exist_ok=True)
            os.rename(self.aside + ".part", self.aside)
        os.rename(os.path.join(self.ready, "member"), self.data("member"))
        sync(self.args["data_dir"])

    def start(self):
        """Bring static pods back."""
        for component in self.args["components"]:
            if os.path.exists(self.held(component)):
                self.did.append(component)
                if not self.check:
                    os.replace(self.held(component), self.manifest(component))
        if self.check or self.done:
            return

        def running():
            return all(self.containers(component) for component in self.args["components"])
        if not wait_for(running, self.args["timeout"], pause=PAUSE):
            raise Failure("%s did not start within %d s" % (", ".join(self.args["components"]), self.args["timeout"]),
                          "Look at `crictl ps -a` and `journalctl -u kubelet` on the master. The former data is in %s"
                          % self.aside)

    def leases(self):
        """Remove the addresses of API servers."""
        if self.done or self.check:
            return
        rc, out, err = local_etcd(
            self.args["etcdctl"], self.args["kubernetes_dir"], 20, "del", "--prefix", "/registry/masterleases/")
        if rc != 0:
            raise Failure("etcd does not delete the former addresses of API servers: %s" % clean(err or out, 500),
                          "Run again")
        if out.strip() not in ("", "0"):
            self.did.append("addresses of API servers")

    def nodes(self):
        """Remove Node objects that no machine stands for."""
        if self.done:
            return
        kubectl = Kubectl.of(self.args)
        found = [item["metadata"]["name"] for item in kubectl.get("nodes")["items"]]
        foreign = sorted(set(found) - set(self.args["nodes"]))
        self.did += ["node/" + name for name in foreign]
        if foreign and not self.check:
            kubectl.do("delete", "node", "--ignore-not-found", *foreign, what="foreign nodes cannot be removed")

    def kubelet(self):
        """Restart the kubelet."""
        self.did.append("kubelet")
        if self.check:
            return
        rc, out, err = run([self.args["systemctl"], "restart", "kubelet.service"], timeout=120)
        if rc != 0:
            raise Failure("the kubelet does not start: %s" % clean(err or out, 500),
                          "Look at `journalctl -u kubelet` on the node")

    def finish(self):
        """Remove the snapshot, and what earlier restores have put aside."""
        rest = existing([self.path(SNAPSHOT), self.path(SNAPSHOT + ".part"), self.path(STAGED),
                         self.data(".restore-*")])
        rest += [old for old in existing([self.data("before-*")]) if old != self.aside]
        if self.finished and not self.done:
            self.forget()  # what is aside since an earlier restore on this machine
        if self.done and not rest:
            return
        self.did.append("finished")
        if self.check:
            return
        write_atomically(self.path(DONE), json.dumps({"id": self.id}).encode(), 0o600)
        for old in rest:
            if os.path.isdir(old):
                shutil.rmtree(old)
            else:
                os.unlink(old)


def peer(address):
    """Return where a member is reached by others."""
    if not re.fullmatch(r"[0-9a-fA-F.:]+", address):
        raise Failure("%r is no address of a member" % address)
    return "https://%s:2380" % ("[%s]" % address if ":" in address else address)


def unescaped(path):
    """Return a path of the list of mounts as it is."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), path)


def sync(path):
    """Have a directory's entries on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "required": True, "choices": [
                "former", "prepare", "stop", "swap", "start", "leases", "nodes", "kubelet", "finish", "forget"]},
            "dir": {"type": "path", "default": "/var/lib/kaas/etcd-restore"},
            "data_dir": {"type": "path", "default": "/var/lib/etcd"},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "member": {"type": "str", "default": ""},
            "members": {"type": "dict", "default": {}},
            "state_file": {"type": "path", "default": "/etc/kubernetes/kaas/state.json"},
            "machine_id_file": {"type": "path", "default": "/etc/machine-id"},
            "mounts": {"type": "path", "default": "/proc/self/mountinfo"},
            "components": {"type": "list", "elements": "str", "default": []},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
            "kubectl": {"type": "str", "default": "kubectl"},
            "crictl": {"type": "str", "default": "crictl"},
            "etcdctl": {"type": "str", "default": "etcdctl"},
            "etcdutl": {"type": "str", "default": "etcdutl"},
            "systemctl": {"type": "str", "default": "systemctl"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True)
    try:
        restore = Restore(module.params, module.check_mode)
        getattr(restore, module.params["action"])()
    except Failure as err:
        module.fail_json(changed=False, **err.result())
    module.exit_json(changed=bool(restore.did), did=restore.did, restore=restore.id, done=restore.done)


if __name__ == "__main__":
    main()
