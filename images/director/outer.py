"""A director outside of the appliance that makes, upgrades and deletes the VM of one by plans, and is killed
meanwhile."""

import json
import os
import signal
import subprocess

from vms import IMAGE, PASSWORD, ROOT, VM, WORK, check, ctl, good, sh, trusted_key, wait

TOP = f"{WORK}/outer"
NAME = "inner.example.org"
MODELS = """apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: libvirt, libvirt: {hosts: [{name: lab, uri: "qemu:///system", pool: default}], diskCache: unsafe}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: directors}
spec: {provider: lab, mode: open, cidr: 10.87.0.0/24, gateway: 10.87.0.1, pool: {from: 10.87.0.10, to: 10.87.0.20}}
---
apiVersion: kaas/v1
kind: Director
metadata: {name: inner}
spec:
  provider: lab
  network: directors
  hostname: %s
  dataDisk: 8GiB
  image: %s
  credentials: inner-admin
"""


def models(image: str, **more: str) -> str:
    """Return the documents with the VM of that image."""
    return MODELS % (NAME, json.dumps({"source": image, "sha256": sh("sha256sum", image).stdout.split()[0], **more}))


class Outer:
    """The director that makes the other one's VM. It runs on this machine, next to libvirt."""

    def __init__(self) -> None:
        os.makedirs(TOP)
        for name, text in {
            "password": PASSWORD + "\n",
            "director.yaml": json.dumps({
                "stateDir": f"{TOP}/state", "listen": "127.0.0.1:8443", "registryListen": "127.0.0.1:5000",
                "address": "10.87.0.1",
                "names": ["127.0.0.1"], "imageDirs": [os.path.dirname(IMAGE), TOP], "trustedKeys": [trusted_key()],
                "adminPasswordFile": f"{TOP}/password",
            }),
            "models.yaml": models(IMAGE),
        }.items():
            with open(f"{TOP}/{name}", "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(f"{TOP}/{name}", 0o600)
        self.vm = VM("outer", "127.0.0.1", "")  # for directorctl alone
        self.program = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with open(f"{TOP}/log", "ab") as log:
            self.program = subprocess.Popen(  # pylint: disable=consider-using-with # until it is killed
                ["setpriv", "--pdeathsig", "KILL", f"{ROOT}/bin/director", "-config", f"{TOP}/director.yaml"],
                stdout=log, stderr=log)
        wait("the outer director", lambda: sh("curl", "-fsk", "https://127.0.0.1:8443/readyz",
                                              check=False).returncode == 0)

    def stop(self, how: int) -> None:
        """End it by a signal."""
        self.program.send_signal(how)
        self.program.wait(60)

    def running(self, kind: str) -> bool:
        """Report whether a step of that kind runs in the newest plan."""
        shown = ctl(self.vm, "plans", "show", self.plan(), "-o", "json")
        return shown.returncode == 0 and any(
            s["id"].startswith(kind + "/") and s["status"] == "running" for s in json.loads(shown.stdout)["steps"])

    def inner(self) -> dict:
        """Return what it knows of the other one."""
        return json.loads(ctl(self.vm, "director", "list", "-o", "json").stdout)["items"][0]

    def plan(self) -> str:
        """Return the id of the newest plan."""
        return self.inner()["plan"]


def outer() -> None:
    """Make the VM of a director and upgrade it both ways, over a kill -9 each; log in there; delete it, and keep its
    data."""
    o = Outer()
    try:
        makes(o)
        upgrades(o)
        goes_back(o)
        deletes(o)
    finally:
        o.stop(signal.SIGTERM)


def makes(o: Outer) -> None:
    """Make it, and look whether it is what was asked for."""
    ca = f"{TOP}/state/tls/ca.crt"
    sh("env", f"DIRECTOR_CONFIG={WORK}/outer.yaml", f"{ROOT}/bin/directorctl", "login", "--server",
       "https://127.0.0.1:8443", "--ca-file", ca,
       "--user", "admin", "--password-file", f"{TOP}/password")
    good("the first password is sealed", ctl(
        o.vm, "provider", "credentials", "set", "inner-admin", "--user", "admin", "--password-file", f"{TOP}/password"))
    good("the documents are stored", ctl(o.vm, "apply", "-f", f"{TOP}/models.yaml"))
    good("the plan is started", ctl(o.vm, "director", "create", "inner", "--yes"))
    wait("the outer director waits for the other one", lambda: o.running("director.ready"))
    o.stop(signal.SIGKILL)
    o.start()
    good("the plan goes on after a kill -9, to its end", ctl(o.vm, "follow", o.plan()))
    good("the other director is ready", ctl(o.vm, "director", "list"), "ready")
    with open(f"{TOP}/inner.crt", "w", encoding="utf-8") as f:
        f.write(ctl(o.vm, "director", "certificate", "inner").stdout)
    good("it proves itself by the certificate that it was given, and takes the first password", log_in(o), '"token"')
    disks = sh("virsh", "domblklist", "--details", "inner")
    good("its VM has no seed any more", disks, "disk")
    check("and no CD", not any("cdrom" in line and ".iso" in line for line in disks.stdout.splitlines()), disks.stdout)


def log_in(o: Outer) -> subprocess.CompletedProcess:
    """Log in at the inner director, which has to show the certificate that it was given."""
    return sh("curl", "-sS", "--cacert", f"{TOP}/inner.crt", "--resolve", f"{NAME}:443:{o.inner()['address']}", "-H",
              "Content-Type: application/json", "-d", "@-", f"https://{NAME}/api/v1/login", check=False,
              text=json.dumps({"user": "admin", "password": PASSWORD}))


def backing() -> str:
    """Return which file the root disk of the VM is of."""
    root = sh("virsh", "-q", "domblklist", "inner").stdout.split()[1]
    return json.loads(sh("qemu-img", "info", "-U", "--output", "json", root).stdout)["full-backing-filename"]


def begins(o: Outer, image: str, kind: str) -> None:
    """Have the VM made of the image, and kill the outer director when a step of the kind runs."""
    with open(f"{TOP}/models.yaml", "w", encoding="utf-8") as f:
        f.write(models(image, unsigned="it is made in this test"))
    good("another image is asked for", ctl(o.vm, "apply", "-f", f"{TOP}/models.yaml"))
    good("the list says that the VM is of another one", ctl(o.vm, "director", "list"), "outdated")
    good("the upgrade is started", ctl(o.vm, "director", "upgrade", "inner", "--yes"),
         "Upgrade director inner to image")
    wait(f"a step {kind} runs", lambda: o.running(kind))
    o.stop(signal.SIGKILL)
    o.start()


def upgrades(o: Outer) -> None:
    """Make the VM again of another image: the same system in another file."""
    sh("qemu-img", "convert", "-O", "qcow2", IMAGE, f"{TOP}/next.qcow2")
    before = backing()
    begins(o, f"{TOP}/next.qcow2", "director.ready")
    good("the upgrade goes on after a kill -9, to its end", ctl(o.vm, "follow", o.plan()))
    check("the root disk is of the other image", backing() != before, before)
    good("it has the data of before: the certificate, and the password", log_in(o), '"token"')
    check("it is as its document says", "outdated" not in ctl(o.vm, "director", "list").stdout)
    listed = ctl(o.vm, "disks", "list")
    check("no copy is left", listed.returncode == 0 and "inner" not in listed.stdout, listed.stdout + listed.stderr)


def goes_back(o: Outer) -> None:
    """Make it of an image that does not start: the former one comes back."""
    with open(f"{TOP}/blank", "wb") as f:  # a boot sector with no program in it
        f.write(bytes(510) + b"\x55\xaa")
        f.truncate(7 << 30)
    sh("qemu-img", "convert", "-f", "raw", "-O", "qcow2", f"{TOP}/blank", f"{TOP}/blank.qcow2")
    before = backing()
    begins(o, f"{TOP}/blank.qcow2", "vm.remove-undo")
    done = ctl(o.vm, "follow", o.plan())
    seen = done.stdout + done.stderr
    check("an image that does not start is given up, over a kill -9 of the way back",
          done.returncode != 0 and "inner: rolled back, and in use" in seen, seen)
    check("the root disk is of the former image", backing() == before, before)
    good("it has the data of before", log_in(o), '"token"')
    good("the list says that the VM is not as its document says", ctl(o.vm, "director", "list"), "ready, outdated")
    listed = ctl(o.vm, "disks", "list")
    check("no copy is left", listed.returncode == 0 and "inner" not in listed.stdout, listed.stdout + listed.stderr)
    asked = ctl(o.vm, "director", "upgrade", "inner")  # nobody answers, so it is not started
    check("the next plan says so", "began the same upgrade" in asked.stdout, asked.stdout + asked.stderr)


def deletes(o: Outer) -> None:
    """Delete it."""
    good("it is deleted", ctl(o.vm, "director", "delete", "inner", "--yes", "--wait"))
    check("its VM is gone", sh("virsh", "domstate", "inner", check=False).returncode != 0)
    good("its data disk is kept", ctl(o.vm, "disks", "list"), "inner")
    good("nothing is left that no one owns", ctl(o.vm, "vms", "audit"))
