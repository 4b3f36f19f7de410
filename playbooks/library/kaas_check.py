#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_check
short_description: Proves that a cluster works, and leaves nothing behind
description:
  - Waits until all expected nodes are Ready and the system's own workload is rolled out.
  - Then starts one probe pod on every node, and has them look up a service by name, reach one another across nodes,
    through the service, and the registry. The namespace of the probes is removed at the end, whatever happened.
  - The net effect on the cluster is nothing, so it never reports a change.
options:
  nodes:
    description: Names of the nodes that have to be Ready.
    type: list
    elements: str
    required: true
  rollouts:
    description: What has to be rolled out in O(system_namespace), as C(kind/name).
    type: list
    elements: str
    default: [daemonset/kube-proxy, deployment/coredns]
  system_namespace:
    description: Where O(rollouts) are.
    type: str
    default: kube-system
  image:
    description: The probe's image, which has C(toolbox serve) and C(toolbox all).
    type: str
    required: true
  cluster_domain:
    description: The DNS domain of services.
    type: str
    default: cluster.local
  urls:
    description: Addresses outside of the cluster that every probe has to reach, with a status of 2xx.
    type: list
    elements: str
    default: []
  ca:
    description: PEM of a CA that the probes trust beside the ones they know.
    type: str
    default: ""
  namespace:
    description: The probes' namespace.
    type: str
    default: kaas-check
  kubeconfig:
    description: The kubeconfig on the master.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  timeout:
    description: Seconds for everything together.
    type: int
    default: 600
attributes:
  check_mode:
    support: partial
    description: Only reads; the probes are not started.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Prove that the cluster works
  kaas_check:
    nodes: [master-1, worker-1]
    image: registry.example:5000/kaas/toolbox:1
    urls: ["https://registry.example:5000/v2/kaas/toolbox/tags/list"]
"""

RETURN = r"""
checks:
  description: What was proven, with the seconds it took.
  type: list
  elements: dict
  returned: always
