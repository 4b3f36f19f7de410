# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import unittest

from support import Case, load, run

MARK = "director.kaas/cordoned-by"


def node(name="w1", annotations=None, **spec):
    """Return a node."""
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec, "status": {
        "conditions": [{"type": "Ready", "status": "True"}]}}


def pod(name, owner="ReplicaSet", where="w1", labels=None, **more):
    """Return a pod."""
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "controller": True}]
    meta.update(more.pop("meta", {}))
    return {"metadata": meta, "spec": dict({"nodeName": where}, **more), "status": {"phase": "Running"}}


def budget(allowed, needed=1, expected=2, **more):
    """Return a disruption budget of the pods with the label app=web."""
    return dict({"metadata": {"name": "web", "namespace": "default"},
                 "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {
        "disruptionsAllowed": allowed, "currentHealthy": needed, "desiredHealthy": needed, "expectedPods": expected}},
                **more)


WEB = {"app": "web"}
STAYS = [pod("calico", owner="DaemonSet"),
         pod("etcd-w1", owner="Node", meta={"annotations": {"kubernetes.io/config.mirror": "x"}}),
         pod("elsewhere", where="w2")]


class Drain(Case):
    """kaas_drain."""

    def ensure(self, check=False, **args):
        return run("kaas_drain", dict({"name": "w1", "kubeconfig": self.path("admin.conf"),
                                       "kubectl": self.path("bin/kubectl"),
                                       "timeout": 0, "ending": 0}, **args), check=check)

    def node(self):
        return self.things("nodes")[0]

    def evictions(self, kind):
        return [line.split()[-1] for line in self.calls() if line.startswith("kubectl evict " + kind)]

    def test_drains_once(self):
        self.cluster(nodes=[node()], pods=[pod("a"), pod("b")] + STAYS)
        got = self.ensure(timeout=30)
        self.assertEqual((got["changed"], got["evicted"]), (True, ["default/a", "default/b"]))
        self.assertEqual([item["metadata"]["name"] for item in self.things("pods")], ["calico", "etcd-w1", "elsewhere"])
        self.assertTrue(self.node()["spec"]["unschedulable"])
        self.assertFalse(self.ensure()["changed"])
        self.assertFalse(self.ensure(check=True)["changed"])

    def test_check_mode_only_rehearses(self):
        self.cluster(nodes=[node()], pods=[pod("a"), pod("alone", owner=""), pod("c", labels=WEB)] + STAYS,
                     poddisruptionbudgets=[budget(0)])
        before = self.things("pods")
        got = self.ensure(check=True)
        self.assertNotIn("failed", got)
        self.assertEqual((got["changed"], got["evicted"]), (True, ["default/a"]))
        self.assertEqual([(item["pod"], item["cause"]) for item in got["blocking"]],
                         [("default/alone", "unmanaged"), ("default/c", "budget")])
        self.assertEqual((self.things("pods"), self.node()["spec"], self.evictions("real")), (before, {}, []))
        self.assertNotIn("failed", self.ensure(check=True, name="nobody"))

    def test_budget_that_never_allows(self):
        self.cluster(nodes=[node()], pods=[pod("a"), pod("b", labels=WEB)],
                     poddisruptionbudgets=[budget(0, needed=2, expected=2)])
        got = self.ensure(timeout=60)
        self.assertTrue(got["failed"])
        self.assertEqual(got["blocking"], [{
            "pod": "default/b", "cause": "budget", "budget": "default/web", "allowed": 0,
            "reason": "disruption budget default/web allows 0 disruptions: 2 of its 2 pods have to be healthy, 2 are"}])
        self.assertIn("node w1 cannot be drained: default/b (disruption budget default/web allows 0", got["msg"])
        self.assertEqual((self.evictions("real"), got["uncordoned"]), ([], True),
                         "a pod was evicted although the drain cannot end")
        self.assertEqual((self.node()["spec"], self.node()["metadata"]["annotations"]), ({}, {}))

    def test_budget_until_the_timeout(self):
        self.cluster(nodes=[node()], pods=[pod("a"), pod("b", labels=WEB)], poddisruptionbudgets=[budget(0)])
        got = self.ensure()
        self.assertEqual((got["evicted"], [item["cause"] for item in got["blocking"]]), (["default/a"], ["budget"]))
        self.assertTrue(got["uncordoned"])
        self.assertNotIn("unschedulable", self.node()["spec"])

    def test_budget_that_allows_again(self):
        self.cluster(nodes=[node()], pods=[pod("b", labels=WEB)], poddisruptionbudgets=[budget(0, heals=1)])
        got = self.ensure(timeout=30)
        self.assertEqual((got.get("msg"), got["evicted"]), (None, ["default/b"]))

    def test_cordon_of_a_person_stays(self):
        self.cluster(nodes=[node(unschedulable=True)], pods=[pod("alone", owner="")])
        got = self.ensure()
        self.assertEqual((got["failed"], got["uncordoned"]), (True, False))
        self.assertTrue(self.node()["spec"]["unschedulable"])

    def test_cordon_of_a_drain_that_was_cut_off(self):
        self.cluster(nodes=[node(unschedulable=True, annotations={MARK: "drain"})], pods=[pod("alone", owner="")])
        self.assertTrue(self.ensure()["uncordoned"])
        self.assertEqual(self.node()["spec"], {})

    def test_what_a_person_allowed(self):
        self.cluster(nodes=[node()], pods=[pod("alone", owner=""),
                                           pod("data", volumes=[{"name": "scratch", "emptyDir": {}}])])
        got = self.ensure()
        self.assertEqual([item["cause"] for item in got["blocking"]], ["unmanaged", "local_data"])
        self.assertIn("emptyDir scratch", got["msg"])
        self.assertIn("drain_force", got["hint"])
        got = self.ensure(force=True, delete_emptydir_data=True, grace_period=5, timeout=30)
        self.assertEqual(got["evicted"], ["default/alone", "default/data"])

    def test_refused_by_the_server(self):
        self.cluster(nodes=[node()], pods=[pod("a", meta={"forbidden": True}), pod("b")])
        got = self.ensure(timeout=60)
        self.assertEqual(([item["cause"] for item in got["blocking"]], self.evictions("real")), (["refused"], []))
        self.assertIn("nobody may", got["msg"])

    def test_dead_machine(self):
        self.cluster(nodes=[node()], pods=[pod("a")], dead=["w1"])
        got = self.ensure()
        self.assertEqual([item["cause"] for item in got["blocking"]], ["terminating"])
        self.cluster(nodes=[node()], pods=[pod("a")], dead=["w1"])
        self.assertEqual(self.ensure(wait_gone=False)["evicted"], ["default/a"])
        self.assertFalse(self.ensure(wait_gone=False)["changed"])

    def test_evicted_pods_may_end_after_the_time(self):
        module = load("library/kaas_drain.py", "kaas_drain")
        self.cluster(nodes=[node()], pods=[pod("a")], dead=["w1"])
        args = {"name": "w1", "kubeconfig": self.path("admin.conf"), "kubectl": self.path("bin/kubectl"), "timeout": 4,
                "ending": 6, "force": False,
                "delete_emptydir_data": False, "grace_period": -1, "wait_gone": True}

        def drain(ends):
            now = [0]

            def sleep(seconds):
                now[0] += seconds
                if now[0] >= ends:
                    self.cluster(nodes=self.things("nodes"), pods=[])

            return module.Drain(args, False, lambda: now[0], sleep).ensure("drained")

        with self.assertRaises(module.Blocked) as failed:
            drain(ends=12)
        self.assertEqual([item["cause"] for item in failed.exception.details["blocking"]], ["terminating"])
        self.assertEqual(drain(ends=8), [])
        self.cluster(nodes=[node()], pods=[pod("a", labels=WEB)], poddisruptionbudgets=[budget(0)])
        with self.assertRaises(module.Blocked):  # not evicted in time
            drain(ends=8)

    def test_cordon_and_uncordon(self):
        self.cluster(nodes=[node(annotations={})], pods=[pod("a")])
        self.assertTrue(self.ensure(state="cordoned", check=True)["changed"])
        self.assertEqual(self.node()["spec"], {})
        self.assertTrue(self.ensure(state="cordoned")["changed"])
        self.assertFalse(self.ensure(state="cordoned")["changed"])
        self.assertTrue(self.ensure(state="uncordoned")["changed"])
        self.assertFalse(self.ensure(state="uncordoned")["changed"])
        self.assertEqual((self.node()["spec"], len(self.things("pods"))), ({}, 1))

    def test_unknown_node(self):
        self.cluster(nodes=[], pods=[])
        self.assertIn("node w1 is not in the cluster", self.ensure()["msg"])


class Selectors(unittest.TestCase):
    """Label selectors of budgets."""

    def test_selects(self):
        load("library/kaas_drain.py", "kaas_drain")
        selects = load("module_utils/kaas_nodes.py", "ansible.module_utils.kaas_nodes").selects
        labels = {"app": "web", "tier": "front"}
        for selector, want in [
                (None, False), ({}, True), ({"matchLabels": {"app": "web"}}, True),
                ({"matchLabels": {"app": "db"}}, False),
                ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}, True),
                ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
                ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, True),
                ({"matchExpressions": [{"key": "tier", "operator": "Exists"},
                                       {"key": "zone", "operator": "DoesNotExist"}]}, True),
                ({"matchExpressions": [{"key": "tier", "operator": "Unknown"}]}, False)]:
            self.assertEqual(selects(selector, labels), want, selector)


if __name__ == "__main__":
    unittest.main()
