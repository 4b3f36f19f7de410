# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import unittest

from support import Case, run
from test_drain import STAYS, node, pod


def member(number, **more):
    """Return a member of etcd."""
    return dict({"ID": (1 << 60) + number, "name": "m%d" % number, "peerURLs": ["https://10.0.0.%d:2380" % number],
                 "clientURLs": ["https://10.0.0.%d:2379" % number]}, **more)


class Node(Case):
    """kaas_node."""

    def ensure(self, state, check=False, **args):
        return run("kaas_node", dict({"name": "w1", "state": state, "kubeconfig": self.path("admin.conf"),
                                      "kubectl": self.path("bin/kubectl"),
                                      "timeout": 0}, **args), check=check)

    def test_absent(self):
        self.cluster(nodes=[node(unschedulable=True)], pods=STAYS + [pod("old", meta={"deletionTimestamp": "x"})])
        self.assertTrue(self.ensure("absent", check=True)["changed"])
        self.assertEqual(len(self.things("nodes")), 1)
        self.assertFalse(self.ensure("leavable")["changed"])
        self.assertTrue(self.ensure("absent")["changed"])
        self.assertEqual(self.things("nodes"), [])
        self.assertFalse(self.ensure("absent")["changed"])
        self.assertNotIn("failed", self.ensure("leavable"))

    def test_undrained_is_refused(self):
        for nodes, pods, want in [([node()], [], "may still be scheduled"),
                                  ([node(unschedulable=True)], [pod("a"), pod("b")], "default/a, default/b still run")]:
            self.cluster(nodes=nodes, pods=pods)
            for state in ("leavable", "absent"):
                got = self.ensure(state)
                self.assertIn(want, got["msg"])
                self.assertIn("delete_undrained", got["hint"])
            self.assertEqual(len(self.things("nodes")), 1)
            self.assertTrue(self.ensure("absent", undrained=True)["changed"])

    def ready_node(self, status="True", kubelet="v1.37.2", machine="0123"):
        found = node()
        found["status"] = {"conditions": [{"type": "Ready", "status": status, "message": "the network is not there"}],
                           "nodeInfo": {"kubeletVersion": kubelet, "machineID": machine}}
        return found

    def test_ready(self):
        static = pod("kube-apiserver-w1", containers=[{"image": "reg:5000/kaas/kube-apiserver:v1.37.2"}])
        static["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        wanted = {"version": "v1.37.2", "components": {"kube-apiserver": "v1.37.2"}}
        self.cluster(nodes=[self.ready_node()], pods=[static])
        self.assertEqual(self.ensure("ready", **wanted)["why"], "")
        self.assertIn("its kubelet is v1.37.2, not v1.38.0", self.ensure("ready", version="v1.38.0")["msg"])
        self.assertIn("kube-apiserver is v1.37.2, not v1.38.0",
                      self.ensure("ready", components={"kube-apiserver": "v1.38.0"})["msg"])
        self.assertIn("etcd does not run", self.ensure("ready", components={"etcd": "1"})["msg"])
        static["status"]["conditions"] = []
        self.cluster(nodes=[self.ready_node()], pods=[static])
        self.assertIn("kube-apiserver is not ready", self.ensure("ready", **wanted)["msg"])
        self.cluster(nodes=[self.ready_node(status="False")], pods=[])
        self.assertIn("the network is not there", self.ensure("ready")["msg"])
        self.assertIn("the network is not there", self.ensure("ready", check=True)["why"])
        self.cluster(nodes=[], pods=[])
        self.assertIn("has not joined", self.ensure("ready")["msg"])

    def test_examined(self):
        mine = {"member": True, "machine_id": "0123", "patience": 0}
        for nodes, args, why in [
                ([self.ready_node()], mine, ""), ([self.ready_node(machine="other")], mine,
                                                  "the machine is another one than the node's"),
                ([], mine, "the cluster has no such node"),
                ([self.ready_node()], {}, "the machine is no member of the cluster"),
                ([self.ready_node(status="Unknown")], mine, "the network is not there")]:
            self.cluster(nodes=nodes, pods=[])
            got = self.ensure("examined", **args)
            self.assertEqual((got["why"], got["fit"], got["changed"]), (why, not why, False))


class Etcd(Case):
    """kaas_etcd."""

    def ensure(self, state, number=2, check=False, **args):
        self.write("cert", "")
        return run("kaas_etcd", dict({"state": state, "name": "m%d" % number,
                                      "peer_url": "https://10.0.0.%d:2380" % number, "timeout": 0,
                                      "cert": self.path("cert"), "etcdctl": self.path("bin/etcdctl")}, **args),
                   check=check)

    def names(self):
        return [item["name"] for item in self.things("members")]

    def test_dead_member_is_removed(self):
        self.cluster(members=[member(1), member(2, down=True), member(3)])
        self.assertEqual(self.ensure("absent", check=True)["removed"], ["1000000000000002"])
        self.assertEqual(self.names(), ["m1", "m2", "m3"])
        self.assertNotIn("failed", self.ensure("removable"))
        self.assertTrue(self.ensure("absent")["changed"])
        self.assertEqual(self.names(), ["m1", "m3"])
        self.assertFalse(self.ensure("absent")["changed"])
        self.assertFalse(self.ensure("removable")["changed"])

    def test_quorum_is_kept(self):
        self.cluster(members=[member(1), member(2), member(3, down=True)])
        for state in ("removable", "absent"):
            got = self.ensure(state)
            self.assertIn("m2 may not be removed: etcd would have no quorum. Of the 2 members that remain 1 are "
                          "healthy and 2 are needed", got["msg"])
            self.assertIn("m3 (context deadline exceeded)", got["msg"])
            self.assertIn("Bring these masters back", got["hint"])
        self.assertEqual(self.names(), ["m1", "m2", "m3"])
        self.assertTrue(self.ensure("absent", number=3)["changed"], "the dead one may go")
        self.assertTrue(self.ensure("absent", number=2)["changed"])
        self.assertIn("the last master", self.ensure("absent", number=1)["msg"])
        self.assertEqual(self.names(), ["m1"])

    def test_stale_members(self):
        # A machine that was recreated: its name at an old address, its address under an old name, a learner that never
        # started.
        self.cluster(members=[member(1), member(3),
                              member(2, peerURLs=["https://10.0.0.99:2380"], clientURLs=["https://10.0.0.99:2379"],
                                     down=True)])
        self.assertEqual(len(self.ensure("absent")["removed"]), 1)
        self.cluster(members=[member(1), member(3),
                              {"ID": 7, "peerURLs": ["https://10.0.0.2:2380"], "isLearner": True, "down": True}])
        self.assertEqual(self.ensure("absent")["removed"], ["7"])
        self.assertEqual(self.names(), ["m1", "m3"])

    def test_gates(self):
        self.cluster(members=[member(1), member(2), member(3)])
        self.assertEqual(self.ensure("healthy")["why"], "")
        self.assertEqual(self.ensure("voting")["why"], "")
        self.assertTrue(self.ensure("examined")["fit"])
        for bad, why in [(member(2, down=True), "context deadline exceeded"),
                         (member(2, isLearner=True), "does not vote yet"),
                         ({"ID": 7, "name": "", "peerURLs": ["https://10.0.0.2:2380"]}, "it has not started")]:
            self.cluster(members=[member(1), bad, member(3)])
            for state in ("healthy", "voting"):
                self.assertIn(why, self.ensure(state)["msg"])
                self.assertIn(why, self.ensure(state, check=True)["why"])
            self.assertEqual(self.ensure("examined")["fit"], False)
        self.cluster(members=[member(1)])
        self.assertIn("it is no member", self.ensure("voting")["msg"])

    def test_etcd_is_down(self):
        self.program("etcdctl", "echo 'Error: context deadline exceeded' >&2; exit 1")
        self.assertIn("does not answer: Error: context deadline exceeded", self.ensure("absent")["msg"])
        self.assertFalse(self.ensure("absent", check=True, cert=self.path("none"))["changed"])


if __name__ == "__main__":
    unittest.main()
