#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_restore_drill
short_description: Starts etcd and an API server on restored data, and asks them
description:
  - It is for a machine that is there for nothing else, on which M(kaas_etcd_restore) has put restored data in its
    place. What was done is in O(dir), so a run that was cut off is continued by running again, and a run after the last
    one changes nothing.
  - C(etcd) has kubeadm make certificates and the static pod of etcd, starts the kubelet and waits until etcd answers.
  - C(count) counts the keys in etcd and looks with which keys Secrets are encrypted. No API server has written to etcd
    by then.
  - C(api) has kubeadm make the static pod of the API server and waits until it is ready.
  - C(ask) lists namespaces, nodes and CRDs through the API, has it decrypt every Secret, and writes C(answer.json) for
    the director.
options:
  action:
    description: What to do.
    type: str
    choices: [etcd, count, api, ask]
    required: true
  dir:
    description: Where the answer lies. Only root can read it.
    type: path
    default: /var/lib/kaas/drill
  restore_dir:
    description: Where M(kaas_etcd_restore) has the note of what was restored.
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
  server:
    description: Address of the machine's API server.
    type: str
    required: true
  kubeadm:
    description: The program.
    type: str
    default: kubeadm
  kubectl:
    description: The program.
    type: str
    default: kubectl
  etcdctl:
    description: The program.
    type: str
    default: etcdctl
  systemctl:
    description: The program.
    type: str
    default: systemctl
  timeout:
    description: Seconds after which a wait is given up.
    type: int
    default: 600
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Start etcd on the restored data
  kaas_restore_drill:
    action: etcd
    server: https://10.90.0.11:6443
