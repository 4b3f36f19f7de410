#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_tokens
short_description: Changes the keys that sign service account tokens, and looks for tokens of former keys
description:
  - C(write) writes the key that signs and the public keys whose tokens the API server accepts. It refuses to take the
    key away that the master signs with, since all its tokens would be refused at once. It restarts nothing.
  - C(served) waits until the API server of this master publishes exactly the keys of the file and signs with the first.
  - C(unused) fails while a token of a former key may be in use. It looks at Secrets with tokens, at pods whose tokens
    may be older than the key of this master, and at the API server's own count of tokens that should have been renewed.
    It changes nothing.
options:
  action:
    description: What to do.
    type: str
    choices: [write, served, unused]
    required: true
  key:
    description: The private key that signs, in PEM, for C(write).
    type: str
    default: ""
  public:
    description: The public keys in PEM, that of the signer first, for C(write).
    type: str
    default: ""
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  server:
    description: This master's own API server, such as https://10.0.0.1:6443.
    type: str
    default: ""
  quiet:
    description: Seconds in which the API server must take no token that should have been renewed, for C(unused).
    type: int
    default: 60
  kubectl:
    description: The program.
    type: str
    default: kubectl
  openssl:
    description: The program.
    type: str
    default: openssl
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
- name: See whether tokens of a former key are in use
  kaas_tokens:
    action: unused
    server: https://10.0.0.1:6443
