#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_drain
short_description: Cordons, drains and uncordons a node, from a master
description:
  - C(drained) cordons the node, rehearses with server-side dry-run evictions, and then evicts through the eviction API,
    which respects disruption budgets, until nothing is left or O(timeout) has passed. Pods of daemon sets and mirror
    pods stay.
  - Before the first pod is evicted it fails when one can never be, namely without a controller, with emptyDir data, or
    behind a budget that allows nothing even when all its pods are healthy. Budgets that allow nothing just now are
    waited for.
  - A drain that fails uncordons the node again, unless a person else had cordoned it. An annotation keeps who did, so
    this also holds for a drain that continues where one was cut off.
  - C(cordoned) and C(uncordoned) do only that.
options:
  name:
    description: Name of the node.
    type: str
    required: true
  state:
    description: What to bring the node to.
    type: str
    choices: [drained, cordoned, uncordoned]
    default: drained
  force:
    description: Evict pods without a controller too. Nothing recreates them.
    type: bool
    default: false
  delete_emptydir_data:
    description: Evict pods with emptyDir volumes too. Their data is lost.
    type: bool
    default: false
  grace_period:
    description: Seconds that pods have to end; -1 for what each of them says.
    type: int
    default: -1
  wait_gone:
    description: Wait until evicted pods are gone. A machine that is off never says so; the cluster then only marks
      them.
    type: bool
    default: true
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
    default: 300
  ending:
    description: Seconds that pods which were evicted in time may still take to end after O(timeout). They do not come
      back, so a drain that is given up because of them has to be made once more for nothing.
    type: int
    default: 90
attributes:
  check_mode:
    support: full
    description: Only rehearses. RV(evicted) is what would be evicted, RV(blocking) what would keep the node from being
      drained.
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Drain the node
  kaas_drain:
    name: worker-1
  delegate_to: master-1
"""

RETURN = r"""
evicted:
  description: Pods that were evicted, or would be, as C(namespace/name).
  type: list
  elements: str
  returned: always
blocking:
  description: Pods that keep the node from being drained.
  type: list
  elements: dict
  returned: always
  contains:
    pod:
      description: The pod as C(namespace/name).
      type: str
    cause:
      description: One of budget, unmanaged, local_data, terminating, refused.
      type: str
    reason:
      description: The same for people.
      type: str
    budget:
      description: The disruption budget as C(namespace/name), for the cause budget.
      type: str
    allowed:
      description: How many disruptions it allows now.
      type: int
uncordoned:
  description: Whether the failed drain has uncordoned the node again.
  type: bool
  returned: failure
