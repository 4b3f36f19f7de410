#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_encryption
short_description: Changes the keys that encrypt Secrets at rest, and encrypts Secrets again
description:
  - C(write) writes the API server's configuration of encryption. It refuses to take a key away that the API server
    encrypts with, unless the new configuration still decrypts with it or nothing in etcd is encrypted with it. It can
    wait until the API server of this master has read the configuration, which it does once a minute without a restart.
  - C(encrypt) writes each Secret again that is not encrypted with the first key. Which those are is read from etcd, so
    a run that was cut off is continued by running again, and a second run changes nothing.
options:
  action:
    description: What to do.
    type: str
    choices: [write, encrypt]
    required: true
  content:
    description: The configuration, for C(write).
    type: str
    default: ""
  keys:
    description: Names of the keys in their order; C(encrypt) encrypts with the first.
    type: list
    elements: str
    required: true
  wait:
    description: Whether C(write) waits until the API server has read the configuration.
    type: bool
    default: false
  path:
    description: The file.
    type: path
    default: /etc/kubernetes/apiserver/encryption.yaml
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  server:
    description: This master's own API server, such as https://10.0.0.1:6443.
    type: str
    default: ""
  kubeconfig:
    description: How the API is reached.
    type: path
    default: /etc/kubernetes/admin.conf
  kubectl:
    description: The program.
    type: str
    default: kubectl
  etcdctl:
    description: The program.
    type: str
    default: etcdctl
  timeout:
    description: Seconds after which a wait is given up.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Encrypt all Secrets anew
  kaas_encryption:
    action: encrypt
    keys: [key2]
