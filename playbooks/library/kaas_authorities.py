#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_authorities
short_description: Changes the certificate authorities that a node trusts and signs with
description:
  - C(write) writes the authorities of a node, each a bundle whose first certificate signs, and what kubeconfigs trust.
    It refuses to take an authority away that signed a certificate in use on the node. It restarts nothing.
  - C(kubelet) restarts the kubelet if it started before what it trusts was written.
  - C(publish) writes the cluster's authorities into C(cluster-info), waits until every namespace has them in
    C(kube-root-ca.crt), and replaces the pods of kube-system, one by one, that started before the nodes had them. Pods
    on nodes that are not ready stay as they are.
  - C(unused) fails while a certificate of a former authority is in use. It looks at the certificates of the node, and
    on a master at who came to its API server. It changes nothing.
options:
  action:
    description: What to do.
    type: str
    choices: [write, kubelet, publish, unused]
    required: true
  authorities:
    description: Bundles in PEM by purpose (cluster, etcd, front-proxy), for C(write).
    type: dict
    default: {}
  keys:
    description: Keys in PEM of what signs, by purpose, for C(write) on a master.
    type: dict
    default: {}
  purpose:
    description: Whose certificates C(unused) looks for.
    type: str
    choices: [cluster, etcd, front-proxy]
    default: cluster
  since:
    description: When the first master began to sign with another authority, in seconds since 1970, for C(unused); 0
      looks at no audit log.
    type: int
    default: 0
  quiet:
    description: Seconds in which no client may come with a certificate of a former authority, for C(unused).
    type: int
    default: 60
  audit_dir:
    description: Where the API server writes its audit log.
    type: path
    default: /var/log/kubernetes/audit
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  kubelet_dir:
    description: Where the kubelet keeps its files.
    type: path
    default: /var/lib/kubelet
  pods:
    description: Whether C(publish) replaces pods that started before.
    type: bool
    default: true
  server:
    description: This master's own API server, such as https://10.0.0.1:6443, for C(publish).
    type: str
    default: ""
  kubectl:
    description: The program.
    type: str
    default: kubectl
  openssl:
    description: The program.
    type: str
    default: openssl
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
- name: See whether certificates of a former authority are in use
  kaas_authorities:
    action: unused
    purpose: etcd