"""

import concurrent.futures
import json
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import Failure, Kubectl, clean, cluster_args, no_cluster_yet
from ansible.module_utils.kaas_nodes import CORDONED_BY, budgets, cordoned, leaving, node_or_fail

AT_ONCE = 4
PAUSE = 2.0
HINTS = {
    "budget": "add replicas, wait until all of them are healthy, or loosen the budget",
    "unmanaged": "remove the pod, or drain with drain_force when it may be lost",
    "local_data": "drain with drain_delete_emptydir_data when the data may be lost",
    "terminating": "give it more time (drain_timeout_seconds), or end it with a shorter drain_grace_period_seconds",
    "refused": "look at the message of the API server",
}


class Blocked(Failure):
    """Pods keep the node from being drained."""

    def __init__(self, name, blocking):
        causes = [cause for cause in HINTS if any(item["cause"] == cause for item in blocking)]
        super().__init__("node %s cannot be drained: %s"
                         % (name, "; ".join("%s (%s)" % (b["pod"], b["reason"]) for b in blocking)),
                         "; ".join(HINTS[cause] for cause in causes).capitalize(), blocking=blocking)


class Drain:
    """Work on one node."""

    def __init__(self, args, check, clock=time.monotonic, sleep=time.sleep):
        self.args, self.check, self.name = args, check, args["name"]
        # What is left of the time is for saying what blocks and for uncordoning.
        self.kubectl = Kubectl.of(args, more=args["ending"] + 120)
        self.clock, self.sleep = clock, sleep
        self.deadline = clock() + args["timeout"]
        self.end = self.deadline + args["ending"]
        self.changed, self.evicted, self.last = False, [], {}

    def mark(self, node, wanted, by):
        """Cordon or uncordon, and write down who did."""
        annotations = node["metadata"].get("annotations") or {}
        if cordoned(node) == wanted and annotations.get(CORDONED_BY, "") == by:
            return
        self.changed = True
        if not self.check:
            self.kubectl.do("patch", "node", self.name, "--type=merge", "-p", json.dumps({
                "metadata": {"annotations": {CORDONED_BY: by or None}}, "spec": {"unschedulable": wanted or None}}))

    def ensure(self, state):
        """Bring the node to its state; return what blocks in check mode."""
        node = node_or_fail(self.kubectl, self.name)
        if state != "drained":
            self.mark(node, state == "cordoned", "")
            return []
        by = (node["metadata"].get("annotations") or {}).get(CORDONED_BY, "")
        ours = not cordoned(node) or by == "drain"
        if not cordoned(node):
            self.mark(node, True, "drain")
        try:
            return self.drain()
        except Failure as err:
            if not self.check:
                err.details["uncordoned"] = ours and self.give_back()
            raise

    def give_back(self):
        """Uncordon after a failure; say whether that worked."""
        try:
            self.mark(node_or_fail(self.kubectl, self.name), False, "")
        except Failure:
            return False
        return True

    def drain(self):
        """Evict what has to leave."""
        pods = self.left()
        blocking = self.rehearse(pods)
        if self.check:
            stuck = {item["pod"] for item in blocking}
            self.evicted = [str(pod) for pod in pods if not pod.terminating and str(pod) not in stuck]
            self.changed = self.changed or bool(self.evicted)
            return blocking
        lasting = [item for item in blocking if item.pop("lasting")]
        if lasting:
            raise Blocked(self.name, lasting)
        while pods:
            for pod, answer in self.each([pod for pod in pods if not pod.terminating], rehearsal=False):
                if answer == "":
                    self.changed = True
                    self.evicted.append(str(pod))
                self.last[str(pod)] = answer
            pods = self.left()
            if pods and self.clock() >= (self.end if all(pod.terminating for pod in pods) else self.deadline):
                raise Blocked(self.name, [self.why(pod, budgets(self.kubectl)) for pod in pods])
            if pods:
                self.sleep(PAUSE)
        return []

    def left(self):
        """Return the pods that still have to leave."""
        return [pod for pod in leaving(self.kubectl, self.name) if self.args["wait_gone"] or not pod.terminating]

    def rehearse(self, pods):
        """Return what would block each pod now; "lasting" says that waiting does not help."""
        blocking, trying = [], []
        for pod in pods:
            if pod.terminating:
                continue
            if pod.unmanaged and not self.args["force"]:
                blocking.append({"pod": str(pod), "cause": "unmanaged", "lasting": True,
                                 "reason": "it has no controller, so nothing would recreate it"})
            elif pod.local_data and not self.args["delete_emptydir_data"]:
                blocking.append({"pod": str(pod), "cause": "local_data", "lasting": True,
                                 "reason": "the data of emptyDir %s would be lost" % ", ".join(pod.local_data)})
            else:
                trying.append(pod)
        refused = [(pod, answer) for pod, answer in self.each(trying, rehearsal=True) if answer]
        known = budgets(self.kubectl) if refused else []
        for pod, answer in refused:
            self.last[str(pod)] = answer
            item = self.why(pod, known)
            item["lasting"] = item["cause"] == "refused" or any(b.never for b in known if b.covers(pod))
            blocking.append(item)
        return blocking

    def why(self, pod, known):
        """Return why a pod is still there."""
        if pod.terminating:
            return {"pod": str(pod), "cause": "terminating", "reason": "it was evicted and has not ended yet"}
        answer = self.last.get(str(pod), "")
        if "disruption budget" in answer or not answer:
            for budget in sorted((b for b in known if b.covers(pod)), key=lambda b: b.allowed):
                return {"pod": str(pod), "cause": "budget", "reason": budget.reason(), "budget": str(budget),
                        "allowed": budget.allowed}
        return {"pod": str(pod), "cause": "refused",
                "reason": answer or "it came to the node after the drain had begun"}

    def each(self, pods, rehearsal):
        """Evict pods and return (pod, why it was refused); nothing when it was accepted or is gone."""
        if not pods:
            return []
        with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return list(zip(pods, pool.map(lambda pod: self.evict(pod, rehearsal), pods)))

    def evict(self, pod, rehearsal):
        """Ask for one eviction."""
        options = {"preconditions": {"uid": pod.uid}}
        if self.args["grace_period"] >= 0:
            options["gracePeriodSeconds"] = self.args["grace_period"]
        if rehearsal:
            options["dryRun"] = ["All"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": options}
        while True:
            rc, out, err = self.kubectl.call(
                "create", "--raw", "/api/v1/namespaces/%s/pods/%s/eviction" % (pod.namespace, pod.name), "-f", "-",
                stdin=json.dumps(body), timeout=30)
            if rc == 0 or "(NotFound)" in err or "(Conflict)" in err:  # gone, or another pod of that name
                return ""
            text = clean(err or out, 300) or "no answer"
            # More than one budget for a pod is an internal error to the API server, and stays one.
            if ("(TooManyRequests)" in err or "more than one PodDisruptionBudget" in err
                    or not self.kubectl.passing(rc, err)):
                return text
            if self.clock() >= self.deadline:
                return text
            self.sleep(PAUSE)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(cluster_args(300), **{
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "cordoned", "uncordoned"], "default": "drained"},
            "force": {"type": "bool", "default": False},
            "delete_emptydir_data": {"type": "bool", "default": False},
            "grace_period": {"type": "int", "default": -1},
            "wait_gone": {"type": "bool", "default": True},
            "ending": {"type": "int", "default": 90},
        }),
        supports_check_mode=True)
    if no_cluster_yet(module):
        module.exit_json(changed=False, evicted=[], blocking=[], msg="there is no cluster yet")
    work = Drain(module.params, module.check_mode)
    try:
        blocking = work.ensure(module.params["state"])
    except Failure as err:
        result = dict({"blocking": [], "uncordoned": False}, **err.result())
        if module.check_mode:
            module.exit_json(changed=False, evicted=[], **result)
        module.fail_json(changed=work.changed, evicted=work.evicted, **result)
    for item in blocking:
        item.pop("lasting", None)
    result = {"changed": work.changed, "evicted": work.evicted, "blocking": blocking}
    if blocking:
        result["msg"] = str(Blocked(work.name, blocking))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
