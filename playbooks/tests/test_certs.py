# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of kaas_certs with openssl and a pretended kubeadm, container runtime and systemd."""
import os
import ssl
import subprocess
import time

from support import Case, run

YEAR = 365 * 86400


class CertsTest(Case):
    """A master in a directory."""

    def setUp(self):
        super().setUp()
        for name in ("kubernetes/pki/etcd", "kubernetes/kaas", "kubelet/pki"):
            os.makedirs(self.path(name))
        self.authority("kubernetes/pki/ca")
        self.authority("kubernetes/pki/etcd/ca")
        self.authority("kubernetes/pki/front-proxy-ca")
        self.leaf("kubernetes/pki/ca", "kubernetes/pki/apiserver", 10)
        self.leaf("kubernetes/pki/etcd/ca", "kubernetes/pki/etcd/server", 300)
        # kubeadm renews a file by a certificate of its authority that lasts for a year.
        self.write("bin/kubeadm", """#!/bin/sh
echo "$@" >> %(root)s/calls
case "$3" in
apiserver) ca=pki/ca file=pki/apiserver ;;
*) ca=pki/etcd/ca file=pki/etcd/server ;;
esac
cd %(root)s/kubernetes
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x \\
  -keyout $file.key -out $file.csr 2>/dev/null
openssl x509 -req -in $file.csr -CA $ca.crt -CAkey $ca.key -CAcreateserial -days 365 -out $file.crt 2>/dev/null
""" % {"root": self.root}, 0o755)
        self.write("bin/systemctl", """#!/bin/sh
echo "$@" >> %(root)s/calls
case "$1" in
is-active) [ ! -e %(root)s/stopped ] ;;
stop) touch %(root)s/stopped ;;
start) rm -f %(root)s/stopped ;;
esac
""" % {"root": self.root}, 0o755)

    def openssl(self, *argv):
        """Run openssl."""
        subprocess.run(["openssl"] + list(argv), check=True, cwd=self.root, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def authority(self, name):
        """Make an authority of ten years."""
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     "/CN=" + name.replace("/", "-"), "-days", "3650", "-keyout", name + ".key", "-out", name + ".crt")

    def leaf(self, authority, name, days):
        """Make a certificate."""
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     "/CN=" + os.path.basename(name), "-keyout", name + ".key", "-out", name + ".csr")
        self.openssl("x509", "-req", "-in", name + ".csr", "-CA", authority + ".crt", "-CAkey", authority + ".key",
                     "-CAcreateserial", "-days", str(days), "-out", name + ".crt")

    def certs(self, action, check=False, **args):
        """Run the module."""
        answer = run("kaas_certs", dict({
            "action": action, "kubernetes_dir": self.path("kubernetes"), "kubelet_dir": self.path("kubelet"),
            "timeout": 5,
            "config": self.path("certs.yaml"), "node": "m1", "before": int(time.time()) + 30 * 86400}, **args),
                     check=check, path=self.bin)
        self.assertFalse(answer.get("failed"), answer)
        return answer

    def backups(self):
        """Return the backups."""
        directory = self.path("kubernetes/kaas/backups")
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []

    def test_renew(self):
        """Only what ends too soon is renewed, after a backup; a second run changes nothing."""
        self.assertEqual(self.certs("renew", check=True)["did"], ["apiserver"])
        self.assertEqual(self.backups(), [])
        answer = self.certs("renew")
        self.assertEqual((answer["did"], answer["changed"]), (["apiserver"], True))
        self.assertIn("certs renew apiserver --config", self.read("calls"))
        self.assertEqual(len(self.backups()), 1)
        self.assertEqual(self.mode("kubernetes/kaas/backups/" + self.backups()[0]), 0o600)
        answer = self.certs("renew")
        self.assertEqual((answer["did"], answer["changed"], len(self.backups())), ([], False, 1))

    def test_all(self):
        """What was made before a moment ends before the moment and the time that new ones are good for."""
        before = int(time.time()) + YEAR
        self.assertEqual(self.certs("renew", before=before - 3600)["did"], ["etcd-server", "apiserver"])
        self.assertEqual(self.certs("renew", before=before - 3600)["did"], [])

    def test_authority_ends(self):
        """What cannot last longer than it does, because its authority ends, is not renewed for ever."""
        self.leaf("kubernetes/pki/ca", "kubernetes/pki/apiserver", 3650)
        self.assertEqual(self.certs("renew", before=int(time.time()) + 11 * YEAR)["did"], ["etcd-server"])

    def runtime(self):
        """Pretend a container runtime that notes its stops. A container that was stopped is there again at once."""
        for name in ("etcd", "kube-apiserver"):
            self.write("containers/" + name, "1")
        self.write("bin/crictl", """#!/bin/sh
case "$1" in
ps)
    name=${5#*=}
    made=$(cat %(root)s/containers/$name)
    echo '{"containers": [{"id": "'$name'", "createdAt": "'$made'000000000"}]}'
    ;;
stop)
    echo "$4 stops" >> %(root)s/calls
    [ "$4" = etcd ] || until grep -q "etcd stopped" %(root)s/calls; do sleep 0.1; done
    echo "$4 stopped" >> %(root)s/calls
    echo 9999999999 > %(root)s/containers/$4
    ;;
esac
""" % {"root": self.root}, 0o755)

    def test_notice(self):
        """The API server is told to stop before etcd stops, and is waited for; without notice it is left alone."""
        self.runtime()
        answer = self.certs("restart", components=["etcd"], notice=1)
        self.assertEqual(answer["did"], ["etcd"])
        told = ["kube-apiserver stops", "etcd stops", "etcd stopped", "kube-apiserver stopped"]
        self.assertEqual(self.read("calls").splitlines(), told)
        self.assertFalse(self.certs("restart", components=["etcd"], notice=1)["changed"])
        self.assertEqual(self.read("calls").splitlines(), told)
        self.write("containers/etcd", "1")
        self.write("calls", "")
        self.certs("restart", components=["etcd"])
        self.assertEqual(self.read("calls").splitlines(), ["etcd stops", "etcd stopped"])

    def test_clock(self):
        """A clock that is off is refused."""
        self.certs("clock", reference=int(time.time()) - 100)
        answer = run("kaas_certs", {"action": "clock", "reference": int(time.time()) - 86400})
        self.assertTrue(answer["failed"])
        self.assertIn("the clock of the node is off by 864", answer["msg"])

    def test_read(self):
        """Certificates are read, and no key."""
        answer = self.certs("read")
        self.assertEqual([item["name"] for item in answer["certificates"]],
                         ["apiserver.crt", "ca.crt", "ca.crt", "server.crt", "front-proxy-ca.crt"])
        self.assertNotIn("PRIVATE", str(answer))

    def test_kubelet(self):
        """The kubelet's certificates are signed by the cluster's authority for what the node is, and put in place while
        it is stopped."""
        self.leaf("kubernetes/pki/ca", "kubelet/pki/old", 5)
        for kind in ("client", "server"):
            with open(self.path("kubelet/pki/first-%s.pem" % kind), "w", encoding="utf-8") as file:
                file.write(self.read("kubelet/pki/old.crt") + self.read("kubelet/pki/old.key"))
            os.symlink(self.path("kubelet/pki/first-%s.pem" % kind),
                       self.path("kubelet/pki/kubelet-%s-current.pem" % kind))
        requests = self.certs("request")["requests"]
        self.assertEqual(sorted(requests), ["client", "server"])
        signed = self.certs("sign", requests=requests, address="10.0.0.1", validity=600)["certificates"]
        text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=signed["server"], check=True,
                              universal_newlines=True, stdout=subprocess.PIPE).stdout
        for part in ("DNS:m1, IP Address:10.0.0.1", "O = system:nodes, CN = system:node:m1",
                     "TLS Web Server Authentication"):
            self.assertIn(part, text)
        ends = subprocess.run(["openssl", "x509", "-noout", "-enddate"], input=signed["client"], check=True,
                              universal_newlines=True, stdout=subprocess.PIPE).stdout.strip().partition("=")[2]
        self.assertLess(abs(ssl.cert_time_to_seconds(ends) - time.time() - 600), 60)
        self.certs("install", certificates=signed)
        current = self.read("kubelet/pki/kubelet-client-current.pem")
        self.assertIn(signed["client"].strip(), current)
        self.assertIn("PRIVATE KEY", current)
        self.assertEqual(self.mode("kubelet/pki/kubelet-client-current.pem"), 0o600)
        self.assertEqual(self.read("calls").split("\n")[-3:-1], ["stop kubelet", "start kubelet"])
        self.assertFalse(os.path.exists(self.path("kubelet/pki/kaas-client.key")))
        self.assertEqual(self.certs("request", before=int(time.time()))["requests"], {})
        # A run that was cut off while the kubelet was stopped is continued.
        self.write("stopped", "")
        self.assertEqual(self.certs("install")["did"], ["kubelet"])
        self.assertEqual(self.certs("install")["did"], [])

    def test_sign_refuses(self):
        """Nothing is signed for a name that is no node."""
        answer = run("kaas_certs", {"action": "sign", "kubernetes_dir": self.path("kubernetes"), "node": "m1,DNS:x",
                                    "address": "10.0.0.1",
                                    "requests": {"client": "x"}})
        self.assertTrue(answer["failed"])
        self.assertIn("is no node", answer["msg"])
