"""Three appliances that are one director: on a PostgreSQL and an NFS of this machine, each loses its power, or is
upgraded, in turn."""

import json
import os
import pwd
import signal
import subprocess
import threading
import time

from vms import (
    DISKS, VM, WORK, Bundles, answers, check, creation, ctl, first_start, good, plays, sh, stand_ins, steps,
    trusted_key, wait)
from world import CLUSTER, world

HOST = "10.89.0.1"
ADDRESS = "10.89.0.20"
# Where the director and its clusters are backed up to.
BACKUPS = """---
apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: nfs}
spec: {type: nfs, directory: /data/backups/directors, recipients: ["%s"], retention: {count: 3}}
---
apiVersion: kaas/v1
kind: Schedule
metadata: {name: director-backup}
spec: {cron: '15 3 * * *', job: {name: backup, params: {target: nfs}}}
"""


def models(top: str) -> str:
    """Return the documents of a simulated world, and a recipient of backups, whose key is in top. Appliances, database
    and NFS are real."""
    sh("age-keygen", "-o", f"{top}/backups-of-directors.key")
    return world() + BACKUPS % sh("age-keygen", "-y", f"{top}/backups-of-directors.key").stdout.strip()


# Plays that are slow enough for an outage to begin and to end in one.
SIMULATION = {
    "worlds": "/data/backups/worlds", "boot": "20s", "verbs": [{"verb": "ensure", "latency": "5s"}],
    "plays": {"tasks": 10, "latency": "3s"},
}