"""

RETURN = r"""
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
"""

import base64
import hashlib
import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, clean, local_etcd, run, wait_for, write_atomically

# What the API server puts in front of what it has encrypted.
MARK = re.compile(rb"k8s:enc:secretbox:v1:([A-Za-z0-9_-]{1,64}):")
KEY = re.compile(r'- name: "([^"]*)"\n\s+secret: "([^"]*)"')
PREFIX = "/registry/secrets/"
PAGE, BATCH, PAUSE = 500, 50, 3.0
CALL = 120  # seconds of one call of kubectl


class Encryption:
    """The encryption of Secrets as one master sees it."""

    def __init__(self, args, check):
        self.args, self.check, self.did = args, check, []

    # etcd

    def etcdctl(self, *argv):
        """Ask this master's member of etcd."""
        rc, out, err = local_etcd(self.args["etcdctl"], self.args["kubernetes_dir"], 60, *argv, "--write-out=json")
        if rc != 0:
            raise Failure("etcd does not answer: %s" % clean(err or out, 500),
                          "Look at `crictl ps` on the master, and run again")
        return json.loads(out)

    def secrets(self):
        """Yield (namespace, name, name of the key) of each Secret in etcd; the key is empty for one that is not
        encrypted."""
        begin, end = PREFIX, PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
        while True:
            found = self.etcdctl("get", begin, end, "--limit=%d" % PAGE).get("kvs") or []
            for item in found:
                path = base64.b64decode(item["key"]).decode("utf-8")
                mark = MARK.match(base64.b64decode(item.get("value", "")))
                namespace, _, name = path[len(PREFIX):].partition("/")
                yield namespace, name, mark.group(1).decode("ascii") if mark else ""
            if len(found) < PAGE:
                return
            begin = path + "\1"  # no argument can hold a zero, and no name begins with either

    # actions

    def write(self):
        """Write the configuration, and wait until it is in use."""
        content = self.args["content"].encode("utf-8")
        try:
            with open(self.args["path"], "rb") as file:
                before = file.read()
        except FileNotFoundError:
            before = b""
        if before != content:
            self.guard(before.decode("utf-8", "replace"))
            self.did.append("configuration")
            if self.check:
                return
            write_atomically(self.args["path"], content, 0o600)
        if self.args["wait"] and not self.check:
            self.reloaded("sha256:" + hashlib.sha256(content).hexdigest())

    def guard(self, before):
        """Fail when what is encrypted could not be decrypted any more."""
        had, has = dict(KEY.findall(before)), dict(KEY.findall(self.args["content"]))
        for name in [name for name in had if has.get(name) != had[name]]:
            if name in has or any(key == name for _, _, key in self.secrets()):
                raise Failure(
                    "Secrets of this cluster are encrypted with a key %s that the director does not have" % name,
                    "The director was restored from a backup that is older than the key. Restore a newer one; the keys "
                    "are in %s" % self.args["path"])

    def reloaded(self, digest):
        """Wait until the API server says that it has read the configuration."""
        seen = []

        def look():
            rc, out, err = run([self.args["kubectl"], "--kubeconfig=" + self.args["kubeconfig"],
                                "--server=" + self.args["server"], "get", "--raw",
                                "/metrics", "--request-timeout=30s"], timeout=60)
            lines = [line for line in out.splitlines()
                     if line.startswith("apiserver_encryption_config_controller_")] if rc == 0 else []
            seen[:] = [clean(err, 300) if rc != 0 else "it does not look for another configuration" if not lines
                       else "it has the former one"]
            return any("last_config_info{" in line and '"%s"' % digest in line for line in lines)
        if not wait_for(look, self.args["timeout"], pause=PAUSE):
            raise Failure("the API server at %s has not read its other keys within %d s: %s"
                          % (self.args["server"], self.args["timeout"], seen[0]),
                          "Look at the log of kube-apiserver on this master, and run again")

    def encrypt(self):
        """Write each Secret again that is encrypted otherwise."""
        first, kubectl = self.args["keys"][0], Kubectl.of(self.args)
        stale = [(namespace, name) for namespace, name, key in self.secrets() if key != first]
        if not stale:
            return
        self.did.append("%d Secrets" % len(stale))
        if self.check:
            return

        def done():
            left = {}
            for namespace, name, key in self.secrets():
                if key != first:
                    left.setdefault(namespace, []).append(name)
            for namespace, names in sorted(left.items()):
                for at in range(0, len(names), BATCH):
                    self.again(kubectl, namespace, names[at:at + BATCH])
            return not left
        if not wait_for(done, self.args["timeout"], pause=0.2):
            raise Failure("Secrets are still encrypted with another key than %s after %d s"
                          % (first, self.args["timeout"]), "Run again")

    def again(self, kubectl, namespace, names):
        """Write Secrets as they are. What changes or goes meanwhile is seen by the next look at etcd."""
        base = [kubectl.program, "--kubeconfig=" + kubectl.kubeconfig, "--namespace=" + namespace]
        rc, text, err = run(base + ["get", "secret", "--ignore-not-found", "--output=json", *names], timeout=CALL)
        if rc != 0:
            raise Failure("Secrets of namespace %s cannot be read: %s" % (namespace, clean(err, 500)), "Run again")
        if not text.strip():
            return
        run(base + ["replace", "--filename=-"], stdin=text, timeout=CALL)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["write", "encrypt"], "required": True},
            "content": {"type": "str", "default": "", "no_log": True},
            "keys": {"type": "list", "elements": "str", "required": True, "no_log": False},
            "wait": {"type": "bool", "default": False},
            "path": {"type": "path", "default": "/etc/kubernetes/apiserver/encryption.yaml"},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "server": {"type": "str", "default": ""},
            "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
            "kubectl": {"type": "str", "default": "kubectl"},
            "etcdctl": {"type": "str", "default": "etcdctl"},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True)
    try:
        encryption = Encryption(module.params, module.check_mode)
        getattr(encryption, module.params["action"])()
    except Failure as err:
        module.fail_json(changed=False, **err.result())
    module.exit_json(changed=bool(encryption.did), did=encryption.did)


if __name__ == "__main__":
    main()
