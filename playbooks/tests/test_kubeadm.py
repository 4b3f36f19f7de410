# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import subprocess
import sys
import unittest

from support import HERE, Case, kaas, run

# Stands for kubeadm: init leaves the static pod and etcd's data, reset takes away what the real one takes away.
KUBEADM = """
case "$1" in
init) test -e $T/etc/pki/ca.key || { echo "error: no CA" >&2; exit 1; }
      mkdir -p $T/etc/manifests $T/etcd/member; touch $T/etc/manifests/api $T/etc/kubelet.conf
      test ! -e $T/fail || {
        echo 'error execution phase wait: token abcdef.0123456789abcdef timed out' >&2; exit 1; } ;;
join) test ! -e $T/fail || exit 1; touch $T/etc/kubelet.conf ;;
reset) rm -rf $T/etc/manifests $T/etc/pki $T/etcd/member $T/etc/kubelet.conf ;;
esac
"""

# Runs the module with an API server that is ready when the file "api" exists.
PROGRAM = """
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {here!r})
import support
module = support.load("library/kaas_kubeadm.py", "kaas_kubeadm")
module.api_ready = lambda server, ca: os.path.exists({api!r})
module.main()
"""


class Kubeadm(Case):
    """kaas_kubeadm."""

    def setUp(self):
        super().setUp()
        self.write("etc/pki/ca.key", "the director's", 0o600)
        self.program("kubeadm", "T=%s\n%s" % (self.root, KUBEADM))

    def ensure(self, action, check=False, **args):
        args = dict({
            "action": action, "config": "init.yaml", "endpoint": "https://10.0.0.1:6443",
            "kubeadm": self.path("bin/kubeadm"),
            "state_file": self.path("etc/kaas/state.json"), "ca_file": self.path("etc/pki/ca.crt"),
            "leftovers": [self.path("etc/kubelet.conf"), self.path("etc/manifests/api"), self.path("etcd/member")],
            "manifest": self.path("etc/manifests/api"), "lock_file": self.path("lock"),
            "preserve": [self.path("etc/pki/ca.key")], "timeout": 1}, **args)
        request = {"ANSIBLE_MODULE_ARGS": dict(args, _ansible_check_mode=check)}
        done = subprocess.run([sys.executable, "-c", PROGRAM.format(here=HERE, api=self.path("api"))],
                              input=json.dumps(request), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, check=False, timeout=60)
        self.assertTrue(done.stdout, done.stderr)
        return json.loads(done.stdout)

    def api(self, up):
        if up:
            self.write("api", "")
        elif os.path.exists(self.path("api")):
            os.unlink(self.path("api"))

    def state(self, **state):
        self.write("etc/kaas/state.json", json.dumps(state))

    def test_init_once(self):
        self.assertEqual(self.ensure("init", check=True)["did"], ["init"])
        self.assertEqual(self.calls(), [])
        self.assertEqual(self.ensure("init")["did"], ["init"])
        self.assertEqual(json.loads(self.read("etc/kaas/state.json")), {"action": "init", "phase": "done"})
        self.assertEqual(self.mode("etc/kaas/state.json"), 0o600)
        self.api(True)
        again = self.ensure("init")
        self.assertEqual((again["changed"], again["did"]), (False, []))
        self.assertEqual(self.calls(), ["kubeadm init --config init.yaml"])

    def test_done_is_never_reset(self):
        self.ensure("init")
        got = self.ensure("init")  # the API server is down
        self.assertTrue(got["failed"])
        self.assertIn("was not ready", got["msg"])
        self.assertEqual(self.calls(), ["kubeadm init --config init.yaml"])

    def test_init_cut_off_before_the_api_server(self):
        self.write("fail", "")
        got = self.ensure("init")
        self.assertTrue(got["failed"])
        self.assertIn("<token> timed out", got["msg"])
        self.assertNotIn("0123456789abcdef", json.dumps(got))
        os.unlink(self.path("fail"))
        self.assertEqual(self.ensure("init")["did"], ["reset", "init"])
        self.assertEqual((self.read("etc/pki/ca.key"), self.mode("etc/pki/ca.key")), ("the director's", 0o600))

    def test_init_cut_off_after_the_api_server(self):
        self.write("fail", "")
        self.ensure("init")
        os.unlink(self.path("fail"))
        self.api(True)
        self.assertEqual(self.ensure("init")["did"], ["init"])
        self.assertIn("--ignore-preflight-errors=DirAvailable--var-lib-etcd", self.calls()[-1])

    def test_foreign_node_is_refused(self):
        self.write("etcd/member/db", "somebody's data")
        for action in ("init", "auto", "join"):
            got = self.ensure(action, join_config="join.yaml")
            self.assertIn("already belongs to a cluster", got["msg"])
        self.assertEqual(self.calls(), [])

    def test_auto(self):
        self.assertEqual(self.ensure("auto", join_config="join.yaml")["did"], ["init"])

    def test_auto_joins_what_answers(self):
        self.api(True)
        self.assertEqual(self.ensure("auto", join_config="join.yaml")["did"], ["join"])
        self.assertEqual(self.calls(), ["kubeadm join --config join.yaml"])

    def test_auto_stays_what_it_began_as(self):
        self.state(action="init", phase="started")
        self.write("etc/manifests/api", "")
        self.api(True)
        self.assertEqual(self.ensure("auto", join_config="join.yaml")["did"], ["init"])

    def test_join_waits_for_the_api_server(self):
        got = self.ensure("join", config="join.yaml")
        self.assertIn("cannot join: the API server at https://10.0.0.1:6443", got["msg"])
        self.assertEqual(self.calls(), [])

    def test_master_waits_for_its_own_api_server(self):
        self.api(True)
        self.assertNotIn("failed", self.ensure("join", config="join.yaml", local_endpoint="https://10.0.0.2:6443"))
        self.write("etc/kaas/state.json", "")
        os.unlink(self.path("etc/kubelet.conf"))
        self.program("kubeadm", "rm %s" % self.path("api"))  # the cluster's answers, its own never does
        got = self.ensure("join", config="join.yaml", local_endpoint="https://10.0.0.2:6443")
        self.assertIn("this node has become a member: the API server at https://10.0.0.2:6443 was not ready",
                      got["msg"])
        self.assertEqual(json.loads(self.read("etc/kaas/state.json"))["phase"], "done",
                         "the next run may not begin the node anew")

    def test_join_cut_off(self):
        self.api(True)
        self.write("fail", "")
        self.assertTrue(self.ensure("join", config="join.yaml")["failed"])
        os.unlink(self.path("fail"))
        self.assertEqual(self.ensure("join", config="join.yaml")["did"], ["reset", "join"])
        self.assertEqual(self.ensure("join", config="join.yaml")["did"], [])

    def test_lock(self):
        fd = os.open(self.write("lock", ""), os.O_RDWR)
        self.addCleanup(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        got = self.ensure("init")
        self.assertIn("an earlier run still works on this node", got["msg"])
        self.assertEqual(self.calls(), [])

    def test_reset(self):
        self.ensure("init")
        self.write("etc/cni/10-x.conf", "")
        remove = [self.path("etc"), self.path("nothing/*")]
        self.assertEqual(self.ensure("reset", check=True, remove=remove)["did"],
                         ["reset", "remove " + self.path("etc")])
        self.assertEqual(self.ensure("reset", remove=remove)["did"], ["reset", "remove " + self.path("etc")])
        again = self.ensure("reset", remove=remove)
        self.assertEqual((again["changed"], again["did"]), (False, []))

    def test_reset_cut_off(self):
        self.ensure("init")
        self.state(action="reset", phase="leaving")
        self.assertEqual(self.ensure("init")["did"], ["reset", "init"])

    def test_token(self):
        self.write("init.yaml", "token: abcdef.0123456789abcdef\n")
        self.program("kubectl", "test -e %s && echo secret/bootstrap-token-abcdef; true" % self.path("have"))
        args = {"config": self.path("init.yaml"), "kubectl": self.path("bin/kubectl"), "kubeconfig": "admin.conf"}
        self.assertEqual(self.ensure("token", **args)["did"], ["token"])
        self.assertNotIn("0123456789abcdef", "\n".join(self.calls()))
        self.write("have", "")
        self.assertFalse(self.ensure("token", **args)["changed"])

    def test_reason(self):
        self.assertEqual(kaas.kubeadm_says("",
                                           "W0101 warning\n[preflight] x\n\t[ERROR Swap]: swap is on\nerror: giving "
                                           "up\n"),
                         "[ERROR Swap]: swap is on; error: giving up")
        self.assertEqual(kaas.kubeadm_says("", ""), "no output")


class Tables(Case):
    """What reset finds besides files."""

    def test_tables(self):
        self.program("nft", "printf 'table ip kube-proxy\\ntable ip6 kube-proxy\\ntable inet filter\\n'")
        got = run("kaas_kubeadm", {
            "action": "reset", "nft_tables": ["kube-proxy"], "state_file": self.path("none"), "leftovers": [],
            "lock_file": self.path("lock")}, check=True, path=self.bin)
        self.assertEqual(got["did"], ["remove table ip kube-proxy", "remove table ip6 kube-proxy"])


if __name__ == "__main__":
    unittest.main()
