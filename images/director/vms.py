"""VMs of the lab that run the appliance, and what a test does with them."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(f"{HERE}/../..")
IMAGE = os.path.abspath(sys.argv[1]) + "/director.qcow2"
WORK = os.environ["APPLIANCE_TEST_DIR"]
DISKS = "/var/lib/libvirt/images"
PASSWORD = "correct horse battery"
LIMIT = 1200  # seconds for each thing that is waited for; an emulated machine is slow
RESULTS = {"failures": 0, "checks": 0}


def sh(*args: str, check: bool = True, text: str = "") -> subprocess.CompletedProcess:
    """Run a program and return what it wrote."""
    done = subprocess.run(args, input=text, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{args}: {done.returncode}: {done.stdout}{done.stderr}")
    return done


def check(what: str, good: bool, seen: str = "") -> None:
    """Count and print one check."""
    RESULTS["checks"] += 1
    if good:
        print(f"ok      {what}", flush=True)
        return
    RESULTS["failures"] += 1
    print(f"FAILED  {what}: {seen.strip()[-500:]}", flush=True)


def good(what: str, done: subprocess.CompletedProcess, text: str = "") -> None:
    """Check that a command ended well, and said the text."""
    check(what, done.returncode == 0 and text in done.stdout + done.stderr, done.stdout + done.stderr)


def processors() -> tuple:
    """Return the type of a guest, and processors and clocks as the director's own back end writes them."""
    kind = "kvm" if open(os.environ["LAB_DIR"] + "/accel", encoding="utf-8").read().strip() == "kvm" else "qemu"
    golden = open(f"{ROOT}/plugins/libvirt/testdata/{kind}.xml", encoding="utf-8").read()
    parts = [re.search(rf" *<{tag}[ >].*?</{tag}>", golden, re.S).group(0)
             for tag in ("vcpu", "features", "cpu", "clock")]
    return kind, "\n".join(parts)


class Director:
    """A director that a person works with by directorctl."""

    def __init__(self, name: str, address: str):
        self.name, self.address = name, address

    def login(self, ca: str) -> subprocess.CompletedProcess:
        """Log in through the API with the password of the first boot, as a person does."""
        ctl = ["env", f"DIRECTOR_CONFIG={WORK}/{self.name}.yaml", f"{ROOT}/bin/directorctl"]
        done = sh(*ctl, "login", "--server", f"https://{self.address}", "--ca-file", ca, "--user", "admin",
                  "--password-file", "-", check=False, text=PASSWORD + "\n")
        return done if done.returncode else sh(*ctl, "whoami", check=False)


