# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""Tests of what HAProxy does with the configuration of the role api_balancer, with the real program and pretended API
servers."""
import contextlib
import http.client
import http.server
import os
import random
import shutil
import ssl
import subprocess
import threading
import time

import jinja2

from support import TREE, Case

READY = (200, "ok")
STOPS = (500, "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n")
WITHOUT_ETCD = (500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n")
PATIENCE = 30


class Server:
    """A pretended API server that says how it is, and answers /slow when it is let."""

    def __init__(self, name, address, context):
        self.name, self.address, self.context = name, address, context
        self.says = READY
        self.asked, self.let = threading.Event(), threading.Event()
        self.start()

    def start(self):
        """Listen."""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers one request."""

            def do_GET(self):  # pylint: disable=invalid-name
                """Answer."""
                status, text = server.says if self.path == "/readyz" else (200, server.name)
                if self.path == "/slow":
                    server.asked.set()
                    server.let.wait(PATIENCE)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode("ascii"))

            def log_message(self, format, *args):  # pylint: disable=redefined-builtin
                """Say nothing."""

        class Listener(http.server.ThreadingHTTPServer):
            """A listener whose handshakes hold up no other client."""

            def finish_request(self, request, client_address):
                """Answer over TLS."""
                with contextlib.suppress(OSError), server.context.wrap_socket(request, server_side=True) as secured:
                    Handler(secured, client_address, self)

        self.listener = Listener((self.address, 6443), Handler)
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """Listen no more."""
        self.listener.shutdown()
        self.listener.server_close()


class BalancerTest(Case):
    """Two API servers behind HAProxy."""

    def setUp(self):
        super().setUp()
        program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
        self.assertTrue(program, "there is no haproxy: apt-get install haproxy")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-subj", "/CN=kube-apiserver", "-keyout", "key.pem", "-out", "ca.crt"], check=True,
                       cwd=self.root, stderr=subprocess.DEVNULL)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("ca.crt"), self.path("key.pem"))
        network = "127.%d.%d." % (random.randint(64, 250), random.randint(1, 250))
        self.vip = network + "9"
        self.one, self.two = (Server(name, network + last, context) for name, last in (("m1", "1"), ("m2", "2")))
        for server in (self.one, self.two):
            self.addCleanup(server.stop)
            self.addCleanup(server.let.set)
        with open(os.path.join(TREE, "roles/api_balancer/templates/haproxy.cfg.j2"), encoding="utf-8") as file:
            template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(file.read())
        text = template.render(
            api_balancer_vip=self.vip, api_balancer_port=6443, api_balancer_slow_host_factor=1,
            api_balancer_alive_port=0,
            api_balancer_members=[{"name": s.name, "address": s.address} for s in (self.one, self.two)])
        # What the test's user may not do, and what it has elsewhere.
        for ours, here in (("    user haproxy\n    group haproxy\n", ""),
                           ("/etc/haproxy/kaas-ca.crt", self.path("ca.crt")),
                           (text[text.index("# What keepalived asks"):], "")):
            self.assertIn(ours, text)
            text = text.replace(ours, here)
        # pylint: disable=consider-using-with
        haproxy = subprocess.Popen([program, "-db", "-f", self.write("haproxy.cfg", text)])
        self.addCleanup(haproxy.wait)
        self.addCleanup(haproxy.kill)
        self.until("both serve", lambda: self.serving() == {"m1", "m2"})

    def get(self, path):
        """Ask through the balancer over a connection of its own."""
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        context.check_hostname = False
        client = http.client.HTTPSConnection(self.vip, 6443, timeout=PATIENCE, context=context)
        try:
            client.request("GET", path)
            return client.getresponse().read().decode("ascii")
        finally:
            client.close()

    def serving(self):
        """Return who answers."""
        try:
            return {self.get("/") for _ in range(4)}
        except OSError:
            return set()

    def until(self, what, holds):
        """Wait until it holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), deadline, "never: " + what)
            time.sleep(0.05)

    def slow(self):
        """Ask something that the first server answers when it is let, and return where the answer will be."""
        answers = []

        def ask():
            try:
                answers.append(self.get("/slow"))
            except (OSError, http.client.HTTPException) as err:
                answers.append(repr(err))

        self.two.let.set()  # the second one answers at once
        while not self.one.asked.wait(0.5):
            threading.Thread(target=ask, daemon=True).start()
        return answers

    def test_stops(self):
        """A server that was told to stop gets no new connection, and answers what it was asked. No request fails
        meanwhile."""
        answers = self.slow()
        self.one.says = STOPS
        began = time.monotonic()
        self.until("the other one has all", lambda: self.serving() == {"m2"})
        self.assertLess(time.monotonic() - began, 5, "an API server serves for 7 s, and etcd stops after 5 s")
        self.assertNotIn("m1", answers)
        self.one.let.set()
        self.until("the answer of the first", lambda: "m1" in answers)
        self.assertLessEqual(set(answers), {"m1", "m2"})
        self.one.stop()
        self.assertEqual(self.serving(), {"m2"})
        self.one.says = WITHOUT_ETCD
        self.one.start()
        self.assertEqual(self.serving(), {"m2"})
        self.one.says = READY
        self.until("both serve again", lambda: self.serving() == {"m1", "m2"})

    def test_is_not_ready(self):
        """A server that cannot do its work loses its connections, so that its clients turn to another one."""
        answers = self.slow()
        self.one.says = WITHOUT_ETCD
        self.until("the client of the first notices", lambda: set(answers) - {"m1", "m2"})
        self.assertEqual(self.serving(), {"m2"})
