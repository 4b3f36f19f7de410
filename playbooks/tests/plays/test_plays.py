# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Whole playbooks for the life of a node, against a pretended cluster, in a sandbox that has /etc and /var/lib of its own.

Run by test.sh, which makes the sandbox. Every playbook is run in check mode, to its end, a second time without a change, and cut off before some
of its tasks and run again.
"""
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
OLD, NEW = "v1.36.4", "v1.37.2"
STALE = "OLD-MACHINE"
# How many tasks each playbook is cut off before, chosen by chance; 0 for all of them, which takes an hour.
CUTS = int(os.environ.get("KAAS_CUTS", "1"))


class Ready(http.server.BaseHTTPRequestHandler):
    """An API server that is ready, and the director that has the release's programs."""

    programs = {}

    def do_GET(self):
        body = self.programs.get(os.path.basename(self.path), b"ok")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


def node(name, version=NEW, machine="", ready="True", master=False, **spec):
    """Return a node."""
    return {"metadata": {"name": name, "labels": {"node-role.kubernetes.io/control-plane": ""} if master else {}}, "spec": spec, "status": {
        "conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"kubeletVersion": version, "machineID": machine or "machine-of-" + name}}}


def member(number, **more):
    """Return a member of etcd."""
    return dict({"ID": number, "name": "m%d" % number, "peerURLs": ["https://10.0.0.%d:2380" % number],
                 "clientURLs": ["https://10.0.0.%d:2379" % number]}, **more)


def workload(name, tag):
    """Return a daemon set or deployment."""
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [{"image": "reg/kaas/%s:%s" % (name, tag)}]}}}}


def configuration(version, etcd, coredns):
    """Return what kubeadm keeps in the cluster."""
    return {"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration":
            "dns:\n  imageTag: %s\netcd:\n  local:\n    imageTag: %s\nkubernetesVersion: %s\n" % (coredns, etcd, version)}}


