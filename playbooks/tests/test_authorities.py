# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_authorities with openssl and a pretended systemctl, and of what kaas_certs renews while an authority is
changed."""
import base64
import hashlib
import json
import os
import subprocess
import time

from support import Case, run


class AuthoritiesTest(Case):
    """A master in a directory, and two authorities."""

    def setUp(self):
        super().setUp()
        for name in ("kubernetes/pki/etcd", "kubernetes/kaas", "kubelet/pki", "audit"):
            os.makedirs(self.path(name))
        for name in ("old", "new"):
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                         "/CN=" + name, "-days", "3650", "-keyout", name + ".key", "-out", name + ".crt")
        self.old, self.new = self.read("old.crt"), self.read("new.crt")
        self.certs("write", authorities={"cluster": self.old}, keys={"cluster": self.read("old.key")})
        self.leaf("old")
        self.write("kubernetes/admin.conf",
                   "clusters:\n- cluster:\n    certificate-authority-data: eA==\n    server: https://10.0.0.1:6443\n")
        self.write("bin/systemctl", """#!/bin/sh
echo "$@" >> %(root)s/calls
case "$1" in
show) cat %(root)s/started ;;
restart) date +@%%s > %(root)s/started ;;
esac
""" % {"root": self.root}, 0o755)
        self.write("started", "@%d\n" % (time.time() + 5))

    def openssl(self, *argv):
        """Run openssl."""
        subprocess.run(["openssl"] + list(argv), check=True, cwd=self.root, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def leaf(self, authority):
        """Have the API server's certificate signed."""
        name = "kubernetes/pki/apiserver"
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     "/CN=x", "-keyout", name + ".key", "-out", name + ".csr")
        self.openssl("x509", "-req", "-in", name + ".csr", "-CA", authority + ".crt", "-CAkey", authority + ".key",
                     "-CAcreateserial", "-out", name + ".crt")

    def certs(self, action, check=False, fails=False, module="kaas_authorities", **args):
        """Run the module."""
        answer = run(module, dict({"action": action, "kubernetes_dir": self.path("kubernetes"),
                                   "kubelet_dir": self.path("kubelet")}, **args),
                     check=check, path=self.bin)
        self.assertEqual(bool(answer.get("failed")), fails, answer)
        return answer

    def test_stages(self):
        """Both are trusted; the other one signs; the former one goes when nothing of it is left. A second run changes
        nothing."""
        both = self.old + self.new
        stage = {"authorities": {"cluster": both}, "keys": {"cluster": self.read("old.key")}}
        self.assertEqual(self.certs("write", check=True, **stage)["did"], ["pki/ca.crt", "admin.conf"])
        self.assertEqual(self.read("kubernetes/pki/ca.crt"), self.old)
        self.assertEqual(self.certs("write", **stage)["did"], ["pki/ca.crt", "admin.conf"])
        self.assertIn(base64.b64encode(both.encode()).decode() + "\n    server", self.read("kubernetes/admin.conf"))
        self.assertEqual(self.certs("write", **stage)["changed"], False)
        self.assertEqual(self.certs("renew", module="kaas_certs", check=True, before=0)["did"], [])

        stage = {"authorities": {"cluster": self.new + self.old}, "keys": {"cluster": self.read("new.key")}}
        self.assertEqual(self.certs("write", **stage)["did"],
                         ["pki/ca.crt", "admin.conf", "pki/ca-signing.crt", "pki/ca.key"])
        self.assertEqual(self.read("kubernetes/pki/ca-signing.crt"), self.new)
        self.assertEqual(self.mode("kubernetes/pki/ca.key"), 0o600)
        self.assertEqual(self.certs("renew", module="kaas_certs", check=True, before=0)["did"], ["apiserver"])

        alone = {"authorities": {"cluster": self.new}, "keys": {"cluster": self.read("new.key")}}
        answer = self.certs("write", fails=True, **alone)
        self.assertIn("authority that the director does not have: pki/apiserver.crt", answer["msg"])
        self.assertEqual(self.read("kubernetes/pki/ca.crt"), self.new + self.old)
        self.assertIn("former cluster authority are on the node: pki/apiserver.crt",
                      self.certs("unused", fails=True)["msg"])
        self.leaf("new")
        self.certs("unused")
        self.assertEqual(self.certs("renew", module="kaas_certs", check=True, before=0)["did"], [])
        self.assertEqual(self.certs("write", **alone)["did"], ["pki/ca.crt", "admin.conf"])
        self.assertEqual(self.certs("write", **alone)["changed"], False)

    def test_refuses(self):
        """Nothing is written of what is no certificate."""
        self.assertIn("no certificate in the etcd authority",
                      self.certs("write", fails=True, authorities={"cluster": self.new, "etcd": "x"})["msg"])
        self.assertEqual(self.read("kubernetes/pki/ca.crt"), self.old)

    def test_kubelet(self):
        """The kubelet is restarted once after what it trusts was written."""
        self.assertEqual(self.certs("kubelet")["did"], [])
        self.write("started", "@1\n")
        self.assertEqual(self.certs("kubelet", check=True)["did"], ["kubelet"])
        self.assertEqual(self.certs("kubelet")["did"], ["kubelet"])
        self.assertEqual(self.certs("kubelet")["did"], [])

    def test_callers(self):
        """Who comes with a certificate that was in use before the other authority signed is named; others are not."""
        now = int(time.time())
        later = -60 # what comes while the module looks

        def event(who, name, ago):
            at = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(now - ago))
            credential = ["X509SHA256=" + hashlib.sha256(who.encode()).hexdigest()]
            return json.dumps({"requestReceivedTimestamp": at, "user": {
                "username": name, "extra": {"authentication.kubernetes.io/credential-id": credential}}}) + "\n"
        self.leaf("old")
        args = {"since": now - 600, "quiet": 0, "audit_dir": self.path("audit")}
        self.write("audit/audit-1.log", event("ann", "ann", 900) + event("bob", "bob", 900)
                   + event("itself", "director", 900))
        self.write("audit/audit.log", event("bob", "bob", 300) + event("eve", "eve", later)
                   + event("itself", "director", later) + '{"half')
        self.certs("unused", **args)
        self.write("audit/audit.log", event("ann", "ann", later))
        self.assertIn("are in use by ann", self.certs("unused", fails=True, **args)["msg"])
        self.certs("unused", **dict(args, since=now - 1000)) # nothing was seen before that

    def publish(self, nodes, pods, daemonsets=(), fails=False):
        """Publish the authorities in a cluster of such objects. Return the answer, and the pods that were deleted."""
        answers = {
            "configmap": {"data": {"kubeconfig": ""}},
            "configmaps": {"items": [{"metadata": {"namespace": "kube-system"}, "data": {"ca.crt": self.old}}]},
            "nodes": {"items": [{"metadata": {"name": name},
                                 "status": {"conditions": [{"type": "Ready", "status": ready}]}}
                                for name, ready in nodes.items()]},
            "pods": {"items": pods}, "daemonsets": {"items": list(daemonsets)},
            "daemonsets,deployments": {"items": list(daemonsets)}}
        for kind, answer in answers.items():
            self.write("answers/" + kind, json.dumps(answer))
        self.program("kubectl", 'shift 3; [ "$1" = delete ] || cat %s/"$2"\n' % self.path("answers"))
        answer = self.certs("publish", fails=fails, kubectl=self.path("bin/kubectl"), server="https://10.0.0.1:6443",
                            timeout=1)
        return answer, [call.split(" pod ")[1].split()[0] for call in self.calls() if " delete pod " in call]

    @staticmethod
    def pod(name, host_network, created="2020-01-01T00:00:00Z", owner="DaemonSet", node="m1"):
        """Return a pod of kube-system."""
        return {"metadata": {"name": name, "creationTimestamp": created,
                             "ownerReferences": [{"kind": owner, "name": name.rpartition("-")[0]}]},
                "spec": {"hostNetwork": host_network, "nodeName": node}, "status": {"phase": "Running"}}

    def test_publish_replaces_the_network_first(self):
        """Pods in the network of their node go first: without it no other pod starts or ends. New pods stay."""
        answer, deleted = self.publish({"m1": "True"}, [
            self.pod("a-controller", False, owner="ReplicaSet"), self.pod("b-network", True), self.pod("c-proxy", True),
            self.pod("d-new", True, "2099-01-01T00:00:00Z"), self.pod("e-static", True, owner="Node")])
        self.assertEqual(answer["did"], ["b-network", "c-proxy", "a-controller"])
        self.assertEqual(deleted, answer["did"])

    def test_publish_leaves_nodes_that_are_away(self):
        """Pods on a node that is away cannot be replaced, and are not waited for. Those that are missing on other nodes
        are."""
        pods = [self.pod("network-1", True), self.pod("network-2", True, node="w1")]

        def network(ready):
            return [{"kind": "DaemonSet", "metadata": {"name": "network"},
                     "status": {"desiredNumberScheduled": 2, "numberReady": ready}}]
        nodes = {"m1": "True", "w1": "Unknown"}
        answer, deleted = self.publish(nodes, pods, network(1))
        self.assertEqual((answer["did"], deleted), (["network-1"], ["network-1"]))
        self.assertIn("are not ready within 1 s after network-1",
                      self.publish(nodes, pods, network(0), fails=True)[0]["msg"])
        self.assertIn("are not ready", self.publish({"m1": "True", "w1": "True"}, pods, network(1),
                                                    fails=True)[0]["msg"])