"""

import json
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, clean, cluster_args, no_cluster_yet, readiness

PORT = 8080
UNSIGNED = "remote error: tls: internal error"  # what a kubelet says that has no certificate yet
LABELS = {"app.kubernetes.io/name": "probe"}


def manifest(args):
    """Return the namespace, the probes and their service."""
    namespace = args["namespace"]
    meta = {"name": "probe", "namespace": namespace, "labels": LABELS}
    pod = {
        "metadata": {"labels": LABELS},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534,
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "ca", "configMap": {"name": "probe"}}],
            "containers": [{
                "name": "probe", "image": args["image"], "imagePullPolicy": "IfNotPresent",
                "command": ["toolbox", "serve", ":%d" % PORT],
                "ports": [{"containerPort": PORT}],
                "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
                "env": [{"name": "SSL_CERT_FILE", "value": "/etc/probe/ca.crt"}] if args["ca"] else [],
                "volumeMounts": [{"name": "ca", "mountPath": "/etc/probe", "readOnly": True}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                                    "readOnlyRootFilesystem": True},
            }],
        },
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {
            "app.kubernetes.io/managed-by": "director", "pod-security.kubernetes.io/enforce": "restricted"}}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ca.crt": args["ca"]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta,
         "spec": {"selector": LABELS, "ports": [{"port": 80, "targetPort": PORT}]}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta,
         "spec": {"selector": {"matchLabels": LABELS}, "template": pod, "updateStrategy": {"type": "RollingUpdate"}}},
    ]})


def not_ready(document, wanted):
    """Return {node: why} of the wanted nodes that are not Ready."""
    seen = {node["metadata"]["name"]: readiness(node) for node in document.get("items", [])}
    return {name: seen.get(name, "it has not joined") for name in wanted if seen.get(name, "it has not joined")}


def probes(document):
    """Return {node: address} of the probes that are ready, and why others are not."""
    ready, waiting = {}, []
    for pod in document.get("items", []):
        status, node = pod.get("status", {}), pod.get("spec", {}).get("nodeName", "no node")
        conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
        if conditions.get("Ready") == "True" and status.get("podIP") and not pod["metadata"].get("deletionTimestamp"):
            ready[node] = (pod["metadata"]["name"], status["podIP"])
            continue
        why = status.get("phase", "Pending")
        for container in status.get("containerStatuses", []):
            state = container.get("state", {}).get("waiting", {})
            if state:
                why = "%s %s" % (state.get("reason", why), state.get("message", ""))
        waiting.append("%s: %s" % (node, why.strip()))
    return ready, waiting


class Proof:
    """The checks of one cluster."""

    def __init__(self, args):
        self.args = args
        self.kubectl = Kubectl.of(args)
        self.checks = []

    def proven(self, what, begin):
        """Note what was proven."""
        self.checks.append({"check": what, "seconds": round(time.monotonic() - begin, 1)})

    def until(self, what, look, hint):
        """Repeat look, which returns what is missing, until nothing is."""
        begin = time.monotonic()
        while True:
            looked = time.monotonic()
            missing = look()
            if not missing:
                return self.proven(what, begin)
            if self.kubectl.over():
                raise Failure("%s: not within %d s: %s" % (what, self.args["timeout"], clean("; ".join(missing), 1500)),
                              hint)
            # kubectl itself is what a slow master has least time for.
            time.sleep(min(5.0, max(0.5, 2 * (time.monotonic() - looked))))

    def nodes(self):
        """Wait for the nodes."""
        def look():
            late = not_ready(self.kubectl.get("nodes"), self.args["nodes"])
            return ["%s (%s)" % pair for pair in sorted(late.items())]
        self.until("nodes are Ready", look,
                   "Look at `journalctl -u kubelet` on the node, and at the pod network's pods")

    def rollouts(self):
        """Wait for the system's workload."""
        def look():
            missing = []
            for item in self.kubectl.get("-n", self.args["system_namespace"], *self.args["rollouts"]).get("items", []):
                status, spec = item.get("status", {}), item.get("spec", {})
                wanted = status.get("desiredNumberScheduled", spec.get("replicas", 1))
                have = status.get("numberAvailable", status.get("availableReplicas", 0))
                current = status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0)
                if have < wanted or not current:
                    missing.append("%s/%s has %d of %d" % (item["kind"].lower(), item["metadata"]["name"], have,
                                                           wanted))
            return missing
        if len(self.args["rollouts"]) == 1:
            self.args["rollouts"] = self.args["rollouts"] * 2  # kubectl answers a list for two or more names
        self.until("system pods are rolled out", look,
                   "Look at `kubectl -n %s get pods`" % self.args["system_namespace"])

    def start(self):
        """Start the probes and wait for one on each node."""
        def going():
            left = self.kubectl.find("namespace", self.args["namespace"])
            leaves = left and left["metadata"].get("deletionTimestamp")
            return ["namespace %s" % self.args["namespace"]] if leaves else []
        self.until("the probes of an earlier check are gone", going,
                   "Look at `kubectl get namespace %s -o yaml`" % self.args["namespace"])
        found = {}
        self.kubectl.do("apply", "--validate=false", "-f", "-", stdin=manifest(self.args), what="starting the probes")

        def look():
            ready, waiting = probes(self.kubectl.get("-n", self.args["namespace"], "pods"))
            found.update(ready)
            return ["no probe on %s" % node for node in self.args["nodes"] if node not in ready] + waiting
        self.until("a probe runs on every node", look, "Look at `kubectl -n %s describe pods`" % self.args["namespace"])
        return found

    def ask(self, node, pod, questions):
        """Have the probe of the node ask all questions, which map the toolbox's form to one for people."""
        begin = time.monotonic()
        while True:
            rc, out, err = self.kubectl.call("-n", self.args["namespace"], "exec", pod, "--", "toolbox", "all",
                                             *questions, timeout=300)
            if not (rc and UNSIGNED in err):
                break
            if self.kubectl.over():
                raise Failure("the kubelet on %s has no serving certificate: its request was not approved within %d s"
                              % (node, self.args["timeout"]),
                              "The director approves it when the names and addresses in it are the node's: see its "
                              "log, and `kubectl get csr`")
            time.sleep(1)
        answered = [line[3:] for line in out.splitlines() if line.startswith("ok ")]
        for question in answered:
            self.proven("a pod on %s %s" % (node, questions.get(question, question)), begin)
        missing = [text for question, text in questions.items() if question not in answered]
        if rc or missing:
            raise Failure("a pod on %s does not do this: %s: %s" % (node, "; ".join(missing), clean(err or out, 1000)),
                          "The nodes are Ready, so look at the pod network, kube-proxy and CoreDNS on the nodes named")

    def talk(self, found):
        """Let the probes reach everything."""
        service = "probe.%s.svc.%s" % (self.args["namespace"], self.args["cluster_domain"])
        names = sorted(self.args["nodes"])
        for index, node in enumerate(names):
            questions = {"resolve %s" % service: "resolves %s" % service,
                         "get http://%s/" % service: "reaches the service"}
            other = names[(index + 1) % len(names)]
            if other != node:
                questions["get http://%s:%d/" % (found[other][1], PORT)] = "reaches a pod on %s" % other
            questions.update(("get " + url, "reaches " + url) for url in self.args["urls"])
            self.ask(node, found[node][0], questions)

    def probe(self):
        """Have the probes prove what only a pod can, and remove them, whatever came out."""
        try:
            self.talk(self.start())
        except Failure:
            try:
                self.tidy()
            except Failure:
                pass  # the first failure is the one to read; the next check removes what is left
            raise
        self.tidy()

    def tidy(self):
        """Have the cluster remove the probes; the next check waits for that. What is left of the time does not matter
        here."""
        self.kubectl.deadline = time.monotonic() + max(120, self.args["timeout"] // 3)
        self.kubectl.do("delete", "namespace", self.args["namespace"], "--ignore-not-found", "--wait=false",
                        what="removing the probes")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cluster_args(600), **{
            "nodes": {"type": "list", "elements": "str", "required": True},
            "rollouts": {"type": "list", "elements": "str", "default": ["daemonset/kube-proxy", "deployment/coredns"]},
            "system_namespace": {"type": "str", "default": "kube-system"},
            "image": {"type": "str", "required": True},
            "cluster_domain": {"type": "str", "default": "cluster.local"},
            "urls": {"type": "list", "elements": "str", "default": []},
            "ca": {"type": "str", "default": ""},
            "namespace": {"type": "str", "default": "kaas-check"},
        }),
        supports_check_mode=True)
    args = module.params
    if no_cluster_yet(module):
        module.exit_json(changed=False, checks=[], msg="there is no cluster yet")
    proof = Proof(args)
    try:
        proof.nodes()
        if args["rollouts"]:
            proof.rollouts()
        if not module.check_mode:
            proof.probe()
    except Failure as err:
        module.fail_json(changed=False, checks=proof.checks, **err.result())
    module.exit_json(changed=False, checks=proof.checks)


if __name__ == "__main__":
    main()