class Plays(unittest.TestCase):
    """Playbooks in the sandbox."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.world = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.world)
        pem = cls.world + "/ca.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca",
                        "-addext", "subjectAltName=IP:127.0.0.1,IP:10.0.0.1", "-keyout", cls.world + "/key.pem", "-out", pem], check=True, stderr=subprocess.DEVNULL)
        server = http.server.ThreadingHTTPServer(("", 6443), Ready)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, cls.world + "/key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open(pem, encoding="utf-8") as file:
            cls.ca = file.read()
        Ready.programs = {name: cls.script(name, NEW).encode() for name in ("kubeadm", "kubelet", "kubectl")}

    @classmethod
    def script(cls, name, version):
        """Return a program of a version."""
        if name in ("kubectl", "etcdctl"):
            return "#!/bin/sh\n# VERSION=%s\nexec %s %s %s \"$@\"\n" % (
                version, sys.executable, os.path.join(os.path.dirname(HERE), "fake_%s.py" % name), cls.world)
        return "#!/bin/sh\n# VERSION=%s\nexec %s %s/fake_node.py %s %s %s \"$@\"\n" % (version, sys.executable, HERE, cls.world, name, version)

    def begin(self, installed=NEW, **cluster):
        """Stand the world up: the cluster, and a machine that has the programs of a version and nothing of Kubernetes."""
        for path in ("/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", self.world + "/units", self.world + "/bin"):
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
        self.file("/etc/machine-id", "machine-of-this\n")
        self.file(self.world + "/calls", "")
        for name in ("kubeadm", "kubelet", "kubectl", "etcdctl", "systemctl"):
            self.file(self.world + "/bin/" + name, self.script(name, installed), 0o755)
        self.file(self.world + "/admin.conf", "")
        os.makedirs(self.world + "/pki", exist_ok=True)
        self.file(self.world + "/pki/apiserver-etcd-client.crt", "")
        self.file(self.world + "/cluster.json", json.dumps(dict({"pods": [], "members": []}, **cluster)))

    def file(self, path, text, mode=0o644):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def things(self, kind):
        with open(self.world + "/cluster.json", encoding="utf-8") as file:
            return json.load(file).get(kind, [])

    def names(self, kind):
        return sorted(item.get("name") or item["metadata"]["name"] for item in self.things(kind))

    def calls(self, word):
        with open(self.world + "/calls", encoding="utf-8") as file:
            return [line.strip() for line in file if line.startswith(word)]

    def play(self, book, limit, *options, cut=0, fails=False, **more):
        """Run a playbook and return the numbers of the recap for the node."""
        local = {"ansible_connection": "local"}
        hosts = {name: dict(local, node_ip="10.0.0.%d" % number) for number, name in enumerate(["m1", "m2", "m3", "w1"], start=1)}
        if more.pop("dead", False):
            hosts[limit].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
            more["node_reachable"] = False
        values = {
            "ansible_become": False, "ansible_python_interpreter": sys.executable, "cluster_name": "demo", "kubernetes_version": NEW,
            "api_endpoint_host": "127.0.0.1", "api_endpoint_port": 6443, "api_vip": "", "api_vrid": 0, "api_server_names": [],
            "docker_registry_host": "reg", "registry_endpoint": "", "registry_prefix": "kaas", "registry_ca": self.ca, "pause_image_tag": "3",
            "etcd_image_tag": "v3.7.3", "coredns_image_tag": "v1.14.6", "host_aliases": [], "setup_chrony": False, "chrony_config_server": [],
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "cluster_domain": "cluster.local", "cluster_dns_ip": "10.96.0.10",
            "etcd_heartbeat_interval_ms": 100, "etcd_election_timeout_ms": 1000, "leader_lease_seconds": 0, "slow_host_factor": 1,
            "pod_security_enforce": "baseline", "pod_security_exempt_namespaces": [], "install_timeout_seconds": 20, "node_labels": {},
            "node_taints": None, "encryption_key": "x", "bootstrap_token": "abcdef.0123456789abcdef", "pki_ca_crt": self.ca, "pki_ca_key": "x",
            "release_binaries_url": "https://127.0.0.1:6443/artifacts/x/bin",
            "release_binaries": {name: hashlib.sha256(data).hexdigest() for name, data in Ready.programs.items()},
        }
        values.update({"pki_" + name: "x" for name in ("front_proxy_ca_crt", "front_proxy_ca_key", "etcd_ca_crt", "etcd_ca_key", "sa_key", "sa_pub")})
        # The sandbox is one machine: what the acting master has is kept apart from what the node has.
        values.update({
            "membership_kubeconfig": self.world + "/admin.conf", "drain_kubeconfig": self.world + "/admin.conf", "membership_etcd_dir": self.world + "/pki",
            "worker_token_master": "", "control_plane_token_master": "", "upgrade_bin_dir": self.world + "/bin", "node_prepare_live": False,
            "container_runtime_live": False, "node_prepare_programs": [], "membership_patience": 0, "node_prepare_root": self.world + "/node",
            "node_prepare_kubernetes_version": "", "drain_timeout_seconds": 20})
        values.update(more)
        inventory = {"all": {"children": {
            "master": {"hosts": {name: vars for name, vars in hosts.items() if name[0] == "m"}},
            "worker": {"hosts": {"w1": hosts["w1"]}}, "cluster": {"children": {"master": {}, "worker": {}}}}}}
        self.file(self.world + "/hosts.json", json.dumps(inventory))
        self.file(self.world + "/vars.json", json.dumps(values))
        environment = dict(
            os.environ, PATH=self.world + "/bin:" + os.environ["PATH"], KAAS_CUT=str(cut), KAAS_COUNT=self.world + "/count", KAAS_NODE=limit,
            ANSIBLE_CALLBACK_PLUGINS=HERE + "/callback", ANSIBLE_CALLBACKS_ENABLED="cut", HOME=self.world, ANSIBLE_GATHERING="explicit")
        done = subprocess.run(["ansible-playbook", "-i", self.world + "/hosts.json", "-e", "@" + self.world + "/vars.json", "--limit", limit, *options,
                               book + ".yml"], cwd=TREE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              check=False, timeout=300)
        if cut:
            self.assertIn(done.returncode, (0, 99), done.stdout)
            return done.returncode == 99
        if fails:
            self.assertNotEqual(done.returncode, 0, done.stdout)
            return done.stdout
        self.assertEqual(done.returncode, 0, done.stdout)
        return int(re.search(r"%s .*changed=(\d+)" % limit, done.stdout).group(1))

    def prove(self, book, limit, begin, verify, **more):
        """Run the playbook in check mode, to its end, again, and cut off before each of its tasks."""
        begin()
        before = self.things("nodes"), self.things("members"), self.calls("kubeadm")
        self.assertGreater(self.play(book, limit, "--check", **more), 0, "check mode sees nothing to do")
        self.assertEqual(before, (self.things("nodes"), self.things("members"), self.calls("kubeadm")),
                         "check mode changed something")
        self.play(book, limit, **more)
        verify()
        self.assertEqual(self.play(book, limit, **more), 0, "a second run changed something")
        self.assertEqual(self.play(book, limit, "--check", **more), 0, "check mode sees a change after the end")
        with open(self.world + "/count", encoding="utf-8") as file:
            count = int(file.read())
        numbers = range(2, count + 1)
        for number in sorted(random.sample(numbers, min(CUTS, len(numbers)))) if CUTS else numbers:
            with self.subTest("cut off before task %d" % number):
                begin()
                self.assertTrue(self.play(book, limit, cut=number, **more), "it was not cut off")
                self.play(book, limit, **more)
                verify()

    def test_drain_worker(self):
        pod = {"metadata": {"name": "a", "namespace": "default", "ownerReferences": [{"kind": "ReplicaSet", "controller": True}]},
               "spec": {"nodeName": "w1"}}
        self.prove("drain_worker", "w1", lambda: self.begin(nodes=[node("w1")], pods=[pod]), lambda: self.assertEqual(
            (self.things("pods"), self.things("nodes")[0]["spec"]), ([], {"unschedulable": True})), dead=True)

    def test_delete_worker_that_is_dead(self):
        self.prove("delete_worker", "w1", lambda: self.begin(nodes=[node("m1"), node("w1", ready="Unknown", unschedulable=True)]),
                   lambda: self.assertEqual(self.names("nodes"), ["m1"]), dead=True)
        self.begin(nodes=[node("w1")])
        self.assertIn("node w1 was not drained", self.play("delete_worker", "w1", fails=True, dead=True))

    def test_delete_master_that_is_dead(self):
        def begin(**more):
            self.begin(nodes=[node(name, unschedulable=True) for name in ("m1", "m2", "m3")], members=[member(1, down=True), member(2, **more), member(3)])
        self.prove("delete_master", "m1", begin, lambda: self.assertEqual(
            (self.names("nodes"), self.names("members")), (["m2", "m3"], ["m2", "m3"])), dead=True)
        begin(down=True)
        self.assertIn("etcd would have no quorum", self.play("delete_master", "m1", fails=True, dead=True, acting_master="m3"))
        self.assertEqual(self.names("members"), ["m1", "m2", "m3"])

    def test_delete_worker(self):
        def begin():
            self.begin(nodes=[node("w1", unschedulable=True)])
            self.file("/etc/kubernetes/kubelet.conf", "")
            self.file("/etc/kubernetes/kaas/state.json", '{"phase": "done"}')

        def verify():
            self.assertEqual((self.names("nodes"), os.path.exists("/etc/kubernetes")), ([], False))
        self.prove("delete_worker", "w1", begin, verify)

    def test_scale_out(self):
        self.prove("scale_out", "w1", lambda: self.begin(installed=OLD, nodes=[node("m1")]), lambda: self.assertEqual(
            [(item["metadata"]["name"], item["status"]["nodeInfo"]["kubeletVersion"]) for item in self.things("nodes")], [("m1", NEW), ("w1", NEW)]))

    def test_rejoin_worker(self):
        def verify():
            self.assertEqual([item["status"]["nodeInfo"]["machineID"] for item in self.things("nodes")], ["machine-of-this"])
        self.prove("rejoin_worker", "w1", lambda: self.begin(nodes=[node("w1", machine=STALE, ready="Unknown")]), verify)

    def test_rejoin_first_master(self):
        def begin():
            self.begin(nodes=[node("m1", machine=STALE, ready="Unknown"), node("m2")], configmaps=[configuration(NEW, "v3.7.3", "v1.14.6")],
                       members=[member(1, down=True), member(2), member(3)])
            self.file("/var/lib/etcd/member/stale", "data of a former machine, from a disk that was kept")

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m1", "m2"], ["m1", "m2", "m3"]))
            self.assertFalse([item for item in self.things("members") if item.get("down")], "the stale member is still there")
            self.assertFalse(os.path.exists("/var/lib/etcd/member/stale"))
        self.prove("rejoin_master", "m1", begin, verify)

    def test_upgrade_worker(self):
        def verify():
            self.assertEqual(self.things("nodes")[0]["status"]["nodeInfo"]["kubeletVersion"], NEW)
            self.assertTrue(self.calls("systemctl restart kubelet.service"))

        def begin():
            self.begin(installed=OLD, nodes=[node("w1", version=OLD, unschedulable=True)])
            self.file("/etc/kubernetes/kubelet.conf", "")
        self.prove("upgrade_worker", "w1", begin, verify)

    def test_upgrade_master(self):
        def begin():
            self.begin(installed=OLD, nodes=[node("m1", version=OLD, master=True, unschedulable=True)], members=[member(1)],
                       configmaps=[configuration(OLD, "v3.6.10", "v1.14.2")], daemonsets=[workload("kube-proxy", NEW)],
                       deployments=[workload("coredns", "v1.14.6")])
            self.file("/etc/kubernetes/admin.conf", "")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
                self.file("/etc/kubernetes/manifests/%s.yaml" % name, "    image: reg/kaas/%s:%s\n" % (name, "v3.6.10" if name == "etcd" else OLD))

        def verify():
            self.assertEqual(self.things("nodes")[0]["status"]["nodeInfo"]["kubeletVersion"], NEW)
            self.assertIn("kubernetesVersion: " + NEW, self.things("configmaps")[0]["data"]["ClusterConfiguration"])
            self.assertTrue(self.calls("kubeadm upgrade apply --yes --config"))
            self.assertFalse(self.calls("kubeadm upgrade node"))
        self.prove("upgrade_master", "m1", begin, verify)


if __name__ == "__main__":
    unittest.main()
