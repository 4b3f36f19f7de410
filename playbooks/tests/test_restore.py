# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_etcd_restore with a pretended container runtime, etcdutl and etcdctl."""
import hashlib
import json
import os

from support import Case, kaas, load, run

module = load("library/kaas_etcd_restore.py", "kaas_etcd_restore")
module.PAUSE = 0.02

COMPONENTS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]


class RestoreTest(Case):
    """A master in a directory: a static pod runs as long as its manifest is there."""

    def setUp(self):
        super().setUp()
        self.write("etcd/member/wal", "former")
        for name in COMPONENTS + ["etcd"]:
            self.write("kubernetes/manifests/%s.yaml" % name, name)
            self.write("running/" + name, "")
        self.write("bin/crictl", """#!/bin/sh
echo "crictl $@" >> %(root)s/calls
case "$1" in
ps)
  name=${5#*=}
  [ -e %(root)s/kubernetes/manifests/$name.yaml ] && touch %(root)s/running/$name
  if [ -e %(root)s/running/$name ]; then
    echo '{"containers": [{"id": "'$name'"}]}'
  else
    echo '{"containers": []}'
  fi ;;
stop) rm -f %(root)s/running/$4 ;;
esac
""" % {"root": self.root}, 0o755)
        self.write("bin/etcdutl", """#!/bin/sh
echo "etcdutl $@" >> %(root)s/calls
case "$2" in
status) [ -e %(root)s/unfit ] && exit 1; echo '{"revision": 7, "totalKey": 3}' ;;
restore)
  [ -e %(root)s/fails ] && exit 1
  while [ $# -gt 0 ]; do [ "$1" = --data-dir ] && dir=$2; shift; done
  mkdir -p $dir/member && echo restored > $dir/member/wal ;;
esac
""" % {"root": self.root}, 0o755)
        self.program("etcdctl", "echo 2\n")
        self.program("systemctl", "")
        self.stage("p1")

    def stage(self, name, text="snapshot"):
        """Lay a snapshot on the master."""
        self.write("restore/snapshot.db", text)
        self.write("restore/staged.json", json.dumps({
            "id": name, "backup": "b1", "revision": 7, "size": len("snapshot"),
            "sha256": hashlib.sha256(b"snapshot").hexdigest()}))

    def act(self, action, check=False, **more):
        """Do one action."""
        args = dict({"dir": self.path("restore"), "data_dir": self.path("etcd"),
                     "kubernetes_dir": self.path("kubernetes"), "member": "m1",
                     "members": {"m1": "10.0.0.1", "m2": "fd00::2"}, "timeout": 3, "components": [], "nodes": [],
                     "mounts": "/proc/self/mountinfo"}, **more)
        args.update({name: os.path.join(self.bin, name)
                     for name in ("crictl", "etcdctl", "etcdutl", "systemctl", "kubectl")})
        try:
            restore = module.Restore(args, check)
            getattr(restore, action)()
        except kaas.Failure as err:
            return dict(err.result(), failed=True)
        return {"changed": bool(restore.did), "did": restore.did}

    def whole(self, check=False, **more):
        """Run all that the playbook runs on a master, and return whether something was changed."""
        changed = False
        for action, components in (("prepare", []), ("stop", COMPONENTS), ("stop", ["etcd"]), ("swap", []),
                                   ("start", ["etcd"]), ("leases", []),
                                   ("start", COMPONENTS), ("finish", [])):
            answer = self.act(action, check=check, components=components, **more)
            self.assertNotIn("failed", answer, "%s: %s" % (action, answer))
            changed = changed or answer["changed"]
        return changed

    def test_whole(self):
        self.assertTrue(self.whole())
        self.assertEqual(self.read("etcd/member/wal"), "restored\n")
        self.assertEqual(self.read("etcd/before-p1/member/wal"), "former")
        self.assertEqual(sorted(os.listdir(self.path("restore"))), ["done.json"])
        self.assertEqual(len(os.listdir(self.path("kubernetes/manifests"))), 4)
        restore = [call for call in self.calls() if call.startswith("etcdutl snapshot restore")]
        self.assertEqual(len(restore), 1)
        for word in ("--name m1", "--initial-cluster m1=https://10.0.0.1:2380,m2=https://[fd00::2]:2380",
                     "--mark-compacted",
                     "--bump-revision 1000000000", "--initial-cluster-token kaas-p1"):
            self.assertIn(word, restore[0])

    def test_second_run_changes_nothing(self):
        self.whole()
        before = len(self.calls())
        self.assertFalse(self.whole())
        self.assertFalse([call for call in self.calls()[before:] if "stop" in call or "restore" in call])

    def test_check_mode_changes_nothing(self):
        self.assertTrue(self.whole(check=True))
        self.assertEqual(self.read("etcd/member/wal"), "former")
        self.assertEqual(len(os.listdir(self.path("kubernetes/manifests"))), 4)
        self.assertEqual(sorted(os.listdir(self.path("etcd"))), ["member"])

    def test_resumes_wherever_it_was_cut_off(self):
        """The states that a kill leaves between two renames."""
        def stopped():
            self.act("prepare")
            self.act("stop", components=COMPONENTS + ["etcd"])
        cuts = {
            "half restored": lambda: self.write("etcd/.restore-p1.part/member/wal", "half"),
            "restored": lambda: self.act("prepare"),
            "half stopped": lambda: (self.act("prepare"), self.act("stop", components=COMPONENTS)),
            "half aside": lambda: (stopped(), os.makedirs(self.path("etcd/before-p1.part"))),
            "member moved": lambda: (stopped(), os.makedirs(self.path("etcd/before-p1.part")),
                                     os.rename(self.path("etcd/member"), self.path("etcd/before-p1.part/member"))),
            "aside": lambda: (stopped(), os.makedirs(self.path("etcd/before-p1")),
                              os.rename(self.path("etcd/member"), self.path("etcd/before-p1/member"))),
            "swapped": lambda: (stopped(), self.act("swap")),
            "started": lambda: (stopped(), self.act("swap"), self.act("start", components=["etcd"])),
        }
        for name, cut in cuts.items():
            with self.subTest(name):
                self.doCleanups()
                self.setUp()
                cut()
                self.whole()
                self.assertEqual(self.read("etcd/member/wal"), "restored\n")
                self.assertEqual(self.read("etcd/before-p1/member/wal"), "former")
                self.assertEqual(len(os.listdir(self.path("kubernetes/manifests"))), 4)
                self.assertEqual(sorted(os.listdir(self.path("etcd"))), ["before-p1", "member"])

    def test_another_restore_keeps_its_own_former_data_alone(self):
        self.whole()
        self.stage("p2")
        self.assertTrue(self.whole())
        self.assertEqual(sorted(os.listdir(self.path("etcd"))), ["before-p2", "member"])

    def test_refuses_before_anything_stops(self):
        for name, setup, want in (
                ("another snapshot", lambda: self.stage("p1", "snapshoT"), "not the one that was staged"),
                ("unfit", lambda: self.write("unfit", ""), "does not accept the snapshot"),
                ("fails", lambda: self.write("fails", ""), "cannot restore the snapshot"),
                ("nothing staged", lambda: os.unlink(self.path("restore/staged.json")), "no backup is staged"),
                ("bad id", lambda: self.stage("../p1"), "is no id of a restore")):
            with self.subTest(name):
                self.doCleanups()
                self.setUp()
                setup()
                answer = self.act("prepare")
                self.assertTrue(answer.get("failed"))
                self.assertIn(want, answer["msg"])
                self.assertEqual(self.read("etcd/member/wal"), "former")

    def on_a_data_disk(self, machine="new"):
        """Have the data of etcd on a data disk, as a bind mount of a directory on it."""
        self.write("machine-id", machine + "\n")
        if not os.path.islink(self.path("etcd")):
            os.makedirs(self.path("data disk/var/lib"), exist_ok=True)
            os.rename(self.path("etcd"), self.path("data disk/var/lib/etcd"))
            os.symlink(self.path("data disk/var/lib/etcd"), self.path("etcd"))
        self.write("mounts", "21 1 253:1 / / rw - ext4 /dev/vda1 rw\n"
                             "30 21 253:16 / %s rw - ext4 /dev/vdb rw\n"
                             "31 21 253:16 /var/lib/etcd %s rw - ext4 /dev/vdb rw\n"
                   % (self.path("data disk").replace(" ", "\\040"), self.path("etcd")))
        return {"mounts": self.path("mounts"), "machine_id_file": self.path("machine-id"),
                "state_file": self.path("state.json")}

    def test_data_of_a_former_machine_is_put_aside(self):
        disk = self.on_a_data_disk()
        self.write("etcd/before-p0/member/wal", "older")
        self.assertEqual(self.act("former", check=True, **disk)["did"], ["data of the former machine"])
        self.assertEqual(self.read("etcd/member/wal"), "former")
        self.assertTrue(self.act("former", **disk)["changed"])
        self.assertEqual(os.listdir(self.path("etcd")), [])
        self.assertEqual(self.read("data disk/.kaas-former-etcd/new/member/wal"), "former")
        self.assertEqual(self.mode("data disk/.kaas-former-etcd/new"), 0o700)
        self.assertFalse(self.act("former", **disk)["changed"])

    def test_data_that_was_half_put_aside(self):
        disk = self.on_a_data_disk()
        self.write("data disk/.kaas-former-etcd/new/before-p0/member/wal", "older")
        self.assertTrue(self.act("former", **disk)["changed"])
        self.assertEqual(sorted(os.listdir(self.path("data disk/.kaas-former-etcd/new"))), ["before-p0", "member"])

    def test_data_of_a_master_stays(self):
        disk = self.on_a_data_disk()
        self.write("state.json", '{"phase": "started"}')
        self.assertFalse(self.act("former", **disk)["changed"])
        self.assertEqual(self.read("etcd/member/wal"), "former")

    def test_data_on_the_root_disk_stays(self):
        self.write("mounts", "21 1 253:1 / / rw - ext4 /dev/vda1 rw\n")
        self.assertFalse(self.act("former", mounts=self.path("mounts"))["changed"])
        self.assertEqual(self.read("etcd/member/wal"), "former")

    def test_the_next_restore_removes_what_was_put_aside(self):
        disk = self.on_a_data_disk()
        self.act("former", **disk)
        aside = self.path("data disk/.kaas-former-etcd/new/member/wal")
        self.write("etcd/member/wal", "of the new machine")
        self.whole(**disk)
        self.assertTrue(os.path.exists(aside))
        self.assertFalse(self.whole(**disk))
        self.stage("p2")
        self.whole(**disk)
        self.assertFalse(os.path.exists(aside))
        self.assertEqual(self.act("forget", **disk)["did"], [])

    def test_what_was_put_aside_is_forgotten(self):
        disk = self.on_a_data_disk()
        self.act("former", **disk)
        self.assertEqual(self.act("forget", check=True, **disk)["did"], ["data of former machines"])
        self.assertTrue(self.act("forget", **disk)["changed"])
        self.assertEqual(os.listdir(self.path("data disk")), ["var"])

    def test_answers_as_a_module(self):
        answer = run("kaas_etcd_restore", {"action": "prepare", "dir": self.path("restore"),
                                           "data_dir": self.path("etcd"), "member": "m1",
                                           "members": {"m1": "10.0.0.1"}}, path=self.bin)
        self.assertEqual((answer["changed"], answer["restore"], answer["done"]), (True, "p1", False))

    def test_swap_waits_for_etcd(self):
        self.act("prepare")
        answer = self.act("swap")
        self.assertIn("etcd still runs", answer["msg"])
        self.assertEqual(self.read("etcd/member/wal"), "former")

    def test_foreign_nodes_go(self):
        self.cluster(node=[])
        self.program("kubectl", """
            case "$*" in
            *get*) echo '{"items": [{"metadata": {"name": "m1"}}, {"metadata": {"name": "gone"}}]}' ;;
            esac
        """)
        answer = self.act("nodes", nodes=["m1", "w1"], kubeconfig=self.path("admin.conf"))
        self.assertEqual(answer["did"], ["node/gone"])
        self.assertIn("delete node --ignore-not-found gone", self.calls()[-1])