"""

RETURN = r"""
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
"""

import base64
import json
import os
import time
import urllib.parse

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import (
    Failure, Kubectl, api_ready, clean, kubeadm_says, local_etcd, read_json, run, wait_for, write_atomically)
from ansible.module_utils.kaas_contents import PREFIX, contents

PAUSE = 1.0
PAGE = 500
# Seconds that requests are tried again: an API server that cannot decrypt a Secret answers as one that is not ready
# yet.
PATIENCE = 60
ENCRYPTED = b"k8s:enc:"


class Drill:
    """The drill on one machine."""

    def __init__(self, args, check):
        self.args, self.check = args, check
        self.did = []
        self.restore = (read_json(os.path.join(args["restore_dir"], "staged.json")) or {}).get("id")
        self.known = read_json(self.path("drill.json")) or {}
        if not self.known or self.known.get("restore") != self.restore:
            self.known = {"restore": self.restore, "seconds": {}}

    def path(self, name):
        """Return a path in the directory of the drill."""
        return os.path.join(self.args["dir"], name)

    def conf(self, *parts):
        """Return a path in the directory of Kubernetes."""
        return os.path.join(self.args["kubernetes_dir"], *parts)

    def done(self, what, began, **found):
        """Write down what was found, and how long it took."""
        self.known.update(found)
        self.known["seconds"][what] = round(time.monotonic() - began, 1)
        os.makedirs(self.args["dir"], mode=0o700, exist_ok=True)
        write_atomically(self.path("drill.json"), json.dumps(self.known).encode(), 0o600)

    def phase(self, *words):
        """Have kubeadm do a phase of init."""
        rc, out, err = run([self.args["kubeadm"], "init", "phase", *words, "--config", self.conf("kaas", "init.yaml")],
                           timeout=120)
        if rc != 0:
            raise Failure("kubeadm init phase %s failed: %s" % (" ".join(words), kubeadm_says(out, err)), rc=rc)

    def needed(self, what):
        """Say whether a part is to be done, and note it."""
        if what in self.known["seconds"]:
            return False
        self.did.append(what)
        return not self.check

    # actions

    def etcd(self):
        """Start etcd."""
        if not self.needed("etcd"):
            return
        if not self.restore or not os.path.isdir(os.path.join(self.args["data_dir"], "member")):
            raise Failure("no backup was restored on this machine",
                          "Make the drill with: directorctl backup drill CLUSTER")
        began = time.monotonic()
        self.phase("certs", "all")
        self.phase("kubeconfig", "super-admin")
        self.phase("etcd", "local")
        for words in (("daemon-reload",), ("enable", "kubelet.service"), ("restart", "kubelet.service")):
            rc, out, err = run([self.args["systemctl"], *words], timeout=120)
            if rc != 0:
                raise Failure("the kubelet does not start: %s" % clean(err or out, 500),
                              "Look at `journalctl -u kubelet`", rc=rc)

        def answers():
            return local_etcd(self.args["etcdctl"], self.args["kubernetes_dir"], 10, "endpoint", "health")[0] == 0
        if not wait_for(answers, self.args["timeout"], pause=PAUSE):
            raise Failure("etcd does not answer on the restored data after %d s" % self.args["timeout"],
                          "Look at `crictl ps -a` and `crictl logs` on the machine")
        self.done("etcd", began)

    def read(self, *argv):
        """Ask etcd."""
        rc, out, err = local_etcd(self.args["etcdctl"], self.args["kubernetes_dir"], 120, *argv)
        if rc != 0:
            raise Failure("etcd does not answer on the restored data: %s" % clean(err or out, 500), rc=rc)
        return out

    def count(self):
        """Count the keys, and look with which keys Secrets are encrypted."""
        if not self.needed("count"):
            return
        began = time.monotonic()
        restored = contents(self.read("get", PREFIX, "--prefix", "--keys-only").split("\n"))
        names, first, end = set(), PREFIX + "secrets/", PREFIX + "secrets0"
        while True:
            page = json.loads(self.read("get", first, end, "--limit=%d" % PAGE, "--write-out=json")).get("kvs") or []
            names.update(encrypted_with(base64.b64decode(item["value"])) for item in page)
            if len(page) < PAGE:
                break
            first = base64.b64decode(page[-1]["key"]).decode() + "!"  # which comes before all that names consist of
        self.done("count", began, restored=restored, keys=sorted(names))

    def api(self):
        """Start the API server."""
        if not self.needed("api"):
            return
        began = time.monotonic()
        self.phase("control-plane", "apiserver")
        if not wait_for(lambda: api_ready(self.args["server"], self.conf("pki", "ca.crt")), self.args["timeout"],
                        pause=PAUSE):
            raise Failure("no API server is ready on the restored data after %d s" % self.args["timeout"],
                          "Look at `crictl ps -a` and `crictl logs` on the machine")
        self.done("api", began)

    def ask(self):
        """Ask the API server."""
        if not self.needed("ask"):
            return
        began = time.monotonic()
        kubectl = Kubectl(self.args["kubectl"], self.conf("super-admin.conf"), min(self.args["timeout"], PATIENCE))
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        answer = {
            "version": json.loads(kubectl.do("get", "--raw", "/version"))["gitVersion"],
            "namespaces": sorted(names(kubectl, "/api/v1/namespaces")),
            "nodes": sorted(names(kubectl, "/api/v1/nodes")),
            "crds": sorted(names(kubectl, crds)), "secrets": len(names(kubectl, "/api/v1/secrets")),
        }
        self.done("ask", began, api=answer)
        known = self.known
        write_atomically(self.path("answer.json"), json.dumps({
            "restored": known["restored"], "api": known["api"], "keys": known["keys"], "seconds": known["seconds"],
        }).encode(), 0o600)


def names(kubectl, path):
    """Return the names of all objects at the path, page by page. An object that cannot be decrypted fails the page."""
    found, token = [], ""
    while True:
        page = json.loads(kubectl.do("get", "--raw",
                                     "%s?limit=%d&continue=%s" % (path, PAGE, urllib.parse.quote(token)),
                                     what="the list of %s of the restored API" % path.rsplit("/", 1)[1]))
        found += [item["metadata"]["name"] for item in page.get("items") or []]
        token = page.get("metadata", {}).get("continue") or ""
        if not token:
            return found


def encrypted_with(value):
    """Return the name of the key that a stored value is encrypted with; nothing for one in the clear."""
    if not value.startswith(ENCRYPTED):
        return ""
    words = value[:200].split(b":", 5)  # k8s:enc:secretbox:v1:NAME:
    return words[4].decode("utf-8", "replace") if len(words) > 5 else "?"


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "required": True, "choices": ["etcd", "count", "api", "ask"]},
            "dir": {"type": "path", "default": "/var/lib/kaas/drill"},
            "restore_dir": {"type": "path", "default": "/var/lib/kaas/etcd-restore"},
            "data_dir": {"type": "path", "default": "/var/lib/etcd"},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "server": {"type": "str", "required": True},
            "kubeadm": {"type": "str", "default": "kubeadm"},
            "kubectl": {"type": "str", "default": "kubectl"},
            "etcdctl": {"type": "str", "default": "etcdctl"},
            "systemctl": {"type": "str", "default": "systemctl"},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True)
    try:
        drill = Drill(module.params, module.check_mode)
        getattr(drill, module.params["action"])()
    except Failure as err:
        module.fail_json(changed=False, **err.result())
    module.exit_json(changed=bool(drill.did), did=drill.did)


if __name__ == "__main__":
    main()
