# Copyright The director authors. SPDX-License-Identifier: Apache-2.0
"""What the modules in library/ share: running programs, probing an API server, waiting with a deadline."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import re
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")
CERTIFICATE_KEY = re.compile(r"\b[0-9a-f]{64}\b")


class Failure(Exception):
    """Something went wrong; the message is for people, hint says what to do next."""

    def __init__(self, msg, hint="", **details):
        super().__init__(msg)
        self.hint = hint
        self.details = details

    def result(self):
        """Return the arguments of fail_json."""
        text = str(self)
        if self.hint:
            text = "%s. %s" % (text.rstrip("."), self.hint)
        return dict(self.details, msg=text, hint=self.hint)


def clean(text, limit=4000):
    """Return the end of text, at most limit characters, without bootstrap tokens, certificate keys and progress
    dots."""
    text = CERTIFICATE_KEY.sub("<key>", TOKEN.sub("<token>", text or "")).strip()
    return text if len(text) <= limit else "..." + text[-limit:]


def run(argv, stdin=None, timeout=None, env=None, pass_fds=()):
    """Run argv and return (rc, stdout, stderr). A timeout is rc 124, a missing program rc 127."""
    environment = dict(os.environ, LC_ALL="C")
    environment.setdefault("HOME", "/root")
    if env:
        environment.update(env)
    try:
        # Arguments are a list and no shell is involved.
        done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=timeout, env=environment, pass_fds=pass_fds, check=False)
    except subprocess.TimeoutExpired as err:
        def text(data):
            return data.decode("utf-8", "replace") if isinstance(data, bytes) else (data or "")
        return 124, text(err.stdout), "%s\n%s did not end within %d s" % (text(err.stderr), argv[0], timeout)
    except OSError as err:
        if err.errno in (errno.ENOENT, errno.EACCES):
            return 127, "", "%s cannot be run: %s" % (argv[0], err.strerror)
        raise
    return done.returncode, done.stdout, done.stderr


def kubeadm_says(out, err):
    """Return the lines of kubeadm's output that say why it failed."""
    lines = [line.strip() for line in (err or out or "").splitlines() if line.strip()]
    telling = [line for line in lines if "[ERROR" in line or line.startswith(("error:", "error ", "Error"))
               or "did not end within" in line or "cannot be run" in line]
    return clean("; ".join(telling or lines[-5:]) or "no output", 1500)


