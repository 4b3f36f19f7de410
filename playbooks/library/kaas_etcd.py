#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_etcd
short_description: The members of the masters' etcd, seen and removed from a master
description:
  - C(healthy) waits until every member votes and is healthy, which is what an upgrade starts from.
  - C(voting) waits until the member at O(peer_url) has started, votes and is healthy, which is what a join ends with.
  - C(removable) fails when etcd would have no quorum without the member. C(absent) removes it under the same condition.
    Members are told by O(name) and by O(peer_url), so one that a lost machine has left is found too. The member itself
    need not answer.
  - C(examined) says in RV(fit) whether the member is there, votes and is healthy. It changes nothing and does not fail
    when it is not.
options:
  state:
    description: What is wanted.
    type: str
    choices: [healthy, voting, removable, absent, examined]
    required: true
  name:
    description: Name of the member, which is the node's name.
    type: str
    default: ""
  peer_url:
    description: The address at which other members reach it, such as https://10.88.0.12:2380.
    type: str
    default: ""
  endpoint:
    description: Where etcd is asked.
    type: str
    default: https://127.0.0.1:2379
  ca:
    description: Certificate of etcd's CA.
    type: path
    default: /etc/kubernetes/pki/etcd/ca.crt
  cert:
    description: Certificate to ask with.
    type: path
    default: /etc/kubernetes/pki/apiserver-etcd-client.crt
  key:
    description: Its key.
    type: path
    default: /etc/kubernetes/pki/apiserver-etcd-client.key
  etcdctl:
    description: The program.
    type: str
    default: etcdctl
  answer_seconds:
    description: Seconds that a member has to answer.
    type: int
    default: 10
  timeout:
    description: Seconds after which it is given up.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: The gates only look once and do not fail; on a node that is no master yet nothing is asked.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Remove the member of a master that is gone
  kaas_etcd:
    state: absent
    name: master-2
    peer_url: https://10.88.0.12:2380
  delegate_to: master-1
"""

RETURN = r"""
removed:
  description: IDs of the members that were removed, or would be, in hexadecimal.
  type: list
  elements: str
  returned: always
fit:
  description: Whether the member is there, votes and is healthy.
  type: bool
  returned: examined
why:
  description: Why not; also what a gate would wait for in check mode.
  type: str
  returned: always