"""

RETURN = r"""
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
"""

import base64
import calendar
import json
import os
import re
import stat
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, clean, existing, readiness, run, wait_for, write_atomically
from ansible.module_utils.kaas_pem import BLOCK, OwnServer, pem_of, signed_by, some, text_of

TRUSTED = re.compile(r"^(\s*certificate-authority-data:\s*)(\S+)[ \t]*$", re.MULTILINE)
CREDENTIAL = re.compile(r"X509SHA256=([0-9a-f]{64})")
# The files of each authority, and the certificates that it signs: of the kubelet those under kubelet:.
FILES = {"cluster": "pki/ca", "etcd": "pki/etcd/ca", "front-proxy": "pki/front-proxy-ca"}
LEAVES = {
    "cluster": ["pki/apiserver.crt", "pki/apiserver-kubelet-client.crt", "admin.conf", "super-admin.conf",
                "controller-manager.conf",
                "scheduler.conf", "kubelet:kubelet-client-current.pem", "kubelet:kubelet-server-current.pem"],
    "etcd": ["pki/etcd/server.crt", "pki/etcd/peer.crt", "pki/etcd/healthcheck-client.crt",
             "pki/apiserver-etcd-client.crt"],
    "front-proxy": ["pki/front-proxy-client.crt"],
}
# Clients that the director itself makes for minutes, with the authority that it has then.
OWN = "director"
PAUSE = 2.0


def blocks(text):
    """Return the certificates of a text, each as it is compared."""
    return [block.strip() for block in BLOCK.findall(text)]


def seconds(stamp):
    """Return a time of the audit log in seconds since 1970."""
    return calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S"))


def owner_of(pod, *kinds):
    """Return the name of the object of one of the kinds that makes the pod again; empty if there is none."""
    return next((owner["name"] for owner in pod["metadata"].get("ownerReferences") or [] if owner["kind"] in kinds), "")


class Authorities:
    """The authorities as one node has them."""

    def __init__(self, args, check):
        self.args, self.check, self.did = args, check, []
        self.server = OwnServer(args["kubectl"], self.path("admin.conf"), args["server"])

    def path(self, name):
        """Return a path of Kubernetes, or of the kubelet's certificates."""
        directory, _, rest = name.rpartition("kubelet:")
        if directory or name.startswith("kubelet:"):
            return os.path.join(self.args["kubelet_dir"], "pki", rest)
        return os.path.join(self.args["kubernetes_dir"], name)

    def put(self, name, content, mode):
        """Write a file that differs."""
        if text_of(self.path(name)) == content:
            return
        self.did.append(name)
        if not self.check:
            write_atomically(self.path(name), content.encode("utf-8"), mode)

    def strangers(self, purpose, authorities):
        """Return the certificates in use on the node that none of the authorities signed."""
        found = [(name, pem_of(self.path(name))) for name in LEAVES[purpose]]
        return [name for name, pem in found if pem
                and not signed_by(self.args["openssl"], "\n".join(authorities) + "\n", pem)]

    # actions

    def write(self):
        """Write the authorities: first what is trusted, and then what signs."""
        given = self.args["authorities"]
        for purpose, bundle in sorted(given.items()):
            if not blocks(bundle):
                raise Failure("there is no certificate in the %s authority" % purpose)
        for purpose, bundle in sorted(given.items()):
            self.guard(purpose, bundle)
        master = bool(self.args["keys"])
        for purpose, bundle in sorted(given.items()):
            self.put(FILES[purpose] + ".crt", bundle, 0o644)
        if "cluster" in given:
            self.trusted(given["cluster"], master)
        for purpose, key in sorted(self.args["keys"].items()):
            if purpose == "cluster": # the controller manager signs with a file of exactly one certificate
                self.put("pki/ca-signing.crt", blocks(given[purpose])[0] + "\n", 0o644)
            self.put(FILES[purpose] + ".key", key, 0o600)

    def guard(self, purpose, bundle):
        """Fail when a certificate that is in use would be refused."""
        lost = self.strangers(purpose, blocks(bundle))
        if lost:
            raise Failure("these certificates of the node are of a %s authority that the director does not have: %s"
                          % (purpose, some(lost)),
                          "If the node was away while the authority was changed, have it join again: directorctl node "
                          "rejoin. If the director was "
                          "restored from a backup that is older than the authority, restore a newer one")

    def trusted(self, bundle, master):
        """Write what kubeconfigs trust."""
        if not master and os.path.exists(self.path("kaas/ca.crt")):
            self.put("kaas/ca.crt", bundle, 0o644)
        data = base64.b64encode(bundle.encode("utf-8")).decode("ascii")
        for path in existing([self.path("*.conf"), self.path("kaas/discovery.conf")]):
            name = os.path.relpath(path, self.args["kubernetes_dir"])
            self.put(name, TRUSTED.sub(lambda match: match.group(1) + data, text_of(path)),
                     stat.S_IMODE(os.stat(path).st_mode))

    def kubelet(self):
        """Restart the kubelet when it started before what it trusts was written."""
        files = [path for path in (self.path("kubelet.conf"), self.path("pki/ca.crt")) if os.path.exists(path)]
        rc, out, err = run([self.args["systemctl"], "show", "--property=ExecMainStartTimestamp", "--value",
                            "--timestamp=unix", "kubelet"], timeout=60)
        if rc != 0:
            raise Failure("the kubelet cannot be looked at: %s" % clean(err or out, 500))
        since = int(out.strip().lstrip("@") or 0) if out.strip().lstrip("@").isdigit() else 0
        if not files or since >= max(int(os.stat(path).st_mtime) for path in files):
            return
        self.did.append("kubelet")
        if self.check:
            return
        rc, out, err = run([self.args["systemctl"], "restart", "kubelet"], timeout=self.args["timeout"])
        if rc != 0:
            raise Failure("the kubelet does not restart: %s" % clean(err or out, 500),
                          "Look at `journalctl -u kubelet` on the node")

    def publish(self):
        """Give pods and nodes to come what the nodes trust."""
        bundle = text_of(self.path("pki/ca.crt"))
        info = json.loads(self.server.answer("get", "configmap", "cluster-info", "--namespace=kube-public",
                                             "--output=json"))["data"].get("kubeconfig", "")
        data = base64.b64encode(bundle.encode("utf-8")).decode("ascii")
        wanted = TRUSTED.sub(lambda match: match.group(1) + data, info)
        if wanted != info:
            self.did.append("cluster-info")
            if not self.check:
                self.server.answer("patch", "configmap", "cluster-info", "--namespace=kube-public", "--type=merge",
                                   "--patch-file=/dev/stdin",
                         stdin=json.dumps({"data": {"kubeconfig": wanted}}))
        if self.check:
            return
        behind, since = [], [0.0]

        def current():
            maps = json.loads(self.server.answer("get", "configmaps", "--all-namespaces",
                                                 "--field-selector=metadata.name=kube-root-ca.crt",
                                       "--show-managed-fields=true", "--output=json"))["items"]
            behind[:] = [item["metadata"]["namespace"] for item in maps
                         if blocks(item["data"].get("ca.crt", "")) != blocks(bundle)]
            since[:] = [max([seconds(field["time"]) for item in maps if item["metadata"]["namespace"] == "kube-system"
                             for field in item["metadata"].get("managedFields") or [] if field.get("time")] or [0.0])]
            return not behind
        if not wait_for(current, self.args["timeout"], pause=PAUSE):
            raise Failure("kube-root-ca.crt does not have the present authorities in %s" % some(behind),
                          "Look at the log of kube-controller-manager, and run again")
        if self.args["pods"]:
            self.replace(max(since[0], os.stat(self.path("pki/ca.crt")).st_mtime))

    def kube_system(self, what):
        """Return the objects of the kinds in kube-system."""
        return json.loads(self.server.answer("get", what, "--namespace=kube-system", "--output=json"))["items"]

    def away(self):
        """Return the nodes that are not ready. Their pods neither end nor start, until such a node has joined again."""
        nodes = json.loads(self.server.answer("get", "nodes", "--output=json"))["items"]
        return set(node["metadata"]["name"] for node in nodes if readiness(node))

    def pods(self):
        """Return the pods of kube-system that something makes again, on nodes that are ready."""
        away = self.away()
        return [pod for pod in self.kube_system("pods") if owner_of(pod, "DaemonSet", "ReplicaSet")
                and pod["status"].get("phase") == "Running" and pod["spec"].get("nodeName") not in away]

    def replace(self, since):
        """Replace pods that started before, one by one.

        Those in the network of their node come first: where no former authority is good any more, no other pod starts
        or ends before the pod network works again.
        """
        old = [pod for pod in self.pods() if seconds(pod["metadata"]["creationTimestamp"]) <= since]
        of_node, others = [], []
        for pod in sorted(old, key=lambda item: item["metadata"]["name"]):
            (of_node if pod["spec"].get("hostNetwork") else others).append(pod["metadata"]["name"])
        for pods, what in ((of_node, "daemonsets"), (others, "daemonsets,deployments")):
            for pod in pods:
                self.did.append(pod)
                self.server.answer("delete", "pod", pod, "--namespace=kube-system", "--ignore-not-found", "--wait=true",
                                   "--timeout=100s")
                if not wait_for(lambda what=what: self.ready(what), self.args["timeout"], pause=PAUSE):
                    raise Failure("the pods of kube-system are not ready within %d s after %s was replaced"
                                  % (self.args["timeout"], pod),
                                  "Look at `kubectl -n kube-system get pods`, and run again")

    def ready(self, what):
        """Say whether every object of the kinds in kube-system has all its pods, apart from those of DaemonSets on
        nodes that are not ready."""
        away = self.away()
        lost = [owner_of(pod, "DaemonSet") for pod in self.kube_system("pods")
                if pod["spec"].get("nodeName") in away] if away else []
        for item in self.kube_system(what):
            status = item["status"]
            if item["kind"] == "DaemonSet":
                ready = status.get("numberReady", 0)
                wanted = status.get("desiredNumberScheduled", 0) - lost.count(item["metadata"]["name"])
            else: # another node gets its pods
                wanted, ready = item["spec"].get("replicas", 1), status.get("readyReplicas", 0)
            if ready < wanted:
                return False
        return True

    def unused(self):
        """Fail while a certificate of a former authority is in use."""
        purpose = self.args["purpose"]
        authorities = blocks(text_of(self.path(FILES[purpose] + ".crt")))
        former = self.strangers(purpose, authorities[:1])
        if former:
            raise Failure("certificates of a former %s authority are on the node: %s" % (purpose, some(former)),
                          "Plan the rotation again: it signs what is left")
        if purpose == "cluster" and self.args["since"] and not self.check:
            self.callers(self.args["since"])

    def callers(self, since):
        """Fail when a client comes from now on with a certificate that was in use before. Nodes have others already."""
        began = int(time.time())
        time.sleep(self.args["quiet"])
        before, lately = set(), {}
        for path in existing([os.path.join(self.args["audit_dir"], "*.log")]):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    found = CREDENTIAL.search(line)
                    if not found:
                        continue
                    try:
                        event = json.loads(line)
                        came, user = seconds(event["requestReceivedTimestamp"]), event["user"]["username"]
                    except (ValueError, KeyError, TypeError):
                        continue # a line that is being written
                    if came < since:
                        before.add(found.group(1))
                    elif came > began and user != OWN:
                        lately[found.group(1)] = user
        old = set(user for credential, user in lately.items() if credential in before)
        if old:
            raise Failure("clients of a former authority are in use by %s" % some(old),
                          "Give them new kubeconfigs, and retry the step")


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["write", "kubelet", "publish", "unused"], "required": True},
            "authorities": {"type": "dict", "default": {}},
            "keys": {"type": "dict", "default": {}, "no_log": True},
            "purpose": {"type": "str", "choices": sorted(FILES), "default": "cluster"},
            "since": {"type": "int", "default": 0},
            "quiet": {"type": "int", "default": 60},
            "audit_dir": {"type": "path", "default": "/var/log/kubernetes/audit"},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "kubelet_dir": {"type": "path", "default": "/var/lib/kubelet"},
            "pods": {"type": "bool", "default": True},
            "server": {"type": "str", "default": ""},
            "kubectl": {"type": "str", "default": "kubectl"},
            "openssl": {"type": "str", "default": "openssl"},
            "systemctl": {"type": "str", "default": "systemctl"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True)
    authorities = Authorities(module.params, module.check_mode)
    try:
        getattr(authorities, module.params["action"])()
    except Failure as err:
        module.fail_json(changed=bool(authorities.did) and not module.check_mode, did=authorities.did, **err.result())
    module.exit_json(changed=bool(authorities.did), did=authorities.did)


if __name__ == "__main__":
    main()