class VM(Director):
    """A VM of the lab with a root disk of the image."""

    def __init__(self, name: str, address: str, mac: str, uefi: bool = False, memory: int = 2048, image: str = IMAGE):
        super().__init__(name, address)
        self.mac, self.uefi, self.memory = mac, uefi, memory
        self.image = image
        self.console, self.serial, self.seen, self.began = None, f"{WORK}/{name}.serial", "", 0.0

    def disk(self, name: str, size: str = "", image: str = "") -> str:
        """Make a blank disk, or a new root disk."""
        path = f"{DISKS}/{self.name}-{name}.qcow2"
        if size:
            sh("qemu-img", "create", "-q", "-f", "qcow2", path, size)
        else:
            sh("qemu-img", "create", "-q", "-f", "qcow2", "-b", image or self.image, "-F", "qcow2", path)
        return path

    def start(self, root: str, data: str = "", seed: str = "", cdrom: str = "", ahead: int = 0) -> None:
        """Start it, off as it is, with a clock that is so many seconds ahead."""
        kind, cpu = processors()
        cpu = cpu.replace('<clock offset="utc">', f'<clock offset="variable" adjustment="{ahead}">')
        disks = [(root, "qcow2", "vda"), (data, "qcow2", "vdb"), (seed, "raw", "vdc")]
        devices = "".join(
            f"<disk type='file' device='disk'><driver name='qemu' type='{form}' cache='unsafe'/><source file='{path}'/>"
            f"<target dev='{dev}' bus='virtio'/>"
            f"{'<boot order=' + chr(39) + '1' + chr(39) + '/>' if dev == 'vda' else ''}"
            f"{'<readonly/>' if form == 'raw' else ''}</disk>"
            for path, form, dev in disks if path
        )
        if cdrom:
            devices += (f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{cdrom}'/>"
                        "<target dev='sda' bus='sata'/><readonly/></disk>")
        firmware = ""
        if self.uefi:
            variables = f"{WORK}/{self.name}.vars"
            if not os.path.exists(variables):
                shutil.copy("/usr/share/OVMF/OVMF_VARS.fd", variables)
            firmware = (f"<loader readonly='yes' "
                        f"type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader><nvram>{variables}</nvram>")
        with open(f"{WORK}/{self.name}.xml", "w", encoding="utf-8") as f:
            f.write(f"""<domain type='{kind}'><name>{self.name}</name><memory unit='MiB'>{self.memory}</memory>
<os><type arch='x86_64' machine='q35'>hvm</type>{firmware}</os>
{cpu}
<devices>{devices}
  <controller type='pci' model='pcie-root'/>
  {"<controller type='pci' model='pcie-root-port'/>" * 8}
  <interface type='network'><mac address='{self.mac}'/><source network='appliance'/><model type='virtio'/></interface>
  <serial type='unix'>
    <source mode='bind' path='{self.serial}'/><log file='{self.serial}.log' append='on'/><target port='0'/>
  </serial>
  <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
</devices></domain>
""")
        sh("virsh", "-q", "create", f"{WORK}/{self.name}.xml")
        self.began = time.monotonic()
        self.console = socket.socket(socket.AF_UNIX)
        self.console.connect(self.serial)
        self.seen = ""

    def stop(self) -> None:
        """Press the power button, and wait until it is off."""
        sh("virsh", "-q", "shutdown", "--mode", "acpi", self.name)
        wait(f"{self.name} is off", lambda: sh("virsh", "-q", "domstate", self.name, check=False).returncode != 0)
        self.console.close()

    def destroy(self) -> None:
        """Cut the power."""
        sh("virsh", "-q", "destroy", self.name, check=False)
        self.console.close()

    def expect(self, text: str) -> None:
        """Wait until the console shows the text, and forget what was before it."""
        end = time.monotonic() + LIMIT
        while text not in self.seen:
            if time.monotonic() > end:
                raise AssertionError(f"{self.name}: the console does not show {text!r}; its end "
                                     f"is:\n{self.seen[-2000:]}")
            self.console.settimeout(max(0.1, end - time.monotonic()))
            try:
                self.seen += self.console.recv(65536).decode(errors="replace")
            except socket.timeout:
                pass
        self.seen = self.seen.split(text, 1)[1]

    def answer(self, prompt: str, line: str) -> None:
        """Type a line after the prompt."""
        self.expect(prompt)
        self.console.sendall(line.encode() + b"\r")

    def page(self) -> str:
        """Wait for the log-in page of the console; return it."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def get() -> str:
            try:
                asked = urllib.request.Request(f"https://{self.address}/", headers={"Accept": "text/html"})
                with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
                    return answer.read().decode()
            except OSError:
                return ""

        return wait(f"{self.name}: the page at https://{self.address}/", get)

    def ssh(self, command: str) -> list:
        """Return how a command is run over SSH, as admin."""
        return [
            "ssh", "-n", "-F", "none", "-i", f"{WORK}/id", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o",
            "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={WORK}/{self.name}.known", "-o",
            "ControlMaster=auto", "-o", f"ControlPath={WORK}/{self.name}.ssh", "-o", "ControlPersist=300",
            f"admin@{self.address}", command,
        ]

    def on(self, command: str, check: bool = False) -> subprocess.CompletedProcess:
        """Run a command over SSH, as admin."""
        return sh(*self.ssh(command), check=check)

    def put(self, file: str, path: str) -> None:
        """Write a file of this machine to the path on the VM, for the director alone."""
        with open(file, "rb") as f:
            self.send(f.read(), f"sudo install -o director -g director -m 0600 /dev/stdin {path}")

    def send(self, data: bytes, command: str) -> None:
        """Run a command on the VM that reads the data."""
        self.on("true", check=True)  # the shared connection is there
        done = subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={WORK}/{self.name}.ssh",
                               f"admin@{self.address}", command],
                              input=data, capture_output=True, check=False)
        if done.returncode:
            raise AssertionError(f"{command}: {done.stdout}{done.stderr}")

    def get(self, path: str, file: str) -> None:
        """Copy a file of the VM that only root may read."""
        done = subprocess.run(["ssh", "-n", "-F", "none", "-o", f"ControlPath={WORK}/{self.name}.ssh",
                               f"admin@{self.address}", f"sudo cat {path}"], capture_output=True, check=True)
        with open(file, "wb") as f:
            f.write(done.stdout)

    def forget(self) -> None:
        """End the shared connection."""
        sh("ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={WORK}/{self.name}.ssh", f"admin@{self.address}",
           check=False)

    def wait_ssh(self) -> None:
        """Wait until a command runs over SSH."""
        wait(f"{self.name}: SSH", lambda: self.on("true").returncode == 0)

    def authority(self) -> str:
        """Return the file with the certificate of the director's authority, read on the VM."""
        path = f"{WORK}/{self.name}.ca"
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.on("sudo cat /data/director/tls/ca.crt", check=True).stdout)
        return path


