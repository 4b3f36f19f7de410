"""A Consul on this machine, and the agent that an appliance runs next to its director."""

import base64
import hashlib
import json
import os
import secrets
import ssl
import subprocess
import threading
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from vms import VM, WORK, check, ctl, good, sh, wait

HOST = "10.89.0.1"
NAME = "server.dc1.consul"


class Consul:
    """One server with TLS, ACLs and encrypted gossip, and a server of files that has the program."""

    def __init__(self) -> None:
        self.top, self.program = f"{WORK}/consul", os.environ["APPLIANCE_TEST_CONSUL"]
        self.token, self.gossip = str(uuid.uuid4()), base64.b64encode(secrets.token_bytes(32)).decode()
        os.makedirs(self.top)
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        sh("openssl", "req", "-x509", *kind, "-subj", "/CN=consul", "-keyout", f"{self.top}/ca.key", "-out",
           f"{self.top}/ca.crt")
        sh("openssl", "req", "-x509", *kind, "-subj", f"/CN={NAME}", "-CA", f"{self.top}/ca.crt", "-CAkey",
           f"{self.top}/ca.key",
           "-addext", f"subjectAltName=DNS:{NAME},IP:{HOST}", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
           "-addext",
           "basicConstraints=critical,CA:FALSE", "-keyout", f"{self.top}/tls.key", "-out", f"{self.top}/tls.crt")
        self.files = self.serve()
        with open(f"{self.top}/server.json", "w", encoding="utf-8") as f:
            json.dump({
                "datacenter": "dc1", "node_name": "server", "server": True, "bootstrap_expect": 1, "bind_addr": HOST,
                "client_addr": HOST,
                "data_dir": f"{self.top}/data", "encrypt": self.gossip, "disable_update_check": True,
                "connect": {"enabled": False},
                "ports": {"http": -1, "https": 8501, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1},
                "tls": {"defaults": {"ca_file": f"{self.top}/ca.crt", "cert_file": f"{self.top}/tls.crt",
                                     "key_file": f"{self.top}/tls.key",
                                     "verify_outgoing": True}},
                "acl": {"enabled": True, "default_policy": "deny",
                        "tokens": {"initial_management": self.token, "agent": self.token}},
            }, f)
        log = open(f"{self.top}/log", "wb")  # pylint: disable=consider-using-with # it has it as long as it runs
        self.running = subprocess.Popen(  # pylint: disable=consider-using-with
            ["setpriv", "--pdeathsig", "KILL", self.program, "agent", "-config-file", f"{self.top}/server.json"],
            stdout=log, stderr=log)
        wait("Consul", lambda: self.get("/v1/acl/token/self"))

    def serve(self) -> ThreadingHTTPServer:
        """Serve the program over HTTPS."""
        program = self.program

        class Files(BaseHTTPRequestHandler):
            """Has one file."""

            def do_GET(self) -> None:  # pylint: disable=invalid-name
                """Send it."""
                with open(program, "rb") as f:
                    self.send_response(200)
                    self.send_header("Content-Length", str(os.fstat(f.fileno()).st_size))
                    self.end_headers()
                    while block := f.read(1 << 20):
                        self.wfile.write(block)

            def log_message(self, format: str, *args) -> None:  # pylint: disable=redefined-builtin
                """Say nothing."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.top}/tls.crt", f"{self.top}/tls.key")
        files = ThreadingHTTPServer((HOST, 0), Files)
        files.socket = context.wrap_socket(files.socket, server_side=True)
        threading.Thread(target=files.serve_forever, daemon=True).start()
        return files

    def get(self, path: str):
        """Ask Consul; return None while it does not answer."""
        context = ssl.create_default_context(cafile=f"{self.top}/ca.crt")
        context.check_hostname = False
        asked = urllib.request.Request(f"https://{HOST}:8501{path}", headers={"X-Consul-Token": self.token})
        try:
            with urllib.request.urlopen(asked, context=context, timeout=10) as got:
                return json.load(got)
        except OSError:
            return None

    def document(self, agent: bool) -> str:
        """Write the document of it, with an agent next to the director or without, and return its path."""
        with open(self.program, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        with open(f"{self.top}/ca.crt", encoding="utf-8") as f:
            authority = f.read()
        path = f"{self.top}/consul.json"
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"apiVersion": "kaas/v1", "kind": "Consul", "metadata": {"name": "dc1"}, "spec": {
                "addresses": [f"https://{HOST}:8501"], "datacenter": "dc1", "credentials": "consul-token",
                "gossip": "consul-gossip",
                "tls": {"serverName": NAME, "ca": authority}, "agents": {"director": agent, "join": [HOST], "program": {
                    "url": f"https://{HOST}:{self.files.server_port}/consul", "sha256": digest, "ca": authority,
                }},
            }}, f)
        return path

    def states(self) -> set:
        """Return how the director's service is on the nodes that agents have registered themselves."""
        found = self.get("/v1/health/service/kaas-director") or []
        return {"passing" if all(c["Status"] == "passing" for c in entry["Checks"]) else "critical"
                for entry in found if entry["Node"]["Meta"].get("kaas-node")}

    def until(self, vm: VM, when: str, state: set) -> None:
        """Wait until the director's service is so."""
        try:
            wait(when, lambda: self.states() == state)
            seen = ""
        except AssertionError as err:
            seen = f"{err}: {self.states()} {vm.on('sudo journalctl -b -u director-consul | tail -n 5').stdout}"
        check(f"Consul has the director of its agent, {when}: {', '.join(state) or 'nothing'}", not seen, seen)

    def begins(self, vm: VM) -> None:
        """Have the appliance run an agent, and look at its unit."""
        for name, text in (("consul-token", self.token), ("consul-gossip", self.gossip)):
            with open(f"{self.top}/{name}", "w", encoding="utf-8") as f:
                f.write(text)
            good(f"the credentials {name} are set",
                 ctl(vm, "provider", "credentials", "set", name, "--user", "director", "--password-file",
                     f"{self.top}/{name}"))
        good("a Consul is applied whose document asks for an agent next to the director",
             ctl(vm, "apply", "-f", self.document(True)))
        self.until(vm, "once the director has fetched the program", {"passing"})
        for what, command in (
            ("the unit of the agent runs", "systemctl is-active director-consul"),
            ("it and its program have a user of their own",
             "test $(ps -o user:20= -C consul | sort -u) = director-consul"),
            ("the firewall takes gossip", "sudo nft list set inet director gossip | grep -q 8301"),
            ("the agent has no API and no DNS", r"! sudo ss -Hltnup | grep consul | grep -v ':8301 ' | grep ."),
            ("what it is told is closed to others", "! find /data/consul -type f -readable 2>/dev/null | grep ."),
            ("it reads what it is told, and nothing of the director",
             "as='sudo nsenter -t '$(pgrep -o -x consul)' -m -S 901 -G 901 ls'; $as /data/consul && ! $as "
             "/data/director"),
            ("no unit failed next to it", "! systemctl --failed --no-legend --plain | grep ."),
        ):
            done = vm.on(command)
            check(what, done.returncode == 0, done.stdout + done.stderr)
        good("the test of the Consul is well", ctl(vm, "consul", "test", "dc1"))
        vm.on("sudo systemctl stop director", check=True)
        self.until(vm, "while the director is stopped", {"critical"})
        vm.on("sudo systemctl start director", check=True)
        vm.page()
        self.until(vm, "when it is started again", {"passing"})

    def ends(self, vm: VM) -> None:
        """Have the appliance run none any more, and end Consul."""
        good("the document asks for no agent any more", ctl(vm, "apply", "-f", self.document(False)))
        self.until(vm, "when none is asked for", set())
        wait("the unit of the agent has ended", lambda: vm.on("systemctl is-active director-consul").returncode != 0)
        done = vm.on("! systemctl is-failed director-consul && ! sudo nft list set inet director gossip | grep 8301 && "
                     "! sudo ls /data/consul/run.json")
        check("its unit ended well, and the firewall is closed again", done.returncode == 0, done.stdout + done.stderr)
        self.files.shutdown()
        self.running.terminate()
        self.running.wait(60)
