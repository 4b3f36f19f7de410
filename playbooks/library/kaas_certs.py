#!/usr/bin/python
# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

DOCUMENTATION = r"""
---
module: kaas_certs
short_description: Renews the certificates of a node that end before a time
description:
  - Which certificates are renewed is told by their ends and by who signed them, so a run that was cut off is continued
    by running again, and a second run changes nothing.
  - C(read) lists the certificates of the node and its clock. It prints no key and changes nothing.
  - C(clock) fails when the node's clock is too far from O(reference).
  - C(renew) renews what kubeadm looks after on a master, after a backup of the PKI directory and the kubeconfigs.
  - C(restart) restarts the static pods whose certificates, or keys for service account tokens, are younger than their
    containers, and waits until they serve with them.
  - C(request) makes keys and requests for the kubelet's certificates that are due. The keys do not leave the node.
  - C(sign) signs requests of a kubelet with the cluster's CA. It runs on a master, and signs nothing but the names and
    the address that it is given.
  - C(install) puts the signed certificates in place and restarts the kubelet.
options:
  action:
    description: What to do.
    type: str
    choices: [read, clock, renew, restart, request, sign, install]
    required: true
  before:
    description: What ends before this time is renewed; seconds since 1970.
    type: int
    default: 0
  reference:
    description: The time by the clock of the host that runs the playbook, in seconds since 1970.
    type: int
    default: 0
  skew:
    description: Seconds that the node's clock may be off.
    type: int
    default: 300
  components:
    description: Static pods that C(restart) looks at, in their order.
    type: list
    elements: str
    default: []
  notice:
    description:
      - Seconds for which the API server says that it stops before C(restart) stops etcd.
      - 0 where no other API server answers instead.
    type: int
    default: 0
  config:
    description: kubeadm's configuration.
    type: path
    default: /etc/kubernetes/kaas/certs.yaml
  requests:
    description: The requests that C(sign) signs, by kind (client or server), in PEM.
    type: dict
    default: {}
  certificates:
    description: The certificates that C(install) puts in place, by kind, in PEM.
    type: dict
    default: {}
  node:
    description: Name of the node.
    type: str
    default: ""
  address:
    description: The node's address.
    type: str
    default: ""
  validity:
    description: Seconds that certificates of kubelets are good for.
    type: int
    default: 31536000
  keep:
    description: How many backups are kept.
    type: int
    default: 3
  kubernetes_dir:
    description: Where Kubernetes keeps its files.
    type: path
    default: /etc/kubernetes
  kubelet_dir:
    description: Where the kubelet keeps its files.
    type: path
    default: /var/lib/kubelet
  kubeadm:
    description: The program.
    type: str
    default: kubeadm
  crictl:
    description: The program.
    type: str
    default: crictl
  openssl:
    description: The program.
    type: str
    default: openssl
  systemctl:
    description: The program.
    type: str
    default: systemctl
  timeout:
    description: Seconds after which a wait is given up.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
author:
  - The director authors
"""

EXAMPLES = r"""
- name: Renew what ends within the month
  kaas_certs:
    action: renew
    before: 1767225600
"""

RETURN = r"""
did:
  description: What was renewed or restarted, or would be.
  type: list
  elements: str
  returned: always
certificates:
  description: What was read (with name, file, subject, issuer, serial and ends), or signed (PEM by kind).
  type: raw
  returned: read, sign
requests:
  description: PEM by kind; empty when nothing is due.
  type: dict
  returned: request
clock:
  description: The node's time in seconds since 1970.
  type: int
  returned: read, clock
"""

import json
import os
import re
import shutil
import socket
import ssl
import tarfile
import tempfile
import threading
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.kaas import (
    Failure, api_ready, clean, existing, kubeadm_says, locked, run, wait_for, write_atomically)
from ansible.module_utils.kaas_pem import BLOCK, pem_of, signed_by, text_of