def wait(what: str, ready, limit: int = LIMIT):
    """Poll until ready returns something true; return it."""
    end = time.monotonic() + limit
    while not (got := ready()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {limit} s")
        time.sleep(0.5)
    return got


def answers(address: str, path: str = "/readyz?changes=true") -> bool:
    """Report whether a director at the address is ready."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://{address}{path}", context=context, timeout=3) as got:
            return got.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def simulated(director: Director, state: str, *args: str):
    """Run a simulated director on this machine, and end it as a service manager does."""
    with open(f"{WORK}/{director.name}.log", "ab") as log, subprocess.Popen(
            [f"{ROOT}/bin/director", "simulate", "-state", state, "-listen", director.address, "-registry-listen",
             "127.0.0.1:15000", *args], stdout=subprocess.DEVNULL, stderr=log) as running:
        try:
            wait(f"{director.name}: the API", lambda: answers(director.address))
            yield
        finally:
            running.send_signal(signal.SIGINT)


def stand_ins(state: str, models: str, to: str) -> None:
    """Put into a directory what a simulated director takes for the images and release bundles of the documents."""
    with simulated(Director("stand-ins", "127.0.0.1:18443"), state, models):
        pass
    for name in ("bundles", "images"):
        shutil.copytree(f"{state}/simulation/{name}", f"{to}/{name}")
        os.chmod(f"{to}/{name}", 0o755)


def seed(name: str, label: str, files: dict) -> str:
    """Make an ISO with the label and the files."""
    top = f"{WORK}/{name}"
    for file, text in files.items():
        os.makedirs(os.path.dirname(f"{top}/{file}"), exist_ok=True)
        with open(f"{top}/{file}", "w", encoding="utf-8") as f:
            f.write(text)
    sh("genisoimage", "-quiet", "-V", label, "-J", "-r", "-o", f"{top}.iso", top)
    return f"{top}.iso"


def first_start(vm: VM, drive: bool = False, ahead: int = 0, **more: dict) -> str:
    """Start a VM with a NoCloud seed, or a config drive, and a blank data disk; return the disk."""
    said = "#cloud-config\n" + json.dumps(more | {
        "hostname": vm.name, "ssh_authorized_keys": [open(f"{WORK}/id.pub", encoding="utf-8").read().strip()],
        "director": {"admin_password": PASSWORD, "address": vm.address + "/24", "gateway": "10.89.0.1"},
    })
    if drive:
        top = "openstack/latest"
        iso = seed(vm.name + "-seed", "config-2", {f"{top}/user_data": said, f"{top}/meta_data.json": "{}\n"})
    else:
        iso = seed(vm.name + "-seed", "cidata", {"user-data": said, "meta-data": "{}\n"})
    data = vm.disk("data", "20G")
    vm.start(vm.disk("root"), data, seed=iso, ahead=ahead)
    return data


def first_boot(vm: VM, more: str = "", drive: bool = False) -> str:
    """Set a VM up by a seed, with further settings of the director, and return its data disk."""
    data = first_start(vm, drive)
    vm.page()
    vm.wait_ssh()
    if more:
        vm.send(more.encode(), "sudo tee /data/etc/director.yaml >/dev/null && sudo director setup apply && "
                "sudo systemctl restart director")
        vm.page()
    return data


def schema(vm: VM) -> str:
    """Return the newest version of an appliance's own database, such as 0054_consul."""
    return vm.on("sudo python3 -c \"import sqlite3; "
                 "print(sqlite3.connect('file:/data/director/director.db?mode=ro', uri=True)"
                 ".execute('SELECT max(version) FROM schema_migrations').fetchone()[0])\"").stdout.strip()


def manifest(directory: str) -> tuple:
    """Return version, time and schema of the appliance in a directory of build.sh."""
    with open(f"{directory}/appliance.yaml", encoding="utf-8") as f:
        text = f.read()
    return tuple(
        re.search(rf'^  {key}: "?([^"\n]*)"?$', text, re.M).group(1) for key in ("version", "built", "schema"))


class Bundles:
    """Upgrades that are made of the root of the image."""

    def __init__(self, name: str):
        self.dir = f"{WORK}/{name}-bundles"
        os.makedirs(self.dir)
        self.version, self.built, self.schema = manifest(os.path.dirname(IMAGE))
        self.root = f"{self.dir}/root.ext4"
        sh("zstd", "-q", "-d", os.path.dirname(IMAGE) + "/root.ext4.zst", "-o", self.root)

    def make(self, version: str, older: bool = False, commands: tuple = (), key: str = "", root: str = "",
             schema: str = "") -> str:
        """Make a signed upgrade to the version, whose root debugfs has changed by the commands."""
        schema = schema or self.schema
        out = f"{self.dir}/{version}"
        os.makedirs(out)
        built = int(self.built) + (-60 if older else 60)
        if not root:
            root = f"{out}/root.ext4"
            shutil.copy(self.root, root)
            with open(f"{out}/appliance", "w", encoding="utf-8") as f:
                f.write(json.dumps({"version": version, "built": built, "schema": schema}) + "\n")
            file = "/usr/lib/director/appliance"
            for command in (f"rm {file}", f"write {out}/appliance {file}", *commands):
                sh("debugfs", "-w", "-R", command, root)
        env = ["env", f"KAAS_SIGN_KEY={key}"] if key else []
        sh(*env, f"{HERE}/upgrade.sh", root, out, version, str(built), schema)
        return f"{out}/director-upgrade.tar"


    def next_schema(self, version: str) -> str:
        """Make a signed upgrade to a version whose director knows one more version of the database."""
        program = f"{self.dir}/director"
        sh("env", "GOFLAGS=-tags=libvirt_dlopen,nomsgpack,netgo,osusergo,nextschema",
           shutil.which("go") or "/usr/local/go/bin/go", "-C", ROOT, "build", "-trimpath", "-buildvcs=false",
           "-ldflags", f"-s -w -X main.version={version}", "-o", program, "./cmd/director")
        schema = sh(program, "setup", "schema").stdout.strip()
        installed = "/usr/local/bin/director"
        return self.make(version, schema=schema, commands=(
            f"rm {installed}", f"write {program} {installed}", f"sif {installed} mode 0100755"))

    def image(self, version: str) -> str:
        """Return a root disk of a version that was made: the image with another root a."""
        disk, out = f"{self.dir}/disk.raw", f"{DISKS}/{os.path.basename(self.dir)}-{version}.qcow2"
        sh("qemu-img", "convert", "-O", "raw", IMAGE, disk)
        table = json.loads(sh("sfdisk", "--json", disk).stdout)["partitiontable"]["partitions"]
        start = next(p["start"] for p in table if p.get("name") == "root-a")
        sh("dd", f"if={self.dir}/{version}/root.ext4", f"of={disk}", "bs=512", f"seek={start}", "conv=notrunc",
           "status=none")
        sh("qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, out)
        os.remove(disk)
        return out


def trusted_key(file: str = "") -> str:
    """Return the public key in a file, or that of this machine's development key."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    with open(file or f"{cache}/director/keys/development.key.pub", encoding="utf-8") as f:
        return f.read().strip().splitlines()[-1]


def ctl(director: Director, *args: str) -> subprocess.CompletedProcess:
    """Run directorctl as the admin who has logged in."""
    return sh("env", f"DIRECTOR_CONFIG={WORK}/{director.name}.yaml", f"{ROOT}/bin/directorctl", *args, check=False)


def creation(vm: VM, file: str, name: str) -> str:
    """Store the document of a cluster, start its creation, and return its plan."""
    good(f"{name} is stored", ctl(vm, "apply", "-f", file))
    planned = ctl(vm, "plan", name, "-o", "json")
    plan = json.loads(planned.stdout or "{}").get("id", "")
    done = ctl(vm, "start", plan, "--yes")
    check("its plan is started", done.returncode == 0, planned.stderr + done.stdout + done.stderr)
    return plan


def steps(vm: VM, plan: str) -> dict:
    """Return the states of a plan's steps; nothing while nobody answers."""
    shown = ctl(vm, "plans", "show", plan, "-o", "json")
    return {s["id"]: s["status"] for s in json.loads(shown.stdout)["steps"]} if shown.returncode == 0 else {}


def plays(vm: VM, plan: str) -> bool:
    """Report whether a play of the plan runs."""
    return any(state == "running" and step.startswith(("prepare", "control_plane", "workers"))
               for step, state in steps(vm, plan).items())