class Services:
    """A PostgreSQL with TLS, and an NFS, on this machine."""

    def __init__(self, name: str) -> None:
        os.chmod(WORK, 0o711)
        self.top = f"{WORK}/{name}"
        self.export, self.models, self.running = f"{self.top}/export", f"{self.top}/models.yaml", []
        os.makedirs(self.export)
        os.chmod(self.top, 0o711)
        os.chown(self.export, 900, 900)
        with open(self.models, "w", encoding="utf-8") as f:
            f.write(models(self.top))
        self.database()
        self.nfs()
        self.stand_ins()

    def stand_ins(self) -> None:
        """Put on the NFS what a simulated director takes for an image and a release bundle."""
        stand_ins(f"{self.top}/stand-ins", self.models, self.export)
        os.makedirs(f"{self.export}/backups/directors")
        os.chmod(f"{self.export}/backups", 0o700)
        sh("chown", "-R", "900:900", self.export)

    def database(self) -> None:
        """Start PostgreSQL, with a user for the directors."""
        top, postgres = f"{self.top}/postgres", pwd.getpwnam("postgres")
        os.makedirs(top)
        sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
           "/CN=database", "-addext",
           f"subjectAltName=IP:{HOST}", "-days", "2", "-keyout", f"{top}/server.key", "-out", f"{top}/server.crt")
        with open(f"{top}/password", "w", encoding="utf-8") as f:
            f.write("secret of the database\n")
        for name in ("", "server.key", "server.crt", "password"):
            os.chown(f"{top}/{name}", postgres.pw_uid, postgres.pw_gid)
        newest = sorted(os.listdir("/usr/lib/postgresql"), key=float)[-1]
        tools = f"/usr/lib/postgresql/{newest}/bin"
        user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "KILL"]
        sh(*user, f"{tools}/initdb", "-D", f"{top}/data", "-U", "director", "-E", "UTF8", "--no-locale", "--pwfile",
           f"{top}/password", "--auth-host", "scram-sha-256", "--auth-local", "trust")
        with open(f"{top}/data/pg_hba.conf", "a", encoding="utf-8") as f:
            f.write("hostssl all director 10.89.0.0/24 scram-sha-256\n")
        self.postgres = (*user, f"{tools}/postgres", "-D", f"{top}/data", "-c", f"listen_addresses={HOST}", "-c",
                         f"unix_socket_directories={top}", "-c", "ssl=on", "-c", f"ssl_cert_file={top}/server.crt",
                         "-c", f"ssl_key_file={top}/server.key")
        self.is_ready = (f"{tools}/pg_isready", "-h", HOST)
        self.serve()
        sh(*user, f"{tools}/createdb", "-h", top, "-U", "director", "director")
        self.ask = (*user, f"{tools}/psql", "-h", top, "-U", "director", "-d", "director", "-Atc")

    def serve(self) -> None:
        """Start PostgreSQL."""
        self.server = self.start(*self.postgres)
        wait("PostgreSQL", lambda: sh(*self.is_ready, check=False).returncode == 0)

    def crash(self) -> None:
        """End PostgreSQL as if its machine had crashed."""
        self.server.send_signal(signal.SIGQUIT)
        self.server.wait(60)
        self.running.remove(self.server)

    def schema(self) -> str:
        """Return the newest version of the database."""
        return sh(*self.ask, "SELECT max(version) FROM schema_migrations").stdout.strip()

    def nfs(self) -> None:
        """Start NFS-Ganesha, a server that needs nothing of the kernel. Root is nobody there."""
        top = f"{self.top}/nfs"
        os.makedirs(top)
        with open(f"{top}/ganesha.conf", "w", encoding="utf-8") as f:
            f.write(f"""NFS_Core_Param {{ Protocols = 4; Bind_addr = {HOST}; Enable_NLM = false;
                  Enable_RQUOTA = false; Enable_UDP = false; }}
NFSV4 {{ Grace_Period = 5; Lease_Lifetime = 10; RecoveryBackend = fs; }}
EXPORT {{ Export_Id = 1; Path = {self.export}; Pseudo = /director; Access_Type = RW;
         Squash = Root_Squash; SecType = sys;
  Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}
""")
        os.makedirs("/var/lib/nfs/ganesha", exist_ok=True)
        self.start("setpriv", "--pdeathsig", "KILL", "ganesha.nfsd", "-F", "-f", f"{top}/ganesha.conf", "-L",
                   f"{top}/log", "-p", f"{top}/pid")
        wait("the NFS", lambda: "NFS SERVER INITIALIZED" in open(f"{top}/log", encoding="utf-8").read()
             if os.path.exists(f"{top}/log") else False)

    def start(self, *args: str) -> subprocess.Popen:
        """Start a program that stop ends, and return it."""
        # pylint: disable=consider-using-with # it has it as long as it runs
        log = open(f"{self.top}/{len(self.running)}.service.log", "ab")
        self.running.append(subprocess.Popen(args, stdout=log, stderr=log))  # pylint: disable=consider-using-with
        return self.running[-1]

    def stop(self) -> None:
        """End all programs."""
        for program in reversed(self.running):
            program.send_signal(signal.SIGINT)  # PostgreSQL would wait for its clients otherwise
            try:
                program.wait(60)
            except subprocess.TimeoutExpired:  # the NFS server may wait for clients that lost their power
                program.kill()
                program.wait()