# What kubeadm renews: its name for it, the file, the static pod that uses it.
KUBEADM = [
    ("etcd-server", "pki/etcd/server.crt", "etcd"),
    ("etcd-peer", "pki/etcd/peer.crt", "etcd"),
    ("etcd-healthcheck-client", "pki/etcd/healthcheck-client.crt", ""),
    ("apiserver", "pki/apiserver.crt", "kube-apiserver"),
    ("apiserver-etcd-client", "pki/apiserver-etcd-client.crt", "kube-apiserver"),
    ("apiserver-kubelet-client", "pki/apiserver-kubelet-client.crt", "kube-apiserver"),
    ("front-proxy-client", "pki/front-proxy-client.crt", "kube-apiserver"),
    ("admin.conf", "admin.conf", ""),
    ("super-admin.conf", "super-admin.conf", ""),
    ("controller-manager.conf", "controller-manager.conf", "kube-controller-manager"),
    ("scheduler.conf", "scheduler.conf", "kube-scheduler"),
]
# What else static pods read at their start alone.
READS = {
    "etcd": ["pki/etcd/ca.crt"],
    "kube-apiserver": ["pki/sa.pub", "pki/sa.key", "pki/ca.crt", "pki/etcd/ca.crt", "pki/front-proxy-ca.crt"],
    "kube-controller-manager": ["pki/sa.key", "pki/ca.crt", "pki/ca.key", "pki/ca-signing.crt",
                                "pki/front-proxy-ca.crt"],
}
# The authority of each: what was signed up to the authority's own end cannot be made to last longer.
AUTHORITIES = {"etcd": "pki/etcd/ca.crt", "front-proxy-client": "pki/front-proxy-ca.crt"}
# Where components serve, and with which file.
SERVED = {"etcd": (2379, "pki/etcd/server.crt"), "kube-apiserver": (6443, "pki/apiserver.crt")}
USAGE = {"client": "clientAuth", "server": "serverAuth"}
PAUSE = 1.0
SLACK = 60  # seconds by which an end may miss its authority's