"""

RETURN = r"""
did:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
"""

import base64
import binascii
import calendar
import hashlib
import json
import os
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, run, wait_for, write_atomically
from ansible.module_utils.kaas_pem import OwnServer, some, text_of

BLOCK = re.compile(r"-----BEGIN PUBLIC KEY-----(.+?)-----END PUBLIC KEY-----", re.DOTALL)
STALE = re.compile(r"^serviceaccount_stale_tokens_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
DAY = 86400  # kubelets renew a token at 80 % of its life, and at the latest after a day
TOKEN = 3600  # seconds that the token of a pod is good for unless it says otherwise
PAUSE = 2.0


def ids(public):
    """Return the ids of public keys as API servers make them: the digest of each in DER."""
    digests = [hashlib.sha256(base64.b64decode(body)).digest() for body in BLOCK.findall(public)]
    return [base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=") for digest in digests]


def signer(token):
    """Return the id of the key that signed a token, empty for what is none."""
    head = token.split(".")[0]
    try:
        return str(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("kid", ""))
    except (ValueError, AttributeError, binascii.Error):
        return ""


class Tokens:
    """The service account tokens as one master sees them."""

    def __init__(self, args, check):
        self.args, self.check, self.did = args, check, []
        self.server = OwnServer(args["kubectl"], os.path.join(args["kubernetes_dir"], "admin.conf"), args["server"])

    def file(self, name):
        """Return the path of a key."""
        return os.path.join(self.args["kubernetes_dir"], "pki", name)

    def read(self, name):
        """Return a file's text, empty when there is none."""
        return text_of(self.file(name))

    # actions

    def write(self):
        """Write the keys: first what is accepted, and then what signs."""
        self.guard()
        for name, content, mode in (("sa.pub", self.args["public"], 0o644), ("sa.key", self.args["key"], 0o600)):
            if self.read(name) != content:
                self.did.append(name)
                if not self.check:
                    write_atomically(self.file(name), content.encode("utf-8"), mode)

    def guard(self):
        """Fail when the tokens of the key that signs now would be refused."""
        key = self.read("sa.key")
        if not key or key == self.args["key"]:
            return
        rc, public, _ = run([self.args["openssl"], "pkey", "-pubout"], stdin=key, timeout=60)
        if rc == 0 and not set(ids(public)) <= set(ids(self.args["public"])):
            raise Failure("the master signs service account tokens with a key that the director does not have",
                          "The director was restored from a backup that is older than the key: restore a newer one. "
                          "The key is %s" % self.file("sa.key"))

    def served(self):
        """Wait until the API server publishes the keys and signs with the first."""
        if self.check:
            return
        wanted, seen = ids(self.read("sa.pub")), []

        def look():
            out, err = self.server.ask("get", "--raw", "/openid/v1/jwks")
            if err:
                seen[:] = [err]
                return False
            published = [key.get("kid") for key in json.loads(out).get("keys", [])]
            if sorted(published) != sorted(wanted):
                seen[:] = ["it accepts the tokens of %d other keys" % len(set(published) ^ set(wanted))]
                return False
            out, err = self.server.ask("create", "token", "default", "--namespace=kube-system")
            seen[:] = [err or "it signs with another key"]
            return signer(out) == wanted[0]
        if not wait_for(look, self.args["timeout"], pause=PAUSE):
            raise Failure("the API server at %s does not use its keys within %d s: %s"
                          % (self.args["server"], self.args["timeout"], seen[0]),
                          "Look at `crictl ps -a` and the log of kube-apiserver on this master, and run again")

    def unused(self):
        """Fail while a token of a former key may be in use."""
        if self.check:
            return
        present, now = ids(self.read("sa.pub"))[0], time.time()
        kept = self.kept(present)
        if kept:
            raise Failure("tokens of a former key are kept in these Secrets: %s" % some(kept),
                          "Have them made again, and retry the step")
        young, until = self.young(os.stat(self.file("sa.key")).st_mtime, now)
        if young:
            raise Failure("tokens of a former key may be in use until %s: %s"
                          % (time.strftime("%H:%M:%S UTC", time.gmtime(until)), some(young)),
                          "Wait, or restart these pods")
        before = self.stale()
        time.sleep(self.args["quiet"])
        taken = self.stale() - before
        if taken > 0:
            raise Failure("tokens of a former key are in use: the API server took %d of them within %d s"
                          % (taken, self.args["quiet"]),
                          "Its audit log names who uses stale tokens (authentication.k8s.io/stale-token)")

    def kept(self, present):
        """Return the Secrets whose tokens another key has signed."""
        secrets = json.loads(self.server.answer("get", "secrets", "--all-namespaces",
                                                "--field-selector=type=kubernetes.io/service-account-token",
                                         "--output=json"))["items"]
        kept = []
        for item in secrets:
            try:
                token = base64.b64decode((item.get("data") or {}).get("token", "")).decode("ascii", "replace")
            except binascii.Error:
                token = ""
            if token and signer(token) != present:
                kept.append("%(namespace)s/%(name)s" % item["metadata"])
        return kept

    def young(self, since, now):
        """Return the pods whose tokens may be older than the key, and when the last is renewed."""
        young, until = [], 0.0
        for pod in json.loads(self.server.answer("get", "pods", "--all-namespaces", "--output=json"))["items"]:
            lives = [source["serviceAccountToken"].get("expirationSeconds") or TOKEN
                     for volume in pod["spec"].get("volumes") or []
                     for source in (volume.get("projected") or {}).get("sources") or []
                     if source.get("serviceAccountToken")]
            if not lives or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            made = calendar.timegm(time.strptime(pod["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ"))
            renewed = since + min(max(lives), DAY)
            if made <= since and now < renewed:
                young.append("%(namespace)s/%(name)s" % pod["metadata"])
                until = max(until, renewed)
        return young, until

    def stale(self):
        """Return how many tokens this API server has taken that should have been renewed."""
        return sum(float(count) for count in STALE.findall(self.server.answer("get", "--raw", "/metrics")))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["write", "served", "unused"], "required": True},
            "key": {"type": "str", "default": "", "no_log": True},
            "public": {"type": "str", "default": ""},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "server": {"type": "str", "default": ""},
            "quiet": {"type": "int", "default": 60},
            "kubectl": {"type": "str", "default": "kubectl"},
            "openssl": {"type": "str", "default": "openssl"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True)
    tokens = Tokens(module.params, module.check_mode)
    try:
        getattr(tokens, module.params["action"])()
    except Failure as err:
        module.fail_json(changed=False, **err.result())
    module.exit_json(changed=bool(tokens.did), did=tokens.did)


if __name__ == "__main__":
    main()