class Group:
    """The three appliances, and what a person does with them."""

    def __init__(self, services: Services, name: str) -> None:
        self.vms = [VM(f"{name}-{i}", f"10.89.0.{20 + i}", f"52:54:00:89:00:2{i}") for i in (1, 2, 3)]
        self.all = VM(name, ADDRESS, "")  # whoever has the address
        self.services = services
        self.data: dict = {}

    def boot(self) -> None:
        """Set all of them up."""
        for vm in self.vms:
            self.data[vm.name] = first_start(vm)
        for vm in self.vms:
            vm.page()
            vm.wait_ssh()

    def join(self) -> None:
        """Make the first one a group, and have the others join it."""
        first = self.vms[0]
        first.send(open(f"{self.services.top}/postgres/server.crt", "rb").read(),
                   "sudo tee /data/etc/database-ca.crt >/dev/null")
        first.send(b"secret of the database\n",
                   "sudo install -o director -g director -m 0600 /dev/stdin /data/etc/database.password")
        first.send(json.dumps({
            "database": f"postgres://director@{HOST}/director?sslmode=verify-full"
                        "&sslrootcert=/data/etc/database-ca.crt",
            "databasePasswordFile": "/data/etc/database.password", "simulate": True, "simulation": SIMULATION,
            "trustedKeys": [trusted_key()],
        }).encode(), "sudo tee /data/etc/director.yaml >/dev/null")
        members = " ".join(vm.address for vm in self.vms)
        # A director that has begun on real hypervisors does not become a simulated one.
        first.on("sudo systemctl stop director && sudo mv /data/director /data/director.alone", check=True)
        done = first.on(f"sudo director setup group -address {ADDRESS} -files {HOST}:/director {members}")
        check("the first appliance is a group", done.returncode == 0, done.stdout + done.stderr)
        began = time.monotonic()
        wait("the group's address answers", lambda: answers(ADDRESS))
        check(f"the group's address answers after {time.monotonic() - began:.0f} s", True)
        with subprocess.Popen(first.ssh("sudo director setup share"), stdout=subprocess.PIPE, text=True) as share:
            said = ""
            while said.count("\n\n") < 4 and (line := share.stdout.readline()):
                said += line
            code = said.strip().splitlines()[-1].strip()
            wrong = self.vms[1].on(f"echo AAAA-{code[5:]} | sudo director setup join {first.address}")
            check("a wrong code is refused", wrong.returncode != 0 and "compare the code" in wrong.stderr,
                  wrong.stdout + wrong.stderr)
            for vm in self.vms[1:]:
                done = vm.on(f"echo {code} | sudo director setup join {first.address}")
                check(f"{vm.name} joins", done.returncode == 0, done.stdout + done.stderr)
            check("sharing ends when all have joined", share.wait(60) == 0, said + share.stdout.read())
        for vm in self.vms:
            wait(f"{vm.name} is ready", lambda vm=vm: answers(vm.address))

    def holder(self) -> VM:
        """Return the appliance that has the address."""
        def look():
            return next((vm for vm in self.vms if ADDRESS + "/32" in vm.on("ip -4 -o address show eth0").stdout), None)
        return wait("one of them has the address", look)

    def plan(self, name: str) -> str:
        """Start the creation of a cluster, and return its plan."""
        model = f"{WORK}/{name}.yaml"
        with open(model, "w", encoding="utf-8") as f:
            f.write(CLUSTER % (name, 3) + "  backup: {targets: [nfs]}\n")
        return creation(self.all, model, name)

    def amid(self, name: str) -> str:
        """Start the creation of a cluster, and return its plan when a play runs."""
        plan = self.plan(name)
        wait(f"{name}: a play runs", lambda: plays(self.all, plan))
        return plan

    def ends(self, plan: str, what: str, began: float) -> None:
        """Follow a plan to its end."""
        done = ctl(self.all, "follow", plan)
        took = time.monotonic() - began
        wait("the plan can be asked for", lambda: steps(self.all, plan))
        states = steps(self.all, plan)
        check(f"{what}, after {took:.0f} s", done.returncode == 0 and set(states.values()) == {"done"},
              done.stdout[-1000:] + done.stderr + str(states))

    def store(self) -> None:
        """Log in at the group's address, and store the documents."""
        check("the API takes the password at the group's address",
              self.all.login(self.vms[0].authority()).returncode == 0)
        good("the documents are stored", ctl(self.all, "apply", "-f", self.services.models))

    def back_up(self) -> None:
        """Have the director backed up to the NFS."""
        done = ctl(self.all, "schedules", "run", "director-backup", "--wait")
        kept = [name for _, _, names in os.walk(f"{self.services.export}/backups/directors") for name in names]
        check("the director is backed up to the NFS",
              done.returncode == 0 and any(name.endswith(".age") for name in kept),
              done.stdout + done.stderr + str(kept))

    def end(self) -> None:
        """Look whether all is well, and end the VMs."""
        for vm in self.vms:
            failed = vm.on("systemctl --failed --no-legend --plain").stdout
            check(f"no unit of {vm.name} failed", not failed, failed)
            vm.forget()
            vm.destroy()

    def lose(self, name: str, *lost: VM) -> None:
        """Cut the power of appliances in the middle of a plan, and bring them back."""
        plan = self.amid(name)
        had = "which had" if self.holder() in lost else "which did not have"
        for vm in lost:
            vm.forget()
            vm.destroy()
        began = time.monotonic()
        wait("the address answers again", lambda: answers(ADDRESS))
        away = time.monotonic() - began
        names = " and ".join(vm.name for vm in lost)
        check(f"without {names}, {had} the address, another director answers after {away:.1f} s", away <= 15,
              f"{away:.1f} s")
        self.ends(plan, f"the plan ends without {names}", began)
        for vm in lost:
            vm.start(f"{DISKS}/{vm.name}-root.qcow2", self.data[vm.name])
        for vm in lost:
            wait(f"{vm.name} is back", lambda vm=vm: answers(vm.address))
            vm.wait_ssh()


    def lose_database(self, seconds: int) -> None:
        """Take the database away in the middle of a plan, for some time."""
        plan, began = self.amid("without-database"), time.monotonic()
        self.services.crash()
        wait("every director says that it is not ready", lambda: not any(answers(vm.address) for vm in self.vms))
        silent = True
        while time.monotonic() - began < seconds:
            silent = silent and not answers(ADDRESS)
            time.sleep(1)
        check("no director takes changes without its database", silent)
        self.services.serve()
        back = time.monotonic()
        wait("the address answers again", lambda: answers(ADDRESS))
        check(f"the group takes changes {time.monotonic() - back:.1f} s after its database is back", True)
        self.ends(plan, f"the plan ends after {seconds} s without a database", began)

    def lose_all(self) -> None:
        """Cut the power of all appliances in the middle of a plan; database and NFS stay."""
        plan, began = self.amid("lost-all"), time.monotonic()
        for vm in self.vms:
            vm.forget()
            vm.destroy()
        for vm in self.vms:
            vm.start(f"{DISKS}/{vm.name}-root.qcow2", self.data[vm.name])
        wait("the address answers again", lambda: answers(ADDRESS))
        self.ends(plan, "the plan ends after all of them lost their power", began)
        for vm in self.vms:
            wait(f"{vm.name} is back", lambda vm=vm: answers(vm.address))
            vm.wait_ssh()