class Certs:
    """The certificates of a node."""

    def __init__(self, args, check):
        self.args, self.check = args, check
        self.did = []

    def path(self, *parts):
        """Return a path of Kubernetes."""
        return os.path.join(self.args["kubernetes_dir"], *parts)

    def pki(self, name):
        """Return the path of one of the kubelet's files."""
        return os.path.join(self.args["kubelet_dir"], "pki", name)

    def openssl(self, *argv, stdin=None):
        """Run openssl and return what it says."""
        rc, out, err = run([self.args["openssl"]] + list(argv), stdin=stdin, timeout=60)
        if rc != 0:
            raise Failure("openssl %s failed: %s" % (argv[0], clean(err, 500)))
        return out

    def about(self, pem):
        """Return subject, issuer, serial and end of a certificate."""
        out = self.openssl("x509", "-noout", "-subject", "-issuer", "-serial", "-enddate", "-nameopt", "RFC2253",
                           stdin=pem)
        fields = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        return {"subject": fields["subject"].strip(), "issuer": fields["issuer"].strip(),
                "serial": fields["serial"].strip().lower(),
                "ends": int(ssl.cert_time_to_seconds(fields["notAfter"].strip()))}

    def due(self, pem, authority):
        """Say whether a certificate has to be renewed: it ends too soon, and a new one would last longer, or another
        authority signed it."""
        if not pem:
            return False
        last = pem_of(self.path(authority))
        if last and not signed_by(self.args["openssl"], last, pem):
            return True
        ends = self.about(pem)["ends"]
        if ends >= self.args["before"]:
            return False
        return not last or ends + SLACK < self.about(last)["ends"]

    # actions

    def read(self):
        """Return what there is."""
        files = existing([self.path("pki/*.crt"), self.path("pki/etcd/*.crt"), self.path("*.conf"),
                          self.pki("kubelet-client-current.pem"), self.pki("kubelet-server-current.pem")])
        found = [(file, pem_of(file)) for file in files]
        return [dict(self.about(pem), file=file, name=os.path.basename(file)) for file, pem in found if pem]

    def clock(self):
        """Compare the clocks."""
        off = int(time.time()) - self.args["reference"]
        if abs(off) > self.args["skew"]:
            raise Failure("the clock of the node is off by %d s, and certificates that are made by it would not be "
                          "good elsewhere" % off,
                          "Set the clock (`chronyc makestep`), and run again")

    def kubeadm_due(self):
        """Return (name, file) of what kubeadm has to renew."""
        due = []
        for name, file, _ in KUBEADM:
            authority = AUTHORITIES.get(name) or (AUTHORITIES["etcd"] if "etcd" in name else "pki/ca.crt")
            if self.due(pem_of(self.path(file)), authority):
                due.append((name, file))
        return due

    def backup(self):
        """Keep what is replaced, and not more than the newest backups."""
        directory = self.path("kaas", "backups")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chmod(directory, 0o700)
        name = os.path.join(directory, "pki-%s.tar" % time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        fd, temporary = tempfile.mkstemp(prefix=".pki-", dir=directory)
        try:
            with os.fdopen(fd, "wb") as file:
                with tarfile.open(fileobj=file, mode="w") as archive:
                    for path in existing([self.path("pki"), self.path("*.conf")]):
                        archive.add(path, arcname=os.path.relpath(path, self.args["kubernetes_dir"]))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, name)
        except BaseException:
            os.unlink(temporary)
            raise
        for old in existing([os.path.join(directory, "pki-*.tar")])[:-self.args["keep"]]:
            os.unlink(old)

    def renew(self):
        """Renew what kubeadm looks after."""
        due = self.kubeadm_due()
        self.did = [name for name, _ in due]
        if self.check or not due:
            return
        with locked("/run/lock/kaas-kubeadm.lock" if self.args["kubernetes_dir"] == "/etc/kubernetes"
                    else self.path("kaas.lock"),
                    self.args["timeout"]) as lock:
            self.backup()
            for name, file in due:
                was = pem_of(self.path(file))
                rc, out, err = run([self.args["kubeadm"], "certs", "renew", name, "--config", self.args["config"]],
                                   timeout=self.args["timeout"], pass_fds=(lock,))
                if rc != 0:
                    raise Failure("kubeadm certs renew %s failed: %s" % (name, kubeadm_says(out, err)),
                                  "What was renewed stays renewed; run again when the cause is gone")
                if pem_of(self.path(file)) == was:
                    raise Failure("kubeadm did not renew %s" % name, "Its authority's key has to be on the master")

    def containers(self, component):
        """Return (id, when it was made) of the running containers of a static pod."""
        rc, out, err = run([self.args["crictl"], "ps", "--state", "Running", "--label",
                            "io.kubernetes.container.name=" + component, "--output", "json"], timeout=60)
        if rc != 0:
            raise Failure("the container runtime does not answer: %s" % clean(err or out, 500),
                          "Look at `systemctl status containerd`")
        return [(item["id"], int(item["createdAt"]) / 1e9) for item in json.loads(out).get("containers") or []]

    def younger(self, component):
        """Return when the newest certificate or key of a static pod was written."""
        files = [self.path(file) for _, file, user in KUBEADM if user == component]
        files += [self.path(file) for file in READS.get(component, [])]
        return max((os.stat(file).st_mtime for file in files if os.path.exists(file)), default=0.0)

    def serves(self, component):
        """Say whether a component runs with its newest certificates, and shows the one in its file."""
        running = self.containers(component)
        since = self.younger(component)
        if not running or any(made < since for _, made in running):
            return False
        if component not in SERVED or not self.args["address"]:
            return True
        port, file = SERVED[component]
        if shown(self.args["address"], port) != ssl.PEM_cert_to_DER_cert(pem_of(self.path(file))):
            return False
        host = "[%s]" % self.args["address"] if ":" in self.args["address"] else self.args["address"]
        return component != "kube-apiserver" or api_ready("https://%s:%d" % (host, port), self.path("pki/ca.crt"))

    def stop(self, container):
        """Stop a container. Its kubelet starts another one."""
        return run([self.args["crictl"], "stop", "--timeout", "30", container], timeout=120)

    def give_notice(self):
        """Have the API server stop, and return who waits for its end.

        First it only says that it is not ready, so that balancers turn to others: no request shall meet an etcd that
        is away. Whatever becomes of this, the kubelet starts the API server again.
        """
        leaving = []
        if self.args["notice"]:
            for name, _ in self.containers("kube-apiserver"):
                leaving.append(threading.Thread(target=self.stop, args=(name,), daemon=True))
        for thread in leaving:
            thread.start()
        if leaving:
            time.sleep(self.args["notice"])
        return leaving

    def restart(self):
        """Restart static pods that run with older certificates."""
        for component in self.args["components"]:
            since = self.younger(component)
            old = [name for name, made in self.containers(component) if made < since]
            if old:
                self.did.append(component)
            if self.check:
                continue
            leaving = self.give_notice() if old and component == "etcd" else []
            for name in old:
                rc, out, err = self.stop(name)
                if rc != 0 and "not found" not in err:
                    raise Failure("%s cannot be stopped: %s" % (component, clean(err or out, 500)))
            for thread in leaving:
                thread.join()
            # A kubelet that was killed a moment ago starts nothing, so the wait belongs to a run that stopped nothing
            # too.
            if not wait_for(lambda c=component: self.serves(c), self.args["timeout"], pause=PAUSE):
                raise Failure("%s does not run with its new certificates within %d s"
                              % (component, self.args["timeout"]),
                              "Look at `crictl ps -a` and `journalctl -u kubelet` on the node")

    # kubelets

    def current(self, kind):
        """Return the path of the kubelet's certificate."""
        return self.pki("kubelet-%s-current.pem" % kind)

    def request(self):
        """Make keys and requests for what is due."""
        requests = {}
        for kind in sorted(USAGE):
            pem = pem_of(self.current(kind))
            authority = "pki/ca.crt" if os.path.exists(self.path("pki/ca.crt")) else "kaas/ca.crt"
            if not self.due(pem, authority):
                continue
            self.did.append("kubelet-" + kind)
            if self.check:
                continue
            key = self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout")
            write_atomically(self.pki("kaas-%s.key" % kind), key.encode("ascii"), 0o600)
            requests[kind] = self.openssl("req", "-new", "-key", self.pki("kaas-%s.key" % kind),
                                          "-subj", "/O=system:nodes/CN=system:node:" + self.args["node"])
        return requests

    def sign(self):
        """Sign requests of a kubelet."""
        out = {}
        for kind, pem in sorted(self.args["requests"].items()):
            if kind not in USAGE:
                raise Failure("there is no certificate of the kind %s" % kind)
            self.did.append("kubelet-" + kind)
            if not self.check:
                out[kind] = self.signed(kind, pem)
        return out

    def signed(self, kind, pem):
        """Return a certificate of the cluster's CA for the request's key, with the subject and names that were
        given."""
        node, address = self.args["node"], self.args["address"]
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", node) or not re.fullmatch(r"[0-9a-fA-F.:]+", address):
            raise Failure("%r at %r is no node" % (node, address))
        now = int(time.time())
        ends = min(now + self.args["validity"], self.about(pem_of(self.path("pki/ca.crt")))["ends"])
        directory = tempfile.mkdtemp(prefix="kaas-certs-")
        try:
            def put(name, text):
                with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                    file.write(text)
                return os.path.join(directory, name)
            names = "subjectAltName = DNS:%s,IP:%s\n" % (node, address) if kind == "server" else ""
            config = put("ca.cnf", (
                "[ca]\ndefault_ca = kaas\n[kaas]\nnew_certs_dir = %s\ndatabase = %s\nserial = %s\npolicy = "
                "any\ndefault_md = sha256\nunique_subject = no\n"
                "copy_extensions = none\n[any]\norganizationName = optional\ncommonName = supplied\n"
                "[v3]\nbasicConstraints = critical,CA:FALSE\nkeyUsage = critical,digitalSignature\nextendedKeyUsage = "
                "%s\n"
                "authorityKeyIdentifier = keyid\n%s") % (directory, put("index", ""),
                                                         put("serial", "01" + os.urandom(15).hex()), USAGE[kind],
                                                         names))
            self.openssl("ca", "-batch", "-notext", "-config", config, "-extensions", "v3",
                         "-cert", self.path("pki/ca-signing.crt") if os.path.exists(self.path("pki/ca-signing.crt"))
                         else self.path("pki/ca.crt"),
                         "-keyfile", self.path("pki/ca.key"), "-subj", "/O=system:nodes/CN=system:node:" + node,
                         "-startdate", stamp(now - 300), "-enddate", stamp(ends),
                         "-in", put("request.pem", pem), "-out", os.path.join(directory, "out.pem"))
            return text_of(os.path.join(directory, "out.pem"))
        finally:
            shutil.rmtree(directory)

    def install(self):
        """Put certificates in place while the kubelet is stopped. One that was stopped by a run that was cut off is
        started."""
        given = self.args["certificates"]
        active = run([self.args["systemctl"], "is-active", "--quiet", "kubelet"], timeout=60)[0] == 0
        self.did = ["kubelet-" + kind for kind in sorted(given)] + (["kubelet"] if given or not active else [])
        if self.check or not self.did:
            return
        now = time.gmtime()
        links = []
        for kind, pem in sorted(given.items()):
            key = text_of(self.pki("kaas-%s.key" % kind))
            public = self.openssl("pkey", "-pubout", stdin=key)
            if self.openssl("x509", "-noout", "-pubkey", stdin=pem) != public:
                raise Failure("the %s certificate is not that of the key on the node" % kind, "Run again")
            name = "kubelet-%s-%s.pem" % (kind, time.strftime("%Y-%m-%d-%H-%M-%S", now))
            write_atomically(self.pki(name), (pem + key).encode("ascii"), 0o600)
            links.append((kind, name))
        if links:
            self.systemctl("stop")
        for kind, name in links:
            temporary = self.pki(".kaas-link")
            if os.path.lexists(temporary):
                os.unlink(temporary)
            os.symlink(self.pki(name), temporary)
            os.replace(temporary, self.current(kind))
            os.unlink(self.pki("kaas-%s.key" % kind))
        self.systemctl("start")
        if "server" in given and self.args["address"]:
            wanted = ssl.PEM_cert_to_DER_cert(BLOCK.search(given["server"]).group(0))
            if not wait_for(lambda: shown(self.args["address"], 10250) == wanted, self.args["timeout"], pause=PAUSE):
                raise Failure("the kubelet does not serve with its new certificate within %d s" % self.args["timeout"],
                              "Look at `journalctl -u kubelet` on the node")

    def systemctl(self, verb):
        """Stop or start the kubelet."""
        rc, out, err = run([self.args["systemctl"], verb, "kubelet"], timeout=self.args["timeout"])
        if rc != 0:
            raise Failure("the kubelet does not %s: %s" % (verb, clean(err or out, 500)),
                          "Look at `journalctl -u kubelet` on the node")


