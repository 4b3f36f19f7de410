#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_upgrade
short_description: Upgrades what kubeadm looks after, and continues with what was begun
description:
  - Looks at what really runs (the cluster's configuration, the images in the static pods' manifests, the kubelets'
    versions, the addons) and not at markers, so it continues a half-done upgrade and leaves a finished one
    alone.
  - C(master) runs C(kubeadm upgrade apply) until the first master of the cluster is through, on all further ones
    C(kubeadm upgrade node). kubeadm upgrades CoreDNS and kube-proxy with the last of them.
  - C(worker) runs C(kubeadm upgrade node) while the node's kubelet is not of the version.
  - C(config) uploads the cluster's configuration when versions or image tags in it are others. It has to run before
    C(master), since kubeadm takes the tags of etcd and CoreDNS from there, and before a master of a newer version
    joins.
  - With C(config), API servers of a cluster begin to check the kubelets' certificates when each of its kubelets shows
    one of the cluster's CA, and not before.
  - C(mend) puts a static pod's manifest back that kubeadm had moved away when it was cut off.
  - kubeadm holds a lock that outlives this module, as with M(kaas_kubeadm).
options:
  action:
    description: What to do.
    type: str
    choices: [master, worker, config, mend]
    required: true
  version:
    description: Version to reach, such as v1.37.2. kubeadm has to be of it for C(master) and C(worker).
    type: str
    default: ""
  name:
    description: Name of the node.
    type: str
    default: ""
  config:
    description: kubeadm's configuration for C(upgrade).
    type: path
  content:
    description: kubeadm's configuration for C(init), for C(config).
    type: str
  keep_version:
    description: Leave the version in the cluster's configuration as it is, because C(kubeadm upgrade apply) is to
      change it.
    type: bool
    default: false
  etcd_tag:
    description: Wanted image tag of etcd; empty for kubeadm's own choice.
    type: str
    default: ""
  coredns_tag:
    description: Wanted image tag of CoreDNS; empty for kubeadm's own choice.
    type: str
    default: ""
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  kubeadm:
    description: The program.
    type: str
    default: kubeadm
  lock_file:
    description: What is locked while kubeadm runs.
    type: path
    default: /run/lock/kaas-kubeadm.lock
  kubeconfig:
    description: The kubeconfig to look with; a worker has its kubelet's.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  timeout:
    description: Seconds after which one part of the upgrade is given up.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Upgrade the control plane
  kaas_upgrade:
    action: master
    version: v1.37.2
    name: master-1
    config: /etc/kubernetes/kaas/upgrade.yaml
"""

RETURN = r"""
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
why:
  description: What was found to be of another version.
  type: list
  elements: str
  returned: always
"""

import glob
import os
import re
import socket
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import (
    Failure, Kubectl, clean, cluster_args, kubeadm_says, locked, no_cluster_yet, run, trusting, write_atomically)
from ansible.module_utils.kaas_nodes import node_or_fail

COMPONENTS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"]
MASTER = "node-role.kubernetes.io/control-plane"
CHECK = "kubelet-certificate-authority"
IMAGE = re.compile(r"^\s*(?:- )?image:\s*\"?\S+:([^\s:/\"]+)\"?\s*$", re.MULTILINE)


def field(text, *path):
    """Return a scalar of a document that kubeadm wrote (nested block mappings), empty when it is not there."""
    parents = []  # indents of what was found of the path so far
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while parents and indent <= parents[-1]:
            parents.pop()
        key, _, value = line.strip().partition(":")
        if key != path[len(parents)] or (not parents and indent):
            continue
        if len(parents) == len(path) - 1:
            return value.strip().strip("\"'")
        parents.append(indent)
    return ""


def signed(address, ca_file):
    """Say whether the kubelet at the address shows a certificate of the cluster's CA."""
    try:
        context = trusting(ca_file)
        context.check_hostname = False  # the API server looks at the name; here the question is who has signed
        with socket.create_connection((address, 10250), timeout=10) as raw, context.wrap_socket(raw):
            return True
    except (OSError, ValueError):
        return False