def trusting(ca_file):
    """Return what trusts the authorities of a file, also those that another one signed."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags |= getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000) # the name is there from Python 3.10 on
    return context


def api_status(url, ca_file, timeout=10, token=""):
    """Return the HTTP status that url answers, 0 when nothing answers with a certificate that ca_file signed. A token
    is shown to who has such a certificate alone."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                         urllib.request.HTTPSHandler(context=trusting(ca_file)))
    try:
        asked = urllib.request.Request(url, headers={"Authorization": "Bearer " + token} if token else {})
        with opener.open(asked, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as err:
        return err.code
    except (OSError, ssl.SSLError, ValueError):
        return 0


def api_ready(server, ca_file):
    """Say whether the API server is ready. One that does not let strangers ask counts as ready when it answers at
    all."""
    if not os.path.exists(ca_file):
        return False
    return api_status(server.rstrip("/") + "/readyz", ca_file) in (200, 401, 403)


def wait_for(condition, timeout, pause=2.0, clock=time.monotonic, sleep=time.sleep):
    """Call condition until it returns something true or timeout seconds have passed; return its last answer."""
    deadline = clock() + timeout
    while True:
        answer = condition()
        if answer or clock() >= deadline:
            return answer
        sleep(min(pause, max(0.0, deadline - clock())))


@contextlib.contextmanager
def locked(path, timeout):
    """Hold an exclusive lock on path. Children that get the yielded descriptor keep the lock when this process dies."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def attempt():
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    try:
        if not wait_for(attempt, timeout):
            raise Failure("an earlier run still works on this node (%s is locked after %d s)" % (path, timeout),
                          "Wait for it to end, or end it with `fuser -k %s`, and run again" % path)
        yield fd
    finally:
        os.close(fd)


def read_json(path):
    """Return the object in path, None when there is no file or it is not whole."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def local_etcd(program, kubernetes_dir, seconds, *argv):
    """Run etcdctl against the member of this master and return (rc, stdout, stderr)."""
    pki = os.path.join(kubernetes_dir, "pki")
    return run(
        [program, "--endpoints=https://127.0.0.1:2379", "--cacert=" + os.path.join(pki, "etcd", "ca.crt"),
         "--cert=" + os.path.join(pki, "apiserver-etcd-client.crt"),
         "--key=" + os.path.join(pki, "apiserver-etcd-client.key"), "--command-timeout=%ds" % seconds, *argv],
        timeout=seconds + 20, env={"ETCDCTL_API": "3"})


def write_atomically(path, data, mode):
    """Replace path by data (bytes): a reader, also one after a crash, sees the old content or the new."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=".kaas-", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def existing(patterns):
    """Return the paths that exist among patterns (shell wildcards allowed), sorted, links not followed."""
    found = set()
    for pattern in patterns:
        found.update(glob.glob(pattern) if glob.has_magic(pattern) else ([pattern] if os.path.lexists(pattern) else []))
    return sorted(found)


def readiness(node):
    """Return why a node is not ready, nothing when it is."""
    ready = [item for item in node.get("status", {}).get("conditions", []) if item["type"] == "Ready"]
    if not ready:
        return "no condition yet"
    return "" if ready[0]["status"] == "True" else ready[0].get("message") or ready[0].get("reason") or "not ready"


def cluster_args(timeout):
    """Return the arguments of a module that talks to the cluster through kubectl on a master."""
    return {
        "kubeconfig": {"type": "path", "default": "/etc/kubernetes/admin.conf"},
        "kubectl": {"type": "str", "default": "kubectl"},
        "timeout": {"type": "int", "default": timeout},
    }


def no_cluster_yet(module):
    """Say whether check mode looks at a master that is none yet, so that nothing can be asked."""
    return module.check_mode and not os.path.exists(module.params["kubeconfig"])


class Kubectl:
    """kubectl with one kubeconfig; every call is retried while the API server is not reachable, until the deadline."""

    GONE = ("connection refused", "was refused", "i/o timeout", "TLS handshake timeout", "EOF",
            "etcdserver: request timed out",
            "etcdserver: leader changed", "connection reset", "context deadline exceeded", "net/http: request canceled",
            "the server is currently unable to handle the request", "ServiceUnavailable", "too many requests",
            "unable to return a response in the time allotted", "no route to host", "http2: client connection lost",
            "InternalError",
            # The administrator may do everything: an API server that says otherwise has not read its rules yet.
            'forbidden: User "kubernetes-admin" cannot')

    def __init__(self, program, kubeconfig, timeout, clock=time.monotonic, sleep=time.sleep):
        self.program, self.kubeconfig = program, kubeconfig
        self.clock, self.sleep = clock, sleep
        self.deadline = clock() + timeout

    @classmethod
    def of(cls, args, more=0):
        """Return a Kubectl for the arguments of cluster_args, with a deadline that many seconds later than their
        timeout."""
        return cls(args["kubectl"], args["kubeconfig"], args["timeout"] + more)

    def get(self, *argv):
        """Return objects."""
        return json.loads(self.do("get", "-o", "json", *argv))

    def find(self, kind, name, namespace=""):
        """Return one object, None when there is none."""
        out = self.do("get", kind, name, "--ignore-not-found", "-o", "json", *(["-n", namespace] if namespace else []))
        return json.loads(out) if out.strip() else None

    def passing(self, rc, err):
        """Say whether a failed call may succeed when it is repeated."""
        return rc == 124 or any(word in err for word in self.GONE)

    def left(self):
        """Return the seconds until the deadline, never below ten: a call may take that long on a busy node."""
        return max(10.0, self.deadline - self.clock())

    def over(self):
        """Say whether the deadline has passed."""
        return self.clock() >= self.deadline

    def call(self, *argv, stdin=None, timeout=None, env=None):
        """Run kubectl once and return (rc, stdout, stderr)."""
        return run([self.program, "--kubeconfig", self.kubeconfig] + list(argv), stdin=stdin, env=env,
                   timeout=min(self.left(), timeout) if timeout else self.left())

    def do(self, *argv, stdin=None, what="", env=None, fine=(0,)):
        """Run kubectl, again while only the way to the server fails, and return stdout; raise Failure when its code is
        none of fine."""
        while True:
            rc, out, err = self.call(*argv, stdin=stdin, env=env)
            if rc in fine:
                return out
            passing = self.passing(rc, err)
            if not passing or self.over():
                raise Failure("%s failed: %s" % (what or "kubectl " + " ".join(argv), clean(err or out, 1500)),
                              "The API server did not answer in time: look at `crictl ps -a` on a master" if passing
                              else "", rc=rc, stderr=clean(err))
            self.sleep(min(3.0, self.left()))