def saved(g: Group, services: Services) -> None:
    """A backup of a cluster lies on the NFS: encrypted, with its manifest, and read back to its end."""
    made = ctl(g.all, "backup", "create", "lost-1", "--wait", "--yes")
    kept = [name for _, _, names in os.walk(f"{services.export}/backups/directors") for name in names]
    check("a cluster is backed up to the NFS",
          made.returncode == 0 and any(name.endswith(".db.zst.age") for name in kept)
          and any(name.endswith(".json") for name in kept), made.stdout + made.stderr + str(kept))
    listed = ctl(g.all, "backup", "list", "-o", "json")
    items = json.loads(listed.stdout)["items"] if listed.returncode == 0 else []
    read = ctl(g.all, "backup", "verify", items[0]["id"]) if items else listed
    check("it is read back from the NFS", bool(items) and read.returncode == 0, read.stdout + read.stderr)


class Watch(threading.Thread):
    """Asks again and again whether a director answers at the group's address."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended, self.last, self.longest = threading.Event(), time.monotonic(), 0.0

    def run(self) -> None:
        """Ask until the test ends."""
        self.last = time.monotonic()
        while not self.ended.wait(0.2):
            if answers(ADDRESS, "/readyz"):
                now = time.monotonic()
                self.longest, self.last = max(self.longest, now - self.last), now

    def check(self, what: str) -> None:
        """Say for how long nobody answered since the last time."""
        longest = max(self.longest, time.monotonic() - self.last)
        self.longest = 0.0
        check(f"{what}: the API was never silent for longer than {longest:.1f} s", longest <= 15)


def upgrade_in_place(g: Group, bundle: str, watch: Watch) -> None:
    """Upgrade one after another, the one with the address first, each in the middle of a plan."""
    done = []
    while len(done) < len(g.vms):
        vm = next(v for v in (g.holder(), *g.vms) if v not in done)
        done.append(vm)
        plan, began = g.amid(f"upgraded-{len(done)}"), time.monotonic()
        good(f"{vm.name} is upgraded in place", ctl(vm, "appliance", "upgrade", bundle, "--yes", "--within", "40m"),
             "The director is version next (root b)")
        print(f"        after {time.monotonic() - began:.0f} s", flush=True)
        vm.forget()
        vm.wait_ssh()
        wait(f"{vm.name} takes changes", lambda vm=vm: answers(vm.address))
        g.ends(plan, "the plan goes on meanwhile to its end", began)
        watch.check(f"upgrade of {vm.name}")


def replace_roots(g: Group, image: str, watch: Watch) -> None:
    """Replace the root disks one after another by those of a version that changes the database, each in the middle of a
    plan."""
    for i, vm in enumerate(g.vms, 1):
        plan, began = g.amid(f"replaced-{i}"), time.monotonic()
        vm.forget()
        vm.stop()
        vm.start(vm.disk("root", image=image), g.data[vm.name])
        wait(f"{vm.name} is back", lambda vm=vm: answers(vm.address))
        print(f"        {vm.name} is back after {time.monotonic() - began:.0f} s", flush=True)
        vm.wait_ssh()
        check(f"the database has the next schema, and the other members of before go on ({i} of 3 replaced)",
              g.services.schema() == "9999_next" and all(answers(v.address) for v in g.vms), g.services.schema())
        g.ends(plan, "the plan goes on meanwhile to its end", began)
        watch.check(f"new root disk of {vm.name}")


def upgraded(name: str, act) -> None:
    """Make a group of three that all take the password, and act on it while its address is watched."""
    services = Services(name)
    watch = Watch()
    try:
        g = Group(services, name)
        g.boot()
        g.join()
        g.store()
        ca = f"{WORK}/{g.vms[0].name}.ca"
        for vm in g.vms:
            check(f"{vm.name} takes the password at its own address", vm.login(ca).returncode == 0)
        watch.start()
        act(g, Bundles(name), watch)
        g.end()
    finally:
        watch.ended.set()
        services.stop()


def group_upgrade() -> None:
    """Upgrade three appliances in place, one after another, without the API being away."""
    upgraded("group-upgrade", lambda g, bundles, watch: upgrade_in_place(g, bundles.make("next"), watch))


def group_roots() -> None:
    """Give three appliances root disks with another schema, one after another; in place, that is refused."""
    def act(g: Group, bundles: Bundles, watch: Watch) -> None:
        done = ctl(g.vms[0], "appliance", "upgrade", bundles.next_schema("schema"), "--yes")
        check("an upgrade in place that changes the database is refused", done.returncode != 0 and
              "changes the database, which is on a server" in done.stdout + done.stderr, done.stdout + done.stderr)
        wait("the one that was asked takes changes", lambda: answers(g.vms[0].address))
        g.back_up()
        watch.check("the upgrade that was refused")
        replace_roots(g, bundles.image("schema"), watch)

    upgraded("group-roots", act)


def group() -> None:
    """Three appliances behind one address; each in turn, then two at once, then all lose their power under a running
    plan, and one runs while the database is away."""
    services = Services("group")
    try:
        g = Group(services, "group")
        g.boot()
        g.join()
        g.store()
        g.back_up()
        lost = []
        while len(lost) < len(g.vms):
            # One that came back may have been given the address again; then another is next.
            vm = next(v for v in (g.holder(), *g.vms) if v not in lost)
            lost.append(vm)
            g.lose(f"lost-{len(lost)}", vm)
        holder = g.holder()
        g.lose("lost-most", holder, next(v for v in g.vms if v is not holder))
        g.lose_database(60)
        g.lose_all()
        saved(g, services)
        g.end()
    finally:
        services.stop()
