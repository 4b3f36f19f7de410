# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of what is asked over TLS where the cluster's authority was signed by another one, with openssl."""
import http.server
import os
import ssl
import subprocess
import threading

from support import Case, kaas, run

GOOD = "abcdef.0123456789abcdef"


class Answer(http.server.BaseHTTPRequestHandler):
    """Says that all is well, but shows the configuration of a cluster for its token alone."""

    def do_GET(self): # pylint: disable=invalid-name
        """Answer."""
        shown = self.headers.get("Authorization") == "Bearer " + GOOD
        self.send_response(401 if self.path.endswith("/configmaps/kubeadm-config") and not shown else 200)
        self.end_headers()

    def log_message(self, *_): # pylint: disable=arguments-differ
        """Say nothing."""


class TrustTest(Case):
    """An API server whose authority is below another one."""

    def setUp(self):
        super().setUp()
        self.authority("root", "")
        self.authority("cluster", "root")
        self.authority("other", "root")
        self.signed("api", "cluster", "subjectAltName=IP:127.0.0.1\n")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("api.crt"), self.path("api.key"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.url = "https://127.0.0.1:%d/readyz" % server.server_address[1]

    def openssl(self, *argv):
        """Run openssl."""
        subprocess.run(["openssl"] + list(argv), check=True, cwd=self.root, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def authority(self, name, signer):
        """Make an authority, signed by another one or by itself."""
        if signer:
            self.signed(name, signer, "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")
        else:
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                         "/CN=" + name, "-days", "10", "-keyout", name + ".key", "-out", name + ".crt")

    def signed(self, name, signer, extensions):
        """Make a certificate."""
        self.write(name + ".cnf", extensions)
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     "/CN=" + name, "-keyout", name + ".key", "-out", name + ".csr")
        self.openssl("x509", "-req", "-in", name + ".csr", "-CA", signer + ".crt", "-CAkey", signer + ".key",
                     "-CAcreateserial", "-days", "5", "-extfile", name + ".cnf", "-out", name + ".crt")

    def test_authorities(self):
        """The authority that signed is enough, and no other one is."""
        for name, status in (("cluster", 200), ("root", 0), ("other", 0)):
            self.assertEqual(kaas.api_status(self.url, os.path.join(self.root, name + ".crt")), status, name)

    def test_tokens(self):
        """A node asks whether the cluster takes its token before it joins, and no longer once it is a member."""
        self.program("kubeadm", "true")

        def join(text, phase=None, ask=True):
            self.write("join.yaml", "tlsBootstrapToken: " + text)
            self.write("state.json", '{"action": "join", "phase": "%s"}' % phase if phase else "")
            got = run("kaas_kubeadm", {
                "action": "join", "config": self.path("join.yaml"), "endpoint": self.url.replace("/readyz", ""),
                "ca_file": self.path("cluster.crt"), "state_file": self.path("state.json"), "ask_for_token": ask,
                "kubeadm": self.path("bin/kubeadm"), "lock_file": self.path("lock"), "leftovers": []})
            self.assertNotIn(GOOD, str(got))
            self.assertEqual(got["changed"], bool(got["did"]))
            return got["token_wanted"], got["did"]

        other = "000000.0123456789abcdef"
        self.assertEqual(join(GOOD), (False, ["join"]))
        self.assertEqual(join(other), (True, []))
        self.assertEqual(join(other, ask=False), (False, ["join"]))
        self.assertEqual(join(other, "started"), (True, [])) # what was cut off is not reset before
        self.assertEqual(join(GOOD, "started"), (False, ["reset", "join"]))
        self.assertEqual(join(other, "done"), (False, []))