def tag(image):
    """Return the tag of an image's name."""
    return image.rpartition(":")[2]


class Upgrade:
    """The upgrade of one node."""

    def __init__(self, args, check):
        self.args, self.check = args, check
        self.kubectl = Kubectl.of(args)
        self.did, self.why = [], []
        self.lock_fd = None

    # what is there

    def cluster(self):
        """Return the cluster's configuration as kubeadm keeps it."""
        found = self.kubectl.find("configmap", "kubeadm-config", "kube-system")
        if found is None:
            raise Failure("the cluster has no kubeadm-config in kube-system",
                          "Upload it with `kubeadm init phase upload-config kubeadm`")
        return found["data"]["ClusterConfiguration"]

    def manifests(self):
        """Return what this node's static pods are of that they should not be of."""
        wrong = []
        for name in COMPONENTS:
            wanted = self.args["etcd_tag"] if name == "etcd" else self.args["version"]
            try:
                with open(os.path.join(self.args["kubernetes_dir"], "manifests", name + ".yaml"),
                          encoding="utf-8") as file:
                    found = IMAGE.findall(file.read())
            except FileNotFoundError:
                found = []
            if wanted and found != [wanted]:
                wrong.append("%s is %s" % (name, ", ".join(found) or "not there"))
        return wrong

    def addons(self):
        """Return which addons are not of the wanted version."""
        wrong = []
        for kind, name, wanted in (("daemonset", "kube-proxy", self.args["version"]),
                                   ("deployment", "coredns", self.args["coredns_tag"])):
            found = self.kubectl.find(kind, name, "kube-system")
            tags = [tag(item["image"]) for item in found["spec"]["template"]["spec"]["containers"]] if found else []
            if found and wanted and wanted not in tags:
                wrong.append("%s is %s" % (name, ", ".join(tags)))
        return wrong

    def kubelet(self, node):
        """Return the version of a node's kubelet."""
        return node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")

    # kubeadm

    def program(self):
        """Say whether kubeadm is of the version; raise Failure when it has to be."""
        rc, out, err = run([self.args["kubeadm"], "version", "-o", "short"], timeout=120)
        if rc == 0 and out.strip() == self.args["version"]:
            return
        if not self.check:
            raise Failure("kubeadm on the node is %s, not %s" % (clean(out or err, 200), self.args["version"]),
                          "Name where the release's programs are (release_binaries_url, release_binaries), or make the "
                          "node from its image")

    def call(self, *argv, patience=1):
        """Run kubeadm."""
        self.did.append("kubeadm " + " ".join(word for word in argv[:3] if not word.startswith("-")))
        if self.check:
            return
        rc, out, err = run([self.args["kubeadm"]] + list(argv), timeout=patience * self.args["timeout"],
                           pass_fds=() if self.lock_fd is None else (self.lock_fd,))
        if rc != 0:
            raise Failure("%s failed: %s" % (self.did[-1], kubeadm_says(out, err)),
                          "Mend what the message names and run again: it continues where it stopped",
                          rc=rc, stdout=clean(out), stderr=clean(err))

    # actions

    def master(self):
        """Upgrade what kubeadm looks after on a master."""
        version = self.args["version"]
        known = field(self.cluster(), "kubernetesVersion")
        masters = self.kubectl.get("nodes", "-l", MASTER).get("items", [])
        through = [node["metadata"]["name"] for node in masters if self.kubelet(node) == version]
        mine = self.manifests()
        if self.args["name"] not in through:
            mine.append("the kubelet of %s" % self.args["name"])
        if known != version or not through:
            self.why = ["the cluster is %s" % known] + mine
            verb = "apply"
        elif mine:
            self.why, verb = mine, "node"
        elif len(through) == len(masters):
            self.why, verb = self.addons(), "node"
        if self.why:
            self.program()
            # Five parts that kubeadm waits for, each of which has the whole time.
            self.call("upgrade", verb, *(["--yes"] if verb == "apply" else []), "--config", self.args["config"],
                      patience=5)

    def worker(self):
        """Upgrade what kubeadm looks after on a worker."""
        have = self.kubelet(node_or_fail(self.kubectl, self.args["name"]))
        if have != self.args["version"]:
            self.why = ["the kubelet is %s" % (have or "of no known version")]
            self.program()
            self.call("upgrade", "node", "--config", self.args["config"])

    def config(self):
        """Upload the cluster's configuration."""
        args, document = self.args, self.cluster()
        known = field(document, "kubernetesVersion")
        for what, have, wanted in (("kubernetesVersion", known, args["version"]),
                                   ("etcd", field(document, "etcd", "local", "imageTag"), args["etcd_tag"]),
                                   ("coredns", field(document, "dns", "imageTag"), args["coredns_tag"])):
            if wanted and have != wanted:
                self.why.append("%s is %s" % (what, have or "not set"))
        if not self.why:
            return
        content = args["content"]
        if CHECK not in document and not self.kubelets_signed():
            content = re.sub(r"(?m)^ *- name: %s\n.*\n" % CHECK, "", content)
        if args["keep_version"]:
            content = re.sub(r"(?m)^kubernetesVersion:.*$", "kubernetesVersion: " + known, content)
        with tempfile.TemporaryDirectory(prefix="kaas-upload-") as directory:
            path = os.path.join(directory, "init.yaml")
            write_atomically(path, content.encode("utf-8"), 0o600)
            self.call("init", "phase", "upload-config", "kubeadm", "--config", path, "--kubeconfig", args["kubeconfig"])

    def kubelets_signed(self):
        """Say whether every kubelet of the cluster shows a certificate of its CA; one that cannot be asked does not."""
        ca_file = os.path.join(self.args["kubernetes_dir"], "pki", "ca.crt")
        nodes = self.kubectl.get("nodes").get("items", [])
        addresses = [[item["address"] for item in node.get("status", {}).get("addresses", [])
                      if item["type"] == "InternalIP"] for node in nodes]
        return all(found and signed(found[0], ca_file) for found in addresses)

    def mend(self):
        """Put manifests back that kubeadm had moved away when it was cut off."""
        directory = self.args["kubernetes_dir"]
        if not os.path.exists(os.path.join(directory, "admin.conf")):
            return
        for name in COMPONENTS:
            path = os.path.join(directory, "manifests", name + ".yaml")
            kept = glob.glob(os.path.join(glob.escape(directory), "tmp", "kubeadm-backup-manifests*", name + ".yaml"))
            if os.path.exists(path) or not kept:
                continue
            self.did.append("put back " + name)
            if not self.check:
                with open(max(kept, key=os.path.getmtime), "rb") as file:
                    write_atomically(path, file.read(), 0o600)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cluster_args(900), **{
            "action": {"type": "str", "choices": ["master", "worker", "config", "mend"], "required": True},
            "version": {"type": "str", "default": ""},
            "name": {"type": "str", "default": ""},
            "config": {"type": "path"},
            "content": {"type": "str"},
            "keep_version": {"type": "bool", "default": False},
            "etcd_tag": {"type": "str", "default": ""},
            "coredns_tag": {"type": "str", "default": ""},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "kubeadm": {"type": "str", "default": "kubeadm"},
            "lock_file": {"type": "path", "default": "/run/lock/kaas-kubeadm.lock"},
        }),
        required_if=[("action", "master", ("config", "name", "version")),
                     ("action", "worker", ("config", "name", "version")),
                     ("action", "config", ("content", "version"))],
        supports_check_mode=True)
    args = module.params
    if args["action"] != "mend" and no_cluster_yet(module):
        module.exit_json(changed=False, did=[], why=["there is no cluster yet"])
    upgrade = Upgrade(args, module.check_mode)
    try:
        if module.check_mode:
            getattr(upgrade, args["action"])()
        else:
            with locked(args["lock_file"], args["timeout"]) as fd:
                upgrade.lock_fd = fd
                getattr(upgrade, args["action"])()
    except Failure as err:
        module.fail_json(changed=bool(upgrade.did), did=upgrade.did, why=upgrade.why, **err.result())
    module.exit_json(changed=bool(upgrade.did), did=upgrade.did, why=upgrade.why)


if __name__ == "__main__":
    main()
