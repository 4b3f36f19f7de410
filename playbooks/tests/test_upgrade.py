# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
import hashlib
import http.server
import os
import re
import ssl
import subprocess
import threading
import unittest

from support import Case, load, run

OLD, NEW = "v1.36.4", "v1.37.2"
CONFIG = """apiServer:
  certSANs:
  - dns
apiVersion: kubeadm.k8s.io/v1beta4
dns:
  imageTag: {coredns}
etcd:
  local:
    dataDir: /var/lib/etcd
    extraArgs:
    - name: imageTag
      value: "0"
    imageTag: {etcd}
kind: ClusterConfiguration
kubernetesVersion: {version}
networking:
  dnsDomain: cluster.local
"""


def workload(name, tag):
    """Return a daemon set or deployment."""
    return {"metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [{"image": "reg:5000/kaas/%s:%s" % (name, tag)}]}}}}


class Upgrade(Case):
    """kaas_upgrade."""

    def setUp(self):
        super().setUp()
        self.kubeadm(NEW)

    def kubeadm(self, version):
        # Keeps the configuration that it was given: the module removes it.
        self.program("kubeadm", """
            case "$*" in
            version*) echo %s ;;
            *upload-config*) cp "$6" %s ;;
            esac
            """ % (version, self.path("uploaded")))

    def world(self, cluster=OLD, kubelets=None, here=OLD, etcd="v3.6.10", tags=None, proxy=OLD, coredns="v1.14.2"):
        """Stand up a cluster; here is what the static pods of m1 are of."""
        tags = tags or {"etcd": etcd, "coredns": coredns}
        self.cluster(
            nodes=[{"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}}
                   for name, version in (kubelets or {"m1": OLD, "m2": OLD, "m3": OLD}).items()],
            configmaps=[{"metadata": {"name": "kubeadm-config"},
                         "data": {"ClusterConfiguration": CONFIG.format(version=cluster, **tags)}}],
            daemonsets=[workload("kube-proxy", proxy)], deployments=[workload("coredns", coredns)])
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            self.write("k/manifests/%s.yaml" % name,
                       "spec:\n  containers:\n  - command:\n    image: reg:5000/kaas/%s:%s\n    imagePullPolicy: x\n"
                       % (name, here))
        self.write("k/manifests/etcd.yaml", "    image: reg:5000/kaas/etcd:%s\n" % etcd)

    def ensure(self, action, check=False, **args):
        return run("kaas_upgrade", dict({
            "action": action, "name": "m1", "version": NEW, "config": "upgrade.yaml", "etcd_tag": "v3.7.3",
            "coredns_tag": "v1.14.6",
            "kubernetes_dir": self.path("k"), "lock_file": self.path("lock"), "kubeadm": self.path("bin/kubeadm"),
            "kubeconfig": self.path("admin.conf"), "kubectl": self.path("bin/kubectl"), "timeout": 5}, **args),
                   check=check)

    def ran(self):
        return [line for line in self.calls() if line.startswith("kubeadm") and "version" not in line]

    def upload(self):
        """Upload a configuration with which API servers check the kubelets' certificates, and return what was
        uploaded."""
        content = ("apiServer:\n  extraArgs:\n    - name: a\n      value: b\n"
                   "    - name: kubelet-certificate-authority\n      value: ca.crt\n    - name: c\n      value: d\n")
        self.assertNotIn("failed", self.ensure("config", content=content, keep_version=False))
        return self.read("uploaded")

    def test_kubelets_are_checked_when_all_are_signed(self):
        pem, other = self.path("k/pki/ca.crt"), self.path("other.pem")
        os.makedirs(os.path.dirname(pem), exist_ok=True)
        for path in (pem, other):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-days", "2", "-subj", "/CN=ca", "-keyout", path + ".key", "-out", path], check=True,
                           stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, pem + ".key")
        try:
            server = http.server.ThreadingHTTPServer(("127.0.65.1", 10250), http.server.BaseHTTPRequestHandler)
        except OSError as err:
            self.skipTest("the kubelet's port is taken here: %s" % err)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def nodes(*addresses):
            self.world()
            self.cluster(
                nodes=[{"metadata": {"name": "n%d" % number},
                        "status": {"addresses": [{"type": "InternalIP", "address": address}] if address else []}}
                       for number, address in enumerate(addresses)],
                configmaps=[{"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": self.known}}])
        self.known = CONFIG.format(version=OLD, etcd="v3.6.10", coredns="v1.14.2")
        checked = "- name: kubelet-certificate-authority"
        nodes("127.0.65.1", "127.0.65.1")
        self.assertIn(checked, self.upload())
        nodes("127.0.65.1", "127.0.65.2")  # one that is down
        left = self.upload()
        self.assertNotIn("kubelet-certificate-authority", left)
        self.assertNotIn("ca.crt", left)
        self.assertIn("    - name: a\n      value: b\n    - name: c\n", left)
        nodes("")
        self.assertNotIn(checked, self.upload())
        context.load_cert_chain(other, other + ".key")  # as a kubelet that signs for itself
        nodes("127.0.65.1")
        self.assertNotIn(checked, self.upload())
        self.known = self.known.replace("  certSANs:",
                                        "  extraArgs:\n  - name: kubelet-certificate-authority\n    value: ca.crt\n  "
                                        "certSANs:")
        nodes("127.0.65.1")  # it was so already, and stays
        self.assertIn(checked, self.upload())

    def test_first_master_applies(self):
        self.world()
        self.assertEqual(self.ensure("master", check=True)["did"], ["kubeadm upgrade apply"])
        self.assertEqual(self.ran(), [])
        got = self.ensure("master")
        self.assertEqual((got["did"], got["why"][0]), (["kubeadm upgrade apply"], "the cluster is v1.36.4"))
        self.assertEqual(self.ran(), ["kubeadm upgrade apply --yes --config upgrade.yaml"])

    def test_half_done(self):
        new = {"m1": NEW, "m2": NEW, "m3": NEW}
        for name, world, want in [
                ("cut off after the configuration was uploaded", {"cluster": NEW, "here": NEW, "etcd": "v3.7.3"},
                 "apply"),
                ("cut off between static pods", {"cluster": OLD, "here": OLD, "etcd": "v3.7.3"}, "apply"),
                ("second master", {"cluster": NEW, "kubelets": dict(new, m1=OLD, m3=OLD)}, "node"),
                ("second master, all but the kubelet", {"cluster": NEW, "kubelets": dict(new, m1=OLD), "here": NEW,
                                                        "etcd": "v3.7.3"}, "node"),
                ("kubelet done, etcd not", {"cluster": NEW, "kubelets": new, "here": NEW}, "node"),
                ("only the addons are left", {"cluster": NEW, "kubelets": new, "here": NEW, "etcd": "v3.7.3"}, "node"),
                ("others are not through yet", {"cluster": NEW, "kubelets": dict(new, m3=OLD), "here": NEW,
                                                "etcd": "v3.7.3"}, None),
                ("done", {"cluster": NEW, "kubelets": new, "here": NEW, "etcd": "v3.7.3", "proxy": NEW,
                          "coredns": "v1.14.6"}, None)]:
            with self.subTest(name):
                self.world(**world)
                got = self.ensure("master")
                self.assertEqual((got["did"], got["changed"]),
                                 (["kubeadm upgrade " + want], True) if want else ([], False), got)

    def test_worker(self):
        self.world(cluster=NEW, kubelets={"m1": NEW, "w1": OLD})
        self.assertEqual(self.ensure("worker", name="w1")["did"], ["kubeadm upgrade node"])
        self.assertEqual(self.ran(), ["kubeadm upgrade node --config upgrade.yaml"])
        self.world(cluster=NEW, kubelets={"m1": NEW, "w1": NEW})
        self.assertFalse(self.ensure("worker", name="w1")["changed"])

    def test_failures(self):
        self.world()
        self.kubeadm(OLD)
        self.assertIn("kubeadm on the node is v1.36.4, not v1.37.2", self.ensure("master")["msg"])
        self.assertEqual(self.ensure("master", check=True)["did"], ["kubeadm upgrade apply"],
                         "check mode has no new kubeadm yet")
        self.program("kubeadm", "case $1 in version) echo %s ;; *) echo 'error: the node is full' >&2; exit 1 ;; esac"
                     % NEW)
        got = self.ensure("master")
        self.assertIn("kubeadm upgrade apply failed: error: the node is full", got["msg"])
        self.assertIn("continues where it stopped", got["hint"])

    def test_config_keeps_the_version_until_it_is_applied(self):
        self.world()
        content = "kind: ClusterConfiguration\nkubernetesVersion: \"%s\"\ndns: x\n" % NEW
        self.assertEqual(self.ensure("config", content=content, check=True)["why"],
                         ["kubernetesVersion is v1.36.4", "etcd is v3.6.10", "coredns is v1.14.2"])
        self.assertEqual(self.ran(), [])
        self.assertEqual(self.ensure("config", content=content, keep_version=True)["did"],
                         ["kubeadm init phase upload-config"])
        self.assertIn("kubernetesVersion: v1.36.4\n", self.read("uploaded"))
        self.ensure("config", content=content)
        self.assertIn("kubernetesVersion: \"v1.37.2\"\n", self.read("uploaded"))
        self.world(cluster=NEW, tags={"etcd": "v3.7.3", "coredns": "v1.14.6"})
        self.assertFalse(self.ensure("config", content=content)["changed"])

    def test_mend(self):
        self.world()
        self.write("k/admin.conf", "")
        self.write("k/tmp/kubeadm-backup-manifests-1/etcd.yaml", "older")
        self.write("k/tmp/kubeadm-backup-manifests-2/etcd.yaml", "newer")
        os.utime(self.path("k/tmp/kubeadm-backup-manifests-1/etcd.yaml"), (1, 1))
        self.assertFalse(self.ensure("mend")["changed"], "nothing is missing")
        os.unlink(self.path("k/manifests/etcd.yaml"))
        os.unlink(self.path("k/manifests/kube-scheduler.yaml"))
        self.assertEqual(self.ensure("mend", check=True)["did"], ["put back etcd"])
        self.assertEqual(self.ensure("mend")["did"], ["put back etcd"])
        self.assertEqual((self.read("k/manifests/etcd.yaml"), self.mode("k/manifests/etcd.yaml")), ("newer", 0o600))

    def test_field(self):
        field = load("library/kaas_upgrade.py", "kaas_upgrade").field
        text = CONFIG.format(version=OLD, etcd="e", coredns="\"c\"")
        for path, want in [(("kubernetesVersion",), OLD), (("dns", "imageTag"), "c"),
                           (("etcd", "local", "imageTag"), "e"),
                           (("dns", "nothing"), ""), (("imageTag",), ""), (("networking", "imageTag"), "")]:
            self.assertEqual(field(text, *path), want, path)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one file, with ranges when asked to."""

    data, ranges, cut, asked, wants = b"", True, 0, [], ""

    def do_GET(self):
        start = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
        self.asked.append((self.path, start))
        if self.headers.get("Authorization", "") != self.wants:
            return self.send_error(401)
        if self.path != "/bin/kubelet":
            return self.send_error(404)
        start = start if self.ranges else 0
        body = self.data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if Server.cut:
            body, Server.cut = body[:Server.cut], 0
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


class Fetch(Case):
    """kaas_fetch."""

    def setUp(self):
        super().setUp()
        Server.data, Server.ranges, Server.cut, Server.asked, Server.wants = os.urandom(3000), True, 0, [], ""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = "http://127.0.0.1:%d/bin/" % server.server_port
        self.sum = hashlib.sha256(Server.data).hexdigest()
        os.mkdir(self.path("dest"))

    def ensure(self, name="kubelet", check=False, **args):
        return run("kaas_fetch", dict({"url": self.url, "files": {name: self.sum}, "dest": self.path("dest"),
                                       "timeout": 5}, **args), check=check)

    def there(self):
        with open(self.path("dest/kubelet"), "rb") as file:
            return file.read()

    def part(self):
        return self.path("dest/.kaas-fetch-kubelet-" + self.sum[:16])

    def test_fetches_once(self):
        self.write("dest/kubelet", "old")
        running = open(self.path("dest/kubelet"), encoding="utf-8")
        self.addCleanup(running.close)
        self.assertEqual(self.ensure(check=True)["fetched"], ["kubelet"])
        self.assertEqual((self.there(), Server.asked), (b"old", []))
        self.assertEqual(self.ensure()["fetched"], ["kubelet"])
        self.assertEqual((self.there(), self.mode("dest/kubelet"), os.listdir(self.path("dest"))),
                         (Server.data, 0o755, ["kubelet"]))
        self.assertEqual(running.read(), "old", "the file that a program runs from was written to")
        self.assertFalse(self.ensure()["changed"])
        self.assertEqual(len(Server.asked), 1)
        os.chmod(self.path("dest/kubelet"), 0o600)
        self.assertTrue(self.ensure()["changed"])
        self.assertEqual((self.mode("dest/kubelet"), len(Server.asked)), (0o755, 1))

    def test_shows_its_credentials(self):
        Server.wants = "Basic dTE6cGFzc3dvcmQ="
        self.assertIn("401", self.ensure()["msg"])
        got = self.ensure(authorization=Server.wants)
        self.assertEqual((got["fetched"], self.there()), (["kubelet"], Server.data))
        self.assertNotIn("dTE6cGFzc3dvcmQ", str(got))

    def test_wrong_checksum(self):
        self.write("dest/kubelet", "old")
        got = self.ensure(files={"kubelet": "0" * 64})
        self.assertIn("is not what was expected: its SHA-256 is %s" % self.sum, got["msg"])
        self.assertEqual((self.there(), os.listdir(self.path("dest"))), (b"old", ["kubelet"]))

    def test_goes_on(self):
        with open(self.part(), "wb") as file:
            file.write(Server.data[:1000])
        self.write("dest/.kaas-fetch-kubelet-0000000000000000", "of another release")
        self.ensure()
        self.assertEqual((self.there(), Server.asked), (Server.data, [("/bin/kubelet", 1000)]))
        self.assertEqual(os.listdir(self.path("dest")), ["kubelet"])

    def test_server_without_ranges(self):
        Server.ranges = False
        with open(self.part(), "wb") as file:
            file.write(b"x" * 10)
        self.ensure()
        self.assertEqual(self.there(), Server.data)

    def test_connection_that_ends_early(self):
        Server.cut = 700
        self.ensure(timeout=20)
        self.assertEqual((self.there(), Server.asked), (Server.data, [("/bin/kubelet", 0), ("/bin/kubelet", 700)]))

    def test_full_disk(self):
        os.symlink("/dev/full", self.part())
        got = self.ensure(timeout=600)
        self.assertIn("dest/kubelet cannot be written: No space left on device", got["msg"])
        self.assertEqual(len(Server.asked), 1, "a full disk was tried again")

    def test_failures(self):
        self.assertIn("404", self.ensure(name="kubectl")["msg"])
        self.assertIn("not within 0 s", self.ensure(url="http://127.0.0.1:1", timeout=0)["msg"])
        self.assertIn("not a file name", self.ensure(name="../kubelet")["msg"])
        self.assertIn("ca is no certificate", self.ensure(ca="nothing")["msg"])


if __name__ == "__main__":
    unittest.main()
