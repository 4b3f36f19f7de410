# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Whole playbooks for the life of a node, against a pretended cluster, in a sandbox that has /etc and /var/lib of its
own.

Run by test.sh, which makes the sandbox. Every playbook is run in check mode, cut off before some
of its tasks, run to its end, and a second time without a change. Usage: test_plays.py [PART/PARTS | NAME...]: the tests
of one part of so many, or those named.
"""
import base64
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
# The chance, so that a failure can be had again.
SEED = os.environ.get("KAAS_SEED", "") or str(random.SystemRandom().randrange(10**6))


def remove(path):
    """Remove a directory, unless there is none."""
    if os.path.exists(path):
        shutil.rmtree(path)


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
    return {"metadata": {"name": name, "labels": {"node-role.kubernetes.io/control-plane": ""} if master else {}},
            "spec": spec, "status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {"kubeletVersion": version, "machineID": machine or "machine-of-" + name}}}


def member(number, **more):
    """Return a member of etcd."""
    return dict({"ID": number, "name": "m%d" % number, "peerURLs": ["https://10.0.0.%d:2380" % number],
                 "clientURLs": ["https://10.0.0.%d:2379" % number]}, **more)


def workload(name, tag):
    """Return a daemon set or deployment."""
    return {"metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [{"image": "reg/kaas/%s:%s" % (name, tag)}]}}}}


def configuration(version, etcd, coredns):
    """Return what kubeadm keeps in the cluster."""
    return {"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration":
            "dns:\n  imageTag: %s\netcd:\n  local:\n    imageTag: %s\nkubernetesVersion: %s\n"
                                                             % (coredns, etcd, version)}}


class Plays(unittest.TestCase):
    """Playbooks in the sandbox."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.world = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.world)
        pem = cls.world + "/ca.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=ca",
                        "-addext", "subjectAltName=IP:127.0.0.1,IP:10.0.0.1", "-keyout", cls.world + "/key.pem", "-out",
                        pem], check=True, stderr=subprocess.DEVNULL)
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
        return "#!/bin/sh\n# VERSION=%s\nexec %s %s/fake_node.py %s %s %s \"$@\"\n" % (
            version, sys.executable, HERE, cls.world, name, version)

    def begin(self, installed=NEW, **cluster):
        """Stand the world up: the cluster, and a machine that has the programs of a version and nothing of
        Kubernetes."""
        for path in ("/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", self.world + "/units",
                     self.world + "/bin"):
            remove(path)
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
        hosts = {name: dict(local, node_ip="10.0.0.%d" % number) for number,
                 name in enumerate(["m1", "m2", "m3", "w1"], start=1)}
        if more.pop("dead", False):
            hosts[limit].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
            more["node_reachable"] = False
        values = {
            "ansible_become": False, "ansible_python_interpreter": sys.executable, "cluster_name": "demo",
            "cluster_uid": "4f1c", "kubernetes_version": NEW,
            "api_endpoint_host": "127.0.0.1", "api_endpoint_port": 6443, "api_vip": "", "api_vrid": 0,
            "api_server_names": [],
            "docker_registry_host": "reg", "registry_endpoint": "", "registry_prefix": "kaas", "registry_ca": self.ca,
            "pause_image_tag": "3",
            "etcd_image_tag": "v3.7.3", "coredns_image_tag": "v1.14.6", "host_aliases": [], "setup_chrony": False,
            "chrony_config_server": [],
            "pod_cidr": "10.244.0.0/16", "service_cidr": "10.96.0.0/16", "cluster_domain": "cluster.local",
            "cluster_dns_ip": "10.96.0.10",
            "etcd_heartbeat_interval_ms": 100, "etcd_election_timeout_ms": 1000, "leader_lease_seconds": 0,
            "slow_host_factor": 1,
            "pod_security_enforce": "baseline", "pod_security_exempt_namespaces": [], "install_timeout_seconds": 20,
            "node_labels": {},
            "certificate_seconds": 31536000,
            "node_taints": None, "encryption_keys": json.dumps([{"name": "key1", "secret": "x"}]),
            "bootstrap_token": "abcdef.0123456789abcdef", "pki_ca_crt": self.ca, "pki_ca_key": "x",
            "release_binaries_url": "https://127.0.0.1:6443/artifacts/x/bin",
            "release_binaries": {name: hashlib.sha256(data).hexdigest() for name, data in Ready.programs.items()},
        }
        values.update({"pki_" + name: "x" for name in ("front_proxy_ca_crt", "front_proxy_ca_key", "etcd_ca_crt",
                                                       "etcd_ca_key", "sa_key", "sa_pub")})
        # The sandbox is one machine: what the acting master has is kept apart from what the node has.
        values.update({
            "membership_kubeconfig": self.world + "/admin.conf", "drain_kubeconfig": self.world + "/admin.conf",
            "membership_etcd_dir": self.world + "/pki",
            "worker_token_master": "", "control_plane_token_master": "", "upgrade_bin_dir": self.world + "/bin",
            "node_prepare_live": False,
            "cluster_users_live": False, "cluster_users_root": self.world + "/node", "container_runtime_live": False,
            "node_prepare_programs": [], "membership_patience": 0, "node_prepare_root": self.world + "/node",
            # The sandbox stands for every node at once, and masters have other rules than workers.
            "node_firewall_root": self.world + "/node/{{ node_firewall_at | default(inventory_hostname) }}",
            "node_firewall_live": False,
            "peer_sources": [], "director_addresses": [], "pod_pids_limit": 4096, "kube_reserved": {},
            "system_reserved": {"cpu": "50m"}, "node_prepare_kubernetes_version": "", "drain_timeout_seconds": 20})
        values.update(more)
        inventory = {"all": {"children": {
            "master": {"hosts": {name: vars for name, vars in hosts.items() if name[0] == "m"}},
            "worker": {"hosts": {"w1": hosts["w1"]}}, "cluster": {"children": {"master": {}, "worker": {}}}}}}
        self.file(self.world + "/hosts.json", json.dumps(inventory))
        self.file(self.world + "/vars.json", json.dumps(values))
        environment = dict(
            os.environ, PATH=self.world + "/bin:" + os.environ["PATH"], KAAS_CUT=str(cut),
            KAAS_COUNT=self.world + "/count", KAAS_NODE=limit,
            ANSIBLE_CALLBACK_PLUGINS=HERE + "/callback", ANSIBLE_CALLBACKS_ENABLED="cut", HOME=self.world,
            ANSIBLE_GATHERING="explicit", ANSIBLE_PIPELINING="True")
        done = subprocess.run(["ansible-playbook", "-i", self.world + "/hosts.json", "-e",
                               "@" + self.world + "/vars.json", "--limit", limit, *options,
                               book + ".yml"], cwd=TREE, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True,
                              check=False, timeout=300)
        if cut:
            self.assertIn(done.returncode, (0, 99), done.stdout)
            return done.returncode == 99
        if fails:
            self.assertNotEqual(done.returncode, 0, done.stdout)
            return done.stdout
        self.assertEqual(done.returncode, 0, done.stdout)
        return int(re.search(r"%s .*changed=(\d+)" % limit, done.stdout).group(1))

    def cuts(self, book, numbers):
        """Return before which tasks the playbook is cut off."""
        chance = random.Random("%s %s %s" % (SEED, self.id(), book))
        return sorted(chance.sample(numbers, min(CUTS, len(numbers)))) if CUTS else numbers

    def prove(self, book, limit, begin, verify, least=1, **more):
        """Run the playbook in check mode, cut it off before some of its tasks, run it to its end, and again without a
        change. A playbook that changes
        nothing for good, such as a check, has least=0."""
        begin()
        before = self.things("nodes"), self.things("members"), self.calls("kubeadm")
        self.assertGreaterEqual(self.play(book, limit, "--check", **more), least, "check mode sees nothing to do")
        self.assertEqual(before, (self.things("nodes"), self.things("members"), self.calls("kubeadm")),
                         "check mode changed something")
        with open(self.world + "/count", encoding="utf-8") as file:
            count = int(file.read())
        for number in self.cuts(book, range(1, count + 1)):
            with self.subTest("cut off before task %d" % number):
                begin()
                self.assertTrue(self.play(book, limit, cut=number, **more), "it was not cut off")
                self.play(book, limit, **more)
                verify()
                self.assertEqual(self.play(book, limit, **more), 0, "a second run changed something")
                verify()

    def test_drain_worker(self):
        pod = {"metadata": {"name": "a", "namespace": "default",
                            "ownerReferences": [{"kind": "ReplicaSet", "controller": True}]},
               "spec": {"nodeName": "w1"}}
        self.prove("drain_worker", "w1", lambda: self.begin(nodes=[node("w1")], pods=[pod]), lambda: self.assertEqual(
            (self.things("pods"), self.things("nodes")[0]["spec"]), ([], {"unschedulable": True})), dead=True)

    def test_delete_worker_that_is_dead(self):
        self.prove("delete_worker", "w1", lambda: self.begin(nodes=[node("m1"),
                                                                    node("w1", ready="Unknown", unschedulable=True)]),
                   lambda: self.assertEqual(self.names("nodes"), ["m1"]), dead=True)
        self.begin(nodes=[node("w1")])
        self.assertIn("node w1 was not drained", self.play("delete_worker", "w1", fails=True, dead=True))

    def test_delete_master_that_is_dead(self):
        def begin(**more):
            self.begin(nodes=[node(name, unschedulable=True) for name in ("m1", "m2", "m3")],
                       members=[member(1, down=True), member(2, **more), member(3)])
        self.prove("delete_master", "m1", begin, lambda: self.assertEqual(
            (self.names("nodes"), self.names("members")), (["m2", "m3"], ["m2", "m3"])), dead=True)
        begin(down=True)
        self.assertIn("etcd would have no quorum",
                      self.play("delete_master", "m1", fails=True, dead=True, acting_master="m3"))
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
            [(item["metadata"]["name"], item["status"]["nodeInfo"]["kubeletVersion"]) for item in self.things("nodes")],
            [("m1", NEW), ("w1", NEW)]))

    def test_rejoin_worker(self):
        def verify():
            self.assertEqual([item["status"]["nodeInfo"]["machineID"] for item in self.things("nodes")],
                             ["machine-of-this"])
        self.prove("rejoin_worker", "w1", lambda: self.begin(nodes=[node("w1", machine=STALE, ready="Unknown")]),
                   verify)

    def test_rejoin_first_master(self):
        def begin():
            self.begin(nodes=[node("m1", machine=STALE, ready="Unknown"), node("m2")],
                       configmaps=[configuration(NEW, "v3.7.3", "v1.14.6")],
                       members=[member(1, down=True), member(2), member(3)])
            self.file("/var/lib/etcd/member/stale", "data of a former machine, from a disk that was kept")

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m1", "m2"], ["m1", "m2", "m3"]))
            self.assertFalse([item for item in self.things("members") if item.get("down")],
                             "the stale member is still there")
            self.assertFalse(os.path.exists("/var/lib/etcd/member/stale"))
        self.prove("rejoin_master", "m1", begin, verify)

    def test_rejoin_master_at_the_new_version(self):
        def begin():
            self.begin(nodes=[node("m2", version=OLD)], configmaps=[configuration(OLD, "v3.6.10", "v1.14.2")],
                       members=[member(2), member(3)])

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m1", "m2"], ["m1", "m2", "m3"]))
            self.assertIn('kubernetesVersion: "%s"' % NEW, self.things("configmaps")[0]["data"]["ClusterConfiguration"])
        # As an upgrade brings a master back whose VM was recreated. Another master uploads the new configuration, and
        # asks its own API server.
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
            self.begin(installed=OLD, nodes=[node("m1", version=OLD, master=True, unschedulable=True)],
                       members=[member(1)], configmaps=[configuration(OLD, "v3.6.10", "v1.14.2")],
                       daemonsets=[workload("kube-proxy", NEW)], deployments=[workload("coredns", "v1.14.6")])
            self.file("/etc/kubernetes/admin.conf", "")
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
                self.file("/etc/kubernetes/manifests/%s.yaml" % name,
                          "    image: reg/kaas/%s:%s\n" % (name, "v3.6.10" if name == "etcd" else OLD))

        def verify():
            self.assertEqual(self.things("nodes")[0]["status"]["nodeInfo"]["kubeletVersion"], NEW)
            self.assertIn("kubernetesVersion: " + NEW, self.things("configmaps")[0]["data"]["ClusterConfiguration"])
            self.assertTrue(self.calls("kubeadm upgrade apply --yes --config"))
            self.assertFalse(self.calls("kubeadm upgrade node"))
        self.prove("upgrade_master", "m1", begin, verify)

    def marked(self, unschedulable):
        """Look whether the only node takes new pods."""
        self.assertEqual([bool(item["spec"].get("unschedulable")) for item in self.things("nodes")], [unschedulable])

    def test_cordon(self):
        self.prove("cordon", "w1", lambda: self.begin(nodes=[node("w1")]), lambda: self.marked(True), dead=True)

    def test_uncordon(self):
        self.prove("uncordon", "w1", lambda: self.begin(nodes=[node("w1", unschedulable=True)]),
                   lambda: self.marked(False), dead=True)

    def test_registry_trust(self):
        def begin():
            self.fresh(nodes=[node("w1")])

        def verify():
            found = [os.path.join(root, name) for root, _, names in os.walk("/etc/containerd/certs.d")
                     for name in names if name == "hosts.toml"]
            self.assertEqual(len(found), 1, found)
            with open(found[0], encoding="utf-8") as file:
                self.assertIn('Authorization = "Basic bmV3"', file.read())
            self.assertEqual(os.stat(found[0]).st_mode & 0o777, 0o600)
        self.prove("registry_trust", "w1", begin, verify, registry_endpoint="10.0.0.100:5000",
                   registry_authorization="Basic bmV3")

    def test_registry_trust_of_outer_registries(self):
        root = "/etc/containerd/certs.d"
        more = {"registry_endpoint": "10.0.0.100:5000", "registry_authorization": "Basic bmV3",
                "outer_registry_authorizations": json.dumps({"docker.io": "Basic aHViOnA="}),
                "outer_registries": json.dumps([{"host": "docker.io", "mode": "mirror",
                                                 "endpoints": ["https://mirror.example"],
                                                 "override_path": False, "ca": self.ca, "account": "hub"}])}

        def begin():
            self.fresh(nodes=[node("w1")])
            # of a document that is gone, and of a person
            for path in ("gone.example/kaas-outer", "gone.example/hosts.toml", "mine.example/hosts.toml"):
                self.file(os.path.join(root, path), "")

        def verify():
            self.assertEqual(sorted(os.listdir(root)), ["docker.io", "mine.example", "reg"])
            path = os.path.join(root, "docker.io/hosts.toml")
            with open(path, encoding="utf-8") as file:
                self.assertIn('[host."https://mirror.example".header]\nAuthorization = "Basic aHViOnA="', file.read())
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.prove("registry_trust", "w1", begin, verify, **more)

    def test_drill(self):
        keys = ["/registry/namespaces/default", "/registry/minions/m9", "/registry/secrets/default/a",
                "/registry/events/default/x"]
        value = base64.b64encode(b"k8s:enc:secretbox:v1:key1:sealed").decode()

        def begin():
            self.begin(nodes=[node("m9")], namespaces=[{"metadata": {"name": "default"}}], customresourcedefinitions=[],
                       secrets=[{"metadata": {"name": "a", "namespace": "default"}}], keys=keys,
                       values=[{"key": base64.b64encode(keys[2].encode()).decode(), "value": value}])
            remove("/var/lib/kaas")
            remove("/etc/systemd/system")
            self.file("/var/lib/kaas/etcd-restore/snapshot.db", "snapshot")
            self.file("/var/lib/kaas/etcd-restore/staged.json", json.dumps({
                "id": "p1", "backup": "b1", "revision": 7, "size": 8,
                "sha256": hashlib.sha256(b"snapshot").hexdigest()}))
            self.file(self.world + "/bin/crictl", "#!/bin/sh\necho '{\"containers\": []}'\n", 0o755)
            self.file(self.world + "/bin/etcdutl", """#!/bin/sh
case "$2" in
status) echo '{"revision": 7, "totalKey": 3}' ;;
restore)
  while [ $# -gt 0 ]; do [ "$1" = --data-dir ] && dir=$2; shift; done
  mkdir -p $dir/member; echo restored > $dir/member/wal ;;
esac
""", 0o755)

        def verify():
            with open("/var/lib/kaas/drill/answer.json", encoding="utf-8") as file:
                answer = json.load(file)
            self.assertEqual(answer["restored"]["resources"], {"namespaces": 1, "minions": 1, "secrets": 1})
            self.assertEqual((answer["api"]["nodes"], answer["api"]["secrets"], answer["keys"]), (["m9"], 1, ["key1"]))
            with open("/var/lib/etcd/member/wal", encoding="utf-8") as file:
                self.assertEqual(file.read(), "restored\n")
            with open("/etc/systemd/system/kubelet.service.d/20-restore-drill.conf", encoding="utf-8") as file:
                self.assertIn('"KUBELET_KUBECONFIG_ARGS="', file.read())
            self.assertFalse([call for call in self.calls("kubeadm") if "phase" not in call], "kubeadm made a cluster")
        self.prove("drill", "m1", begin, verify)

    def test_cluster_users(self):
        def begin():
            self.fresh(nodes=[node("m1", master=True)])

        def verify():
            with open("/etc/kubernetes/apiserver/authentication.yaml", encoding="utf-8") as file:
                text = file.read()
            self.assertIn('audiences: ["kaas:4f1c"]', text)
            self.assertIn('url: "https://director.example/oidc"', text)
            self.assertTrue(os.path.exists(self.world + "/node/etc/kaas-issuer/keys.json"))
            self.assertIn("clusterrolebinding/kaas:user", self.things("applied"))
        self.prove("cluster_users", "m1", begin, verify, cluster_users_kubeconfig=self.world + "/admin.conf",
                       issuer_discovery='{"issuer": "https://director.example/oidc"}', issuer_keys='{"keys": []}',
                   issuer_certificate="pem", issuer_certificate_key="pem")

    def test_consul_sync(self):
        def verify():
            applied = self.things("applied")
            self.assertIn("rolebinding/consul-sync-import", applied)
            self.assertIn("/kaas/consul-sync:v", applied["deployment/consul-sync"])
            self.assertIn("https://consul.example:8501", applied["configmap/consul-sync"])
            self.assertIn("czNjcmV0", applied["secret/consul-sync-token"])
        settings = {"owner": "d1", "cluster": "c1", "consul": {"addresses": ["https://consul.example:8501"]},
                    "import": [{"service": "db", "namespace": "shop", "name": "db", "port": 1}]}
        self.prove("consul_sync", "m1", lambda: self.begin(nodes=[node("m1", master=True)]), verify,
                       consul_settings=json.dumps(settings), consul_token="s3cret",
                   consul_sync_kubeconfig=self.world + "/admin.conf")

    def test_consul_sync_remove(self):
        ours = ["deployment/consul-sync", "secret/consul-sync-token", "configmap/consul-sync",
                "clusterrole/consul-sync-import", "serviceaccount/consul-sync"]

        def begin():
            self.begin(nodes=[node("m1", master=True)], services=[{"metadata": {"name": "db", "namespace": "shop"}}],
                       endpointslices=[],
                       rolebindings=[{"metadata": {"name": "consul-sync-import", "namespace": "shop"}}],
                       applied=dict({name: "x" for name in ours}, **{"configmap/coredns": "x"}))

        def verify():
            self.assertEqual((list(self.things("applied")), self.things("services"), self.things("rolebindings")),
                             (["configmap/coredns"], [], []))
            calls = self.calls("kubectl delete")
            self.assertIn("deployment consul-sync", calls[0], "the program would make again what goes")
        self.prove("consul_sync_remove", "m1", begin, verify, consul_sync_kubeconfig=self.world + "/admin.conf")

    def test_consul_agents(self):
        root = self.world + "/agent"
        told = {"owner": "d1", "datacenter": "dc1", "domain": "consul", "join": ["10.0.0.11:8301"], "ca": "CA",
                "networks": ["10.9.0.0/16"]}
        more = {"consul_agent_root": root, "consul_agent_live": False, "consul_agents": json.dumps(told),
                "consul_gossip_key": "key",
                "consul_agent_tokens": json.dumps({"w1": "s3cret", "m1": "other"})}

        def begin():
            remove(root)
            remove(self.world + "/node")
            self.begin(nodes=[node("m1", master=True), node("w1")])
            self.file(root + "/usr/bin/consul", "", 0o755)

        def verify():
            config = {}
            for name in ("director-agent.json", "director.json"):
                with open(root + "/etc/consul.d/" + name, encoding="utf-8") as file:
                    config.update(json.load(file))
            self.assertEqual((config["acl"]["tokens"]["agent"], config["encrypt"], config["node_name"],
                              config["bind_addr"]), ("s3cret", "key", "kaas-w1", "10.0.0.4"))
            self.assertEqual(config["node_meta"], {"kaas-owner": "d1", "kaas-cluster": "4f1c", "kaas-node": "w1"})
            with open(root + "/etc/consul.d/director-services.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file), {"services": []})
            with open(self.world + "/node/w1/etc/kaas/firewall.nft", encoding="utf-8") as file:
                self.assertIn("chain consul-gossip {\n        ip saddr 10.0.0.1 accept", file.read())
        self.prove("consul_agents", "w1", begin, verify, **more)
        more["consul_agents"] = ""

        def gone():
            self.assertEqual(os.listdir(root + "/etc/consul.d"), [])
            with open(self.world + "/node/w1/etc/kaas/firewall.nft", encoding="utf-8") as file:
                self.assertNotIn("consul", file.read())

        def installed():
            begin()
            self.play("consul_agents", "w1", **dict(more, consul_agents=json.dumps(told)))
        self.prove("consul_agents_remove", "w1", installed, gone, **more)

    def test_cluster_dns(self):
        more = {"cluster_dns_kubeconfig": self.world + "/admin.conf", "dns_upstreams": ["/etc/resolv.conf"],
                "cluster_dns_domain": "cluster.local"}

        def verify(there):
            self.assertEqual("forward . 10.0.0.11:8600" in self.things("applied")["configmap/coredns"], there)
        self.prove("cluster_dns", "m1", lambda: self.begin(nodes=[node("m1", master=True)]), lambda: verify(True),
                   consul_domain="consul",
                   consul_dns_servers=["10.0.0.11:8600"], **more)
        self.play("cluster_dns", "m1", consul_domain="", consul_dns_servers=[], **more)
        verify(False)

    def test_drain_master(self):
        pod = {"metadata": {"name": "a", "namespace": "default",
                            "ownerReferences": [{"kind": "ReplicaSet", "controller": True}]},
               "spec": {"nodeName": "m1"}}

        def verify():
            self.assertEqual(self.things("pods"), [])
            self.marked(True)
        self.prove("drain_master", "m1", lambda: self.begin(nodes=[node("m1", master=True)], pods=[pod]), verify,
                   dead=True)

    def balanced(self, **more):
        """Return the variables of a cluster with a virtual address, whose balancer works on a directory."""
        return dict({"api_vip": "10.0.0.9", "api_vrid": 51, "api_balancer_root": self.world + "/node",
                     "api_balancer_live": False,
                     "api_balancer_interface": "lo"}, **more)

    def fresh(self, **cluster):
        """Stand the world up with a machine that nobody has prepared."""
        for path in (self.world + "/node", "/etc/containerd", "/etc/cni"):
            remove(path)
        self.begin(**cluster)

    def test_api_balancer(self):
        def verify():
            with open(self.world + "/node/etc/haproxy/haproxy.cfg", encoding="utf-8") as file:
                text = file.read()
            self.assertEqual([name for name in ("10.0.0.1:", "10.0.0.2:", "10.0.0.3:") if name not in text], [], text)
            self.assertTrue(os.path.exists(self.world + "/node/etc/keepalived/keepalived.conf"))
        self.prove("api_balancer", "m1", self.fresh, verify, **self.balanced())

    def test_delete_master(self):
        balancer = self.world + "/node/etc/haproxy/haproxy.cfg"

        def begin():
            self.begin(nodes=[node(name, master=True, unschedulable=True) for name in ("m1", "m2", "m3")],
                       members=[member(1), member(2), member(3)])
            for path in ("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/manifests/kube-apiserver.yaml",
                         "/var/lib/etcd/member/x", balancer):
                self.file(path, "")
            self.file("/etc/kubernetes/kaas/state.json", '{"phase": "done"}')

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m2", "m3"], ["m2", "m3"]))
            self.assertEqual([path for path in ("/etc/kubernetes", "/var/lib/etcd/member", balancer)
                              if os.path.exists(path)], [])
        self.prove("delete_master", "m1", begin, verify, **self.balanced())

    def test_install_prepare(self):
        def verify():
            self.assertTrue(os.path.exists("/etc/containerd/config.toml"))
            self.assertTrue(os.path.exists("/etc/containerd/certs.d/reg"))
            self.assertTrue(os.listdir(self.world + "/node/etc"))
        self.prove("install/prepare", "w1", self.fresh, verify)

    def test_install_the_first_master(self):
        def begin():
            self.begin(nodes=[], configmaps=[{"metadata": {"name": "kubeadm-config"}, "data": {}}])

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m1"], ["m1"]))
            self.assertIn('kubernetesVersion: "%s"' % NEW, self.things("configmaps")[0]["data"]["ClusterConfiguration"])
            self.assertFalse(self.calls("kubeadm join"))
        # Nothing answers yet where the API will be, so that there is no cluster to join.
        self.prove("install/control_plane", "m1", begin, verify, api_endpoint_port=6444)

    def test_install_another_master(self):
        def begin():
            self.begin(nodes=[node("m1", master=True)], members=[member(1)],
                       configmaps=[configuration(NEW, "v3.7.3", "v1.14.6")])

        def verify():
            self.assertEqual((self.names("nodes"), self.names("members")), (["m1", "m2"], ["m1", "m2"]))
            self.assertFalse(self.calls("kubeadm init"))
        self.prove("install/control_plane", "m2", begin, verify, control_plane_node_ip="10.0.0.1")

    def test_install_workers(self):
        self.prove("install/workers", "w1", lambda: self.begin(nodes=[node("m1")]),
                   lambda: self.assertEqual(self.names("nodes"), ["m1", "w1"]))

    def test_install_pod_network(self):
        manifest = self.world + "/network.yaml"
        self.file(manifest, "kind: DaemonSet\nmetadata:\n  name: calico-node\n---\nkind: Deployment\nmetadata:\n  "
                  "name: calico-kube-controllers\n"
                            "data: @REGISTRY@ @POD_CIDR@\n")

        def verify():
            applied = self.things("applied")
            self.assertEqual(sorted(applied), ["configmap/coredns", "configmap/kaas-pod-network",
                                               "configmap/kubernetes-services-endpoint", "daemonset/calico-node",
                                               "deployment/calico-kube-controllers", "poddisruptionbudget/coredns"])
            self.assertIn("reg/kaas 10.244.0.0/16", applied["deployment/calico-kube-controllers"])
        conf = self.world + "/admin.conf"
        self.prove("install/pod_network", "m1", lambda: self.begin(nodes=[node("m1")]), verify, pod_network="calico",
                   calico_manifest=manifest,
                       vxlan_port=4789, pod_network_mtu=0, dns_upstreams=["10.0.0.53"], pod_network_kubeconfig=conf,
                   cluster_dns_kubeconfig=conf)

    def test_install_verify(self):
        def verify():
            self.assertEqual((self.things("pods"), self.things("namespaces")), ([], []), "probes are left")
            self.assertTrue(self.calls("kubectl exec"), "no probe was asked")
        self.prove("install/verify", "m1", lambda: self.begin(nodes=[node(name) for name in ("m1", "m2", "m3", "w1")]),
                   verify, least=0,
                       toolbox_image_tag="1", checks_kubeconfig=self.world + "/admin.conf")

    def test_uninstall(self):
        def begin():
            self.fresh(nodes=[node("w1")])
            for path in ("/etc/kubernetes/kubelet.conf", "/etc/cni/net.d/10-calico.conflist",
                         "/etc/containerd/certs.d/reg/hosts.toml"):
                self.file(path, "")
            self.file("/etc/kubernetes/kaas/state.json", '{"phase": "done"}')

        def verify():
            left = [path for path in ("/etc/kubernetes", "/etc/cni/net.d/10-calico.conflist",
                                      "/etc/containerd/certs.d/reg") if os.path.exists(path)]
            self.assertEqual(left, [])
        self.prove("uninstall", "w1", begin, verify, uninstall_confirm="demo")
        self.begin(nodes=[node("w1")])
        self.assertIn("This removes the cluster", self.play("uninstall", "w1", fails=True))

    def test_encryption_keys(self):
        keys = [{"name": "key1", "secret": "b25l"}, {"name": "key2", "secret": "dHdv"}]

        def verify():
            with open("/etc/kubernetes/apiserver/encryption.yaml", encoding="utf-8") as file:
                self.assertRegex(file.read(), r'(?s)"key1".*"b25l".*"key2".*"dHdv"')
        self.prove("encryption_keys", "m1", lambda: self.begin(nodes=[]), verify, encryption_keys=json.dumps(keys),
                   encryption_keys_wait=False)

    def test_service_account_keys(self):
        def verify():
            with open("/etc/kubernetes/pki/sa.pub", encoding="utf-8") as public, open("/etc/kubernetes/pki/sa.key",
                                                                                      encoding="utf-8") as key:
                self.assertEqual((public.read(), key.read()), ("new former", "key"))

        def begin():
            self.begin(nodes=[], members=[member(1), member(2), member(3)])
        self.prove("service_account_keys", "m1", begin, verify, pki_sa_key="key", pki_sa_pub="new former",
                   service_account_keys_live=False)

    def test_clocks(self):
        """One clock that is off by a day is found among all, and named. Nothing changes, and the others are not said to
        be wrong."""
        self.prove("clocks", "m1", lambda: self.begin(nodes=[]), lambda: None, least=0)
        off = "{{ now().strftime('%s') | int - (86400 if inventory_hostname == 'm2' else 0) }}"
        said = self.play("clocks", "cluster", fails=True, rotate_certs_reference=off)
        self.assertRegex(said, r"(?s)\[m2\]: FAILED!.*the clock of the node is off by 864\d\d s")
        self.assertEqual(sorted(re.findall(r"^(\w+) .* failed=0 ", said, re.M)), ["m1", "m3", "w1"])

    def test_rotate_ca(self):
        cert = "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
        bundles = {"pki_ca_crt": cert % "bmV3" + cert % "b2xk", "pki_etcd_ca_crt": cert % "ZQ==",
                   "pki_front_proxy_ca_crt": cert % "Zg=="}
        keys = {"pki_ca_key": "k1", "pki_etcd_ca_key": "k2", "pki_front_proxy_ca_key": "k3"}

        def verify():
            for name, want in {"ca.crt": bundles["pki_ca_crt"], "ca-signing.crt": cert % "bmV3", "ca.key": "k1",
                               "etcd/ca.crt": bundles["pki_etcd_ca_crt"],
                               "front-proxy-ca.key": "k3"}.items():
                with open("/etc/kubernetes/pki/" + name, encoding="utf-8") as file:
                    self.assertEqual(file.read(), want)

        def begin():
            self.begin(nodes=[node("m1", master=True)], members=[member(1)])
        self.prove("rotate_ca", "m1", begin, verify, rotate_ca_live=False, rotate_certs_live=False, **bundles, **keys)

    def test_ssh_authority(self):
        path = self.world + "/node/etc/ssh/kaas/user_ca.pub"

        def begin():
            self.begin(nodes=[])
            self.file(path, "former\n")

        def verify():
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "former\nnext\n")
        self.prove("ssh_authority", "w1", begin, verify, ssh_authorities="former\nnext\n")
        os.unlink(path)
        self.assertIn("its SSH authority cannot be changed",
                      self.play("ssh_authority", "w1", fails=True, ssh_authorities="former\n"))

    def test_set_aside(self):
        disk, data = self.world + "/disk", "/var/lib/etcd"

        def unmount():
            for path in (data, disk):
                subprocess.run(["umount", "--lazy", path], check=False, stderr=subprocess.DEVNULL)
        self.addCleanup(unmount)

        def begin():
            unmount()
            self.begin(nodes=[])
            os.makedirs(disk, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
            self.file(disk + data + "/member/snap/db", "of the former machine")
            subprocess.run(["mount", "--bind", disk + data, data], check=True)

        def verify():
            self.assertEqual(os.listdir(data), [])
            self.assertTrue(os.path.exists(disk + "/.kaas-former-etcd/machine-of-this/member/snap/db"))
        self.prove("set_aside", "m1", begin, verify)

    def test_rejoin_worker_at_the_former_version(self):
        def verify():
            self.assertEqual([(item["status"]["nodeInfo"]["machineID"], item["status"]["nodeInfo"]["kubeletVersion"])
                              for item in self.things("nodes")],
                             [("machine-of-this", OLD)])
        # As an upgrade puts a worker back whose VM was recreated: the cluster is newer, the image and the inventory are
        # of the former release.
        self.prove("rejoin_worker", "w1", lambda: self.begin(installed=OLD,
                                                             nodes=[node("w1", machine=STALE, ready="Unknown")]),
                   verify,
                       kubernetes_version=OLD, release_binaries_url="")


def main():
    """Run the tests that the command line names."""
    words, loader = sys.argv[1:], unittest.defaultTestLoader
    names = loader.getTestCaseNames(Plays)
    if words and "/" in words[0]:
        part, parts = (int(number) for number in words[0].split("/"))
        names = names[part - 1::parts]
    elif words:
        names = words
    print("cuts by the seed %s: KAAS_SEED=%s brings the same" % (SEED, SEED), flush=True)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(Plays(name) for name in names))
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
