#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_etcd_backup
short_description: A snapshot of the member of etcd on a master
description:
  - C(examined) says whether the member is healthy and whether it leads. It changes nothing and does not fail when it is
    not.
  - C(saved) takes a snapshot from the member over loopback, looks at it with C(etcdutl) and writes what it found next
    to it. It takes another one each time. The snapshot has its name when it is complete.
  - C(absent) removes the snapshot.
options:
  state:
    description: What is wanted.
    type: str
    choices: [examined, saved, absent]
    required: true
  dir:
    description: Where the snapshot lies. Only root can read it.
    type: path
    required: true
  endpoint:
    description: Where etcd is asked.
    type: str
    default: https://127.0.0.1:2379
  ca:
    description: Certificate of etcd's CA.
    type: path
    required: true
  cert:
    description: Certificate to ask with.
    type: path
    required: true
  key:
    description: Its key.
    type: path
    required: true
  etcdctl:
    description: The program.
    type: str
    default: etcdctl
  etcdutl:
    description: The program.
    type: str
    default: etcdutl
  timeout:
    description: Seconds that the snapshot may take.
    type: int
    default: 900
attributes:
  check_mode:
    support: full
    description: Nothing is taken and nothing is removed.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Take a snapshot
  kaas_etcd_backup:
    state: saved
    dir: /var/lib/kaas/etcd-backup
    ca: /etc/kubernetes/pki/etcd/ca.crt
    cert: /etc/kubernetes/pki/apiserver-etcd-client.crt
    key: /etc/kubernetes/pki/apiserver-etcd-client.key
"""

RETURN = r"""
healthy:
  description: Whether the member answers, votes and has a leader.
  type: bool
  returned: examined
leader:
  description: Whether it leads.
  type: bool
  returned: examined
why:
  description: Why it is not healthy.
  type: str
  returned: examined
snapshot:
  description: What is known of the snapshot.
  type: dict
  returned: saved
"""

import datetime
import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, clean, run, write_atomically
from ansible.module_utils.kaas_contents import PREFIX, contents

SNAPSHOT, STATUS, PART = "snapshot.db", "status.json", "snapshot.part"


class Backup:
    """Snapshots of one member."""

    def __init__(self, args):
        self.args = args

    def call(self, *argv, timeout=30):
        """Run etcdctl once."""
        args = self.args
        return run([args["etcdctl"], "--endpoints=" + args["endpoint"], "--cacert=" + args["ca"],
                    "--cert=" + args["cert"], "--key=" + args["key"], "--dial-timeout=5s",
                    "--command-timeout=%ds" % max(10, timeout - 10)] + list(argv),
                   timeout=timeout, env={"ETCDCTL_API": "3"})

    def status(self):
        """Return the member's own status; raise Failure when it does not answer."""
        rc, out, err = self.call("endpoint", "status", "--write-out=json")
        try:
            answers = json.loads(out) if rc == 0 else []
        except ValueError:
            answers = []
        if not answers:
            raise Failure("etcd at %s does not answer: %s" % (self.args["endpoint"], clean(err or out, 300)),
                          "Look at `crictl ps -a` on the master")
        return answers[0]["Status"]

    def examine(self):
        """Return (healthy, leader, why)."""
        try:
            status = self.status()
        except Failure as err:
            return False, False, str(err)
        if status.get("isLearner"):
            return False, False, "the member does not vote yet"
        if not status.get("leader"):
            return False, False, "etcd has no leader"
        if status.get("errors"):
            return False, False, clean(", ".join(status["errors"]), 300)
        return True, status["leader"] == status["header"]["member_id"], ""

    def members(self):
        """Return the members as etcd lists them."""
        rc, out, err = self.call("member", "list", "--write-out=json")
        if rc != 0:
            raise Failure("etcd does not list its members: %s" % clean(err or out, 300), rc=rc)
        return [{"name": item.get("name", ""), "address": ",".join(item.get("peerURLs") or [])}
                for item in json.loads(out).get("members") or []]

    def save(self):
        """Take a snapshot and return what is known of it."""
        args = self.args
        status, members = self.status(), self.members()
        own = format(status["header"]["member_id"], "x")
        path = args["dir"]
        self.remove()
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
        part = os.path.join(path, PART)
        rc, out, err = self.call("snapshot", "save", part, timeout=args["timeout"])
        if rc != 0:
            raise Failure("etcd gave no snapshot: %s" % clean(err or out, 500),
                          "Look at the space on the node (df %s) and at `crictl logs` of etcd" % path, rc=rc)
        os.chmod(part, 0o600)
        rc, out, err = run([args["etcdutl"], "snapshot", "status", part, "--write-out=json"], timeout=args["timeout"])
        try:
            seen = json.loads(out) if rc == 0 else None
        except ValueError:
            seen = None
        if not seen or not seen.get("totalKey"):
            raise Failure("etcdutl does not accept the snapshot: %s" % clean(err or out, 500), rc=rc)
        names = {format(item["ID"], "x"): item["name"] for item in self.identified()}
        snapshot = {
            "made": datetime.datetime.now(datetime.timezone.utc).isoformat(), "member": names.get(own, own),
            "members": members,
            "etcd": status["version"], "revision": seen["revision"], "keys": seen["totalKey"], "hash": seen["hash"],
            "contents": self.contents(seen["revision"]),
        }
        os.rename(part, os.path.join(path, SNAPSHOT))
        write_atomically(os.path.join(path, STATUS), json.dumps(snapshot).encode(), 0o600)
        return snapshot

    def contents(self, revision):
        """Return what etcd has at the revision of the snapshot; nothing when it does not tell that any more."""
        rc, out, dummy = self.call("get", PREFIX, "--prefix", "--keys-only", "--rev=%d" % revision, timeout=120)
        return contents(out.split("\n")) if rc == 0 else None

    def identified(self):
        """Return the members with ids and names."""
        _, out, _ = self.call("member", "list", "--write-out=json")
        return [{"ID": item["ID"], "name": item.get("name", "")} for item in json.loads(out or "{}").get("members")
                or []]

    def remove(self):
        """Remove a snapshot; what is known of it goes first."""
        status = os.path.join(self.args["dir"], STATUS)
        if os.path.lexists(status):
            os.unlink(status)
        shutil.rmtree(self.args["dir"], ignore_errors=True)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["examined", "saved", "absent"], "required": True},
            "dir": {"type": "path", "required": True},
            "endpoint": {"type": "str", "default": "https://127.0.0.1:2379"},
            "ca": {"type": "path", "required": True},
            "cert": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "etcdctl": {"type": "str", "default": "etcdctl"},
            "etcdutl": {"type": "str", "default": "etcdutl"},
            "timeout": {"type": "int", "default": 900},
        },
        supports_check_mode=True)
    backup, state = Backup(module.params), module.params["state"]
    try:
        if state == "examined":
            healthy, leader, why = backup.examine()
            module.exit_json(changed=False, healthy=healthy, leader=leader, why=why)
        if state == "absent":
            there = os.path.lexists(module.params["dir"])
            if there and not module.check_mode:
                backup.remove()
            module.exit_json(changed=there)
        snapshot = {} if module.check_mode else backup.save()
    except Failure as err:
        module.fail_json(changed=False, **err.result())
    module.exit_json(changed=True, snapshot=snapshot)


if __name__ == "__main__":
    main()