def stamp(seconds):
    """Return a time as openssl ca takes it."""
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds))


def shown(address, port):
    """Return the certificate that is shown there, None when there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is compared with a file
    try:
        with socket.create_connection((address, port), timeout=5) as raw, context.wrap_socket(raw) as tls:
            return tls.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["read", "clock", "renew", "restart", "request", "sign", "install"],
                       "required": True},
            "before": {"type": "int", "default": 0},
            "reference": {"type": "int", "default": 0},
            "skew": {"type": "int", "default": 300},
            "components": {"type": "list", "elements": "str", "default": []},
            "notice": {"type": "int", "default": 0},
            "config": {"type": "path", "default": "/etc/kubernetes/kaas/certs.yaml"},
            "requests": {"type": "dict", "default": {}},
            "certificates": {"type": "dict", "default": {}},
            "node": {"type": "str", "default": ""},
            "address": {"type": "str", "default": ""},
            "validity": {"type": "int", "default": 31536000},
            "keep": {"type": "int", "default": 3},
            "kubernetes_dir": {"type": "path", "default": "/etc/kubernetes"},
            "kubelet_dir": {"type": "path", "default": "/var/lib/kubelet"},
            "kubeadm": {"type": "str", "default": "kubeadm"},
            "crictl": {"type": "str", "default": "crictl"},
            "openssl": {"type": "str", "default": "openssl"},
            "systemctl": {"type": "str", "default": "systemctl"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True)
    certs = Certs(module.params, module.check_mode)
    answer = {}
    try:
        action = module.params["action"]
        found = getattr(certs, action)()
        if action in ("read", "sign"):
            answer["certificates"] = found
        if action == "request":
            answer["requests"] = found
        if action in ("read", "clock"):
            answer["clock"] = int(time.time())
    except Failure as err:
        module.fail_json(changed=bool(certs.did) and not module.check_mode, did=certs.did, **err.result())
    module.exit_json(changed=bool(certs.did) and module.params["action"] in ("renew", "restart", "request", "install"),
                     did=certs.did, **answer)


if __name__ == "__main__":
    main()