"""

import json
import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, clean, run

PAUSE = 3.0


class Member:
    """A member of etcd."""

    def __init__(self, document):
        self.id = format(document["ID"], "x")
        self.name = document.get("name", "")  # empty until it has started for the first time
        self.peers, self.clients = document.get("peerURLs") or [], document.get("clientURLs") or []
        self.learner = bool(document.get("isLearner"))

    def __str__(self):
        return self.name or "the member at " + ", ".join(self.peers)


class Etcd:
    """etcd through etcdctl."""

    def __init__(self, args, check, clock=time.monotonic, sleep=time.sleep):
        self.args, self.check = args, check
        self.clock, self.sleep = clock, sleep
        self.deadline = clock() + args["timeout"]
        self.removed = []

    def call(self, endpoints, *argv):
        """Run etcdctl once."""
        args = self.args
        return run([args["etcdctl"], "--endpoints=" + ",".join(endpoints), "--cacert=" + args["ca"],
                    "--cert=" + args["cert"], "--key=" + args["key"], "--dial-timeout=%ds" % args["answer_seconds"],
                    "--command-timeout=%ds" % args["answer_seconds"]] + list(argv),
                   timeout=4 * args["answer_seconds"], env={"ETCDCTL_API": "3"})

    def members(self):
        """Return the members as this master's own etcd knows them, so that a cluster without a quorum can be looked at
        too."""
        while True:
            rc, out, err = self.call([self.args["endpoint"]], "member", "list", "--consistency=s", "--write-out=json")
            if rc == 0:
                return [Member(item) for item in json.loads(out).get("members") or []]
            if self.check or self.clock() >= self.deadline:
                raise Failure("etcd at %s does not answer: %s" % (self.args["endpoint"], clean(err or out, 500)),
                              "Look at `crictl ps -a` on the master that is asked")
            self.sleep(PAUSE)

    def unhealthy(self, members):
        """Return {member: why} of those that are not healthy."""
        why = {member: "it has not started" for member in members if not member.clients}
        asked = {member.clients[0]: member for member in members if member.clients}
        if not asked:
            return why
        rc, out, err = self.call(sorted(asked), "endpoint", "health", "--write-out=json")
        try:
            answers = {item["endpoint"]: item for item in json.loads(out)}
        except ValueError:
            raise Failure("etcdctl endpoint health says nothing: %s" % clean(err or out, 500), rc=rc) from None
        for url, member in asked.items():
            answer = answers.get(url, {})
            if not answer.get("health"):
                why[member] = clean(answer.get("error") or "it does not answer", 200)
        return why

    def mine(self, members):
        """Return the members that the name or the address means."""
        return [member for member in members if (self.args["name"] and member.name == self.args["name"])
                or (self.args["peer_url"] and self.args["peer_url"] in member.peers)]

    def not_healthy(self):
        """Return what etcd lacks to have all members voting and healthy."""
        members = self.members()
        why = {str(member): text for member, text in self.unhealthy(members).items()}
        why.update((str(member), "it does not vote yet") for member in members if member.learner
                   and str(member) not in why)
        return "; ".join("%s: %s" % pair for pair in sorted(why.items()))

    def not_voting(self):
        """Return what the member lacks to vote and be healthy."""
        members = self.members()
        mine = self.mine(members)
        if not mine:
            return "it is no member"
        if len(mine) > 1:
            return "there are %d members with its name or address" % len(mine)
        if mine[0].learner:
            return "it does not vote yet"
        if self.args["peer_url"] and self.args["peer_url"] not in mine[0].peers:
            return "the member of its name is at %s" % ", ".join(mine[0].peers)
        return self.unhealthy(mine).get(mine[0], "")

    def gate(self, missing, what, hint):
        """Wait until missing says nothing."""
        while True:
            why = missing()
            if not why or self.check:
                return why
            if self.clock() >= self.deadline:
                raise Failure("%s: not within %d s: %s" % (what, self.args["timeout"], why), hint)
            self.sleep(PAUSE)

    def doomed(self):
        """Return the members to remove; raise Failure when the others could not continue without them."""
        members = self.members()
        mine = self.mine(members)
        if not mine:
            return []
        rest = [member for member in members if not member.learner and member not in mine]
        name = self.args["name"] or self.args["peer_url"]
        if not rest:
            raise Failure("%s is the last master: without it there is no cluster" % name,
                          "Delete the cluster if that is meant")
        bad = self.unhealthy(rest)
        healthy, needed = len(rest) - len(bad), len(rest) // 2 + 1
        if healthy < needed:
            others = ", ".join("%s (%s)" % (member, bad[member]) for member in sorted(bad, key=str))
            raise Failure(
                "%s may not be removed: etcd would have no quorum. Of the %d members that remain %d are healthy and %d "
                "are needed; not healthy: %s"
                % (name, len(rest), healthy, needed, others),
                "Bring these masters back first (start their machines), or delete them before a healthy one")
        return mine

    def absent(self):
        """Remove the member."""
        for member in self.doomed():
            self.removed.append(member.id)
            while not self.check:
                rc, out, err = self.call([self.args["endpoint"]], "member", "remove", member.id)
                if rc == 0 or "member not found" in err:
                    break
                if self.clock() >= self.deadline or "re-configuration failed" in err:
                    raise Failure("etcd does not remove %s: %s" % (member, clean(err or out, 500)),
                                  "All other masters have to be up and healthy for a moment")
                self.sleep(PAUSE)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["healthy", "voting", "removable", "absent", "examined"],
                      "required": True},
            "name": {"type": "str", "default": ""},
            "peer_url": {"type": "str", "default": ""},
            "endpoint": {"type": "str", "default": "https://127.0.0.1:2379"},
            "ca": {"type": "path", "default": "/etc/kubernetes/pki/etcd/ca.crt"},
            "cert": {"type": "path", "default": "/etc/kubernetes/pki/apiserver-etcd-client.crt"},
            "key": {"type": "path", "default": "/etc/kubernetes/pki/apiserver-etcd-client.key", "no_log": False},
            "etcdctl": {"type": "str", "default": "etcdctl"},
            "answer_seconds": {"type": "int", "default": 10},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True)
    args, state = module.params, module.params["state"]
    if state not in ("healthy",) and not args["name"] and not args["peer_url"]:
        module.fail_json(msg="name or peer_url is needed to know the member")
    if module.check_mode and not os.path.exists(args["cert"]):
        module.exit_json(changed=False, removed=[], fit=False, why="there is no etcd yet")
    etcd = Etcd(args, module.check_mode)
    why = ""
    try:
        if state == "healthy":
            why = etcd.gate(etcd.not_healthy, "etcd is not healthy", "Bring the masters named back first")
        elif state == "voting":
            why = etcd.gate(etcd.not_voting, "the etcd member of %s is not up" % (args["name"] or args["peer_url"]),
                            "Look at `crictl logs` of etcd on the node")
        elif state == "removable":
            etcd.doomed()
        elif state == "absent":
            etcd.absent()
        else:
            why = etcd.not_voting()
    except Failure as err:
        module.fail_json(changed=bool(etcd.removed), removed=etcd.removed, **err.result())
    module.exit_json(changed=bool(etcd.removed), removed=etcd.removed, fit=not why, why=why)


if __name__ == "__main__":
    main()
