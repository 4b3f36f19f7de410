#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_node
short_description: The node object of a cluster, seen and removed from a master
description:
  - C(ready) waits until the node is Ready, runs O(version) and its static pods run the image tags of O(components).
  - C(leavable) fails unless the node may be removed, which is when it is gone already, or unschedulable without a pod
    that would have to leave.
  - C(absent) removes the node object under the same condition.
  - C(examined) says in RV(fit) whether the machine at hand still is this node. It changes nothing and does not fail
    when it is not.
options:
  name:
    description: Name of the node.
    type: str
    required: true
  state:
    description: What is wanted.
    type: str
    choices: [ready, leavable, absent, examined]
    required: true
  undrained:
    description: Let a node go that was not drained. What runs on it stops.
    type: bool
    default: false
  version:
    description: Version of the kubelet, such as v1.37.2; empty for any.
    type: str
    default: ""
  components:
    description: Image tags of static pods by component, such as C({"kube-apiserver":"v1.37.2"}).
    type: dict
    default: {}
  member:
    description: Whether the machine itself says that it is a member, for C(examined).
    type: bool
    default: false
  machine_id:
    description: The machine's /etc/machine-id, for C(examined). A node of another machine is stale.
    type: str
    default: ""
  patience:
    description: Seconds that a node of the same machine has to become Ready, for C(examined).
    type: int
    default: 60
  kubeconfig:
    description: The kubeconfig on the master.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  timeout:
    description: Seconds after which it is given up.
    type: int
    default: 600
attributes:
  check_mode:
    support: full
    description: C(ready) only looks once and does not fail.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Wait until the node is ready
  kaas_node:
    name: worker-1
    state: ready
  delegate_to: master-1
"""

RETURN = r"""
fit:
  description: Whether the machine at hand is this node and works.
  type: bool
  returned: examined
why:
  description: Why it is not; also what C(ready) would wait for in check mode.
  type: str
  returned: always
exists:
  description: Whether there is a node object of that name.
  type: bool
  returned: always
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, clean, cluster_args, no_cluster_yet, readiness
from ansible.module_utils.kaas_nodes import cordoned, leaving

PAUSE = 3.0


class Node:
    """One node, seen from a master."""

    def __init__(self, args, check, clock=time.monotonic, sleep=time.sleep):
        self.args, self.check, self.name = args, check, args["name"]
        self.kubectl = Kubectl.of(args)
        self.clock, self.sleep = clock, sleep
        self.exists = False

    def find(self):
        """Return the node object, None when there is none."""
        node = self.kubectl.find("node", self.name)
        self.exists = node is not None
        return node

    def missing(self):
        """Return what the node lacks to be ready."""
        node = self.find()
        if node is None:
            return "it has not joined"
        why = readiness(node)
        if why:
            return why
        version = node["status"].get("nodeInfo", {}).get("kubeletVersion", "")
        if self.args["version"] and version != self.args["version"]:
            return "its kubelet is %s, not %s" % (version or "of no known version", self.args["version"])
        if not self.args["components"]:
            return ""
        pods = self.kubectl.get("pods", "-n", "kube-system", "--field-selector",
                                "spec.nodeName=" + self.name).get("items", [])
        found = {pod["metadata"]["name"]: pod for pod in pods}
        return "; ".join(filter(None, (
            component(found.get("%s-%s" % (name, self.name)), name, tag) for name,
            tag in sorted(self.args["components"].items()))))

    def wait(self, missing, seconds):
        """Repeat missing until it says nothing or seconds have passed; return its last answer."""
        deadline = self.clock() + seconds
        while True:
            why = missing()
            if not why or self.clock() >= deadline:
                return why
            self.sleep(PAUSE)

    def ready(self):
        """Wait until the node is ready."""
        why = self.wait(self.missing, 0 if self.check else self.args["timeout"])
        if why and not self.check:
            raise Failure("node %s is not ready: not within %d s: %s"
                          % (self.name, self.args["timeout"], clean(why, 1000)),
                          "Look at `journalctl -u kubelet` and `crictl ps -a` on the node")
        return why

    def leavable(self):
        """Raise Failure unless the node may go."""
        node = self.find()
        if node is None or self.args["undrained"]:
            return
        hint = "Drain it first, or say delete_undrained when what runs on it may stop"
        if not cordoned(node):
            raise Failure("node %s was not drained: pods may still be scheduled to it" % self.name, hint)
        # Evicted pods of a machine that is off stay marked for ever; they are where they should be already.
        pods = [str(pod) for pod in leaving(self.kubectl, self.name) if not pod.terminating and not pod.finished]
        if pods:
            raise Failure("node %s was not drained: %s still %s on it" % (
                self.name, clean(", ".join(pods), 800), "runs" if len(pods) == 1 else "run"), hint)

    def absent(self):
        """Remove the node object; say whether there was one."""
        self.leavable()
        if self.exists and not self.check:
            self.kubectl.do("delete", "node", self.name, "--ignore-not-found", what="removing node %s" % self.name)
        return self.exists

    def examined(self):
        """Return why the machine at hand is not this node, or does not work as it; nothing when all is well."""
        node = self.find()
        if not self.args["member"]:
            return "the machine is no member of the cluster"
        if node is None:
            return "the cluster has no such node"
        known = node.get("status", {}).get("nodeInfo", {}).get("machineID", "")
        if known != self.args["machine_id"]:
            return "the machine is another one than the node's"

        def missing():
            found = self.find()
            return readiness(found) if found else "the cluster has no such node"
        return self.wait(missing, 0 if self.check else self.args["patience"])


def component(pod, name, tag):
    """Return why a static pod does not run with that image tag."""
    if pod is None:
        return "%s does not run" % name
    images = [item["image"].rpartition(":")[2] for item in pod["spec"]["containers"]]
    if tag not in images:
        return "%s is %s, not %s" % (name, ", ".join(images), tag)
    conditions = {item["type"]: item["status"] for item in pod.get("status", {}).get("conditions", [])}
    return "" if conditions.get("Ready") == "True" else "%s is not ready" % name


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cluster_args(600), **{
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["ready", "leavable", "absent", "examined"], "required": True},
            "undrained": {"type": "bool", "default": False},
            "version": {"type": "str", "default": ""},
            "components": {"type": "dict", "default": {}},
            "member": {"type": "bool", "default": False},
            "machine_id": {"type": "str", "default": ""},
            "patience": {"type": "int", "default": 60},
        }),
        supports_check_mode=True)
    if no_cluster_yet(module):
        module.exit_json(changed=False, fit=False, exists=False, why="there is no cluster yet")
    state = module.params["state"]
    node = Node(module.params, module.check_mode)
    changed, why = False, ""
    try:
        if state == "absent":
            changed = node.absent()
        elif state == "leavable":
            node.leavable()
        elif state == "ready":
            why = node.ready()
        else:
            why = node.examined()
    except Failure as err:
        module.fail_json(changed=False, exists=node.exists, **err.result())
    module.exit_json(changed=changed, exists=node.exists, fit=not why, why=why)


if __name__ == "__main__":
    main()
