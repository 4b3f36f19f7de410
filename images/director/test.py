#!/usr/bin/python3
"""Set up and look at the appliance on VMs of the lab; test.sh starts it: test.py DIR."""

import json
import os
import socket
import sys
import threading
import time
import traceback
from xml.sax.saxutils import quoteattr

from before import before
from clock import TIMES, clock
from cluster import cluster, restore
from consul import Consul
from group import group, group_roots, group_upgrade
from hardened import hardened, supported
from logs import Logs
from outer import outer
from sizing import sizing
from vms import (
    DISKS, PASSWORD, RESULTS, ROOT, VM, WORK, Bundles, check, ctl, first_boot, good, schema, seed, sh, trusted_key,
    wait)


def upgrade() -> None:
    """Upgrade in place: what is refused, a root that does not become healthy, one that does, and back."""
    bundles = Bundles("upgrade")
    vm = VM("upgrade", "10.89.0.13", "52:54:00:89:00:13")
    data = first_boot(vm, json.dumps({"trustedKeys": [trusted_key()]}))
    check("the API takes the password", vm.login(vm.authority()).returncode == 0)

    def state() -> dict:
        return json.loads(ctl(vm, "appliance", "status", "-o", "json").stdout or "{}")

    def changed(name: str, file: str, well: bool, text: str, *args: str) -> None:
        began = time.monotonic()
        done = ctl(vm, "appliance", *args[:1], *([file] if file else []), "--yes", *args[1:])
        seen = done.stdout + done.stderr
        check(f"{name}, after {time.monotonic() - began:.0f} s", (done.returncode == 0) == well and text in seen, seen)

    check("it says which root runs", state().get("running", {}).get("version") == bundles.version, str(state()))
    with open(f"{WORK}/small", "wb") as f:
        f.write(b"no root" * 1000)
    sh(f"{ROOT}/bin/directorctl", "key", "generate", f"{WORK}/other.key", "--no-password")
    changed("a downgrade is refused", bundles.make("older", older=True, root=f"{WORK}/small"), False, "downgrade",
            "upgrade")
    changed("another key is refused", bundles.make("foreign", key=f"{WORK}/other.key", root=f"{WORK}/small"), False,
            "not trusted", "upgrade")
    changed("an archive that was cut off is refused", cut(bundles.make("cut", root=f"{WORK}/small")), False,
            "cannot be read", "upgrade")
    model = f"{WORK}/kept.yaml"
    with open(model, "w", encoding="utf-8") as f:
        f.write("apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: kept}\n"
                "spec: {cron: '@daily', job: {name: drift}}\n")
    check("a document is stored", ctl(vm, "apply", "-f", model).returncode == 0)
    units = "/usr/local/lib/systemd/system"
    changed("a root that does not start is given up", bundles.make("dead", root=f"{WORK}/small"), False,
            "said nothing of it", "upgrade", "--within", "3m")
    changed("a root without a director is given up", bundles.make("broken", commands=(f"rm {units}/director.service",)),
            False, "did not become healthy", "upgrade", "--within", "3m")
    vm.forget()
    vm.wait_ssh()
    now = state()
    check("the former root runs again, from its partition", now["running"]["version"] == bundles.version and
          now["running"]["slot"] == "a" and vm.on("grep -c director.slot=a /proc/cmdline").stdout.strip() == "1",
          str(now))
    check("with its documents", "kept" in ctl(vm, "get", "schedules").stdout)
    changed("a good root is kept", bundles.make("next"), True, "The director is version next (root b)", "upgrade",
            "--within", "40m")
    vm.forget()
    vm.wait_ssh()
    now = state()
    check("the next version runs, and the former one is kept", now["running"]["version"] == "next" and
          now["kept"]["version"] == bundles.version and now["change"]["stage"] == "done", str(now))
    check("with the documents of before", "kept" in ctl(vm, "get", "schedules").stdout)
    check("it takes changes", ctl(vm, "delete", "schedule", "kept", "--yes").returncode == 0)
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0,
          vm.on("systemctl --failed --no-legend --plain").stdout)
    changed("a rollback starts the former root", "", True, f"The director is version {bundles.version} (root a)",
            "rollback", "--within", "40m")
    now = state()
    check("the next version is kept then", now["kept"]["version"] == "next", str(now))
    check("changes of meanwhile stay, because the database is the same",
          "kept" not in ctl(vm, "get", "schedules").stdout)
    another_schema(vm, bundles, changed, data)
    vm.forget()
    vm.destroy()


def task() -> None:
    """Upgrade in place as a task of an outer plan, whose program is cut off and says the same again. The first boot is
    by a config drive."""
    bundles = Bundles("task")
    vm = VM("task", "10.89.0.19", "52:54:00:89:00:19")
    first_boot(vm, json.dumps({"trustedKeys": [trusted_key()]}), drive=True)
    check("the first boot by a config drive gave it its name", vm.on("hostname").stdout.strip() == vm.name)
    check("the API takes the password", vm.login(vm.authority()).returncode == 0)
    phase = ("phase", "director", bundles.make("next"), "--task-id", "up7-director", "--within", "40m")
    good("the task is taken", ctl(vm, *phase))
    began = time.monotonic()
    done = ctl(vm, *phase, "--wait", "--timeout", "1h")
    good(f"the same command waits for its end through the restart, {time.monotonic() - began:.0f} s", done)
    good("said once more, it is done already", ctl(vm, *phase, "--wait"))
    vm.forget()
    vm.wait_ssh()
    now = json.loads(ctl(vm, "appliance", "status", "-o", "json").stdout or "{}")
    check("the next version runs, and the former one is kept", now.get("running", {}).get("version") == "next" and
          now.get("kept", {}).get("version") == bundles.version, str(now))
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)
    vm.forget()
    vm.destroy()


def schedule(vm: VM, name: str) -> None:
    """Store a document."""
    with open(f"{WORK}/{name}.yaml", "w", encoding="utf-8") as f:
        f.write(f"apiVersion: kaas/v1\nkind: Schedule\nmetadata: {{name: {name}}}\n"
                "spec: {cron: '@daily', job: {name: drift}}\n")
    good(f"the document {name} is stored", ctl(vm, "apply", "-f", f"{WORK}/{name}.yaml"))


def another_schema(vm: VM, bundles: Bundles, changed, data: str) -> None:
    """Upgrade to a root that changes the database; an older image in front of that; and back, by what was saved."""
    schedule(vm, "before")
    changed("a root that changes the database is kept", bundles.next_schema("schema"), True,
            "The director is version schema (root b)", "upgrade", "--within", "40m")
    vm.forget()
    vm.wait_ssh()
    check("the database has the next schema", schema(vm) == "9999_next", schema(vm))
    check("with the documents of before", "before" in ctl(vm, "get", "schedules").stdout)
    schedule(vm, "after")
    changed("a rollback that would lose changes is refused", "", False, "does not know the database", "rollback")
    vm.forget()
    vm.destroy()
    root = f"{DISKS}/{vm.name}-root.qcow2"
    os.rename(root, root + ".kept")
    vm.start(vm.disk("root"), data)
    vm.wait_ssh()
    wait("the image of before refuses the database", lambda: vm.on(
        "sudo journalctl -b -u director | grep -q 'which this director does not know: it was used by a newer "
        "one'").returncode == 0)
    check("and changes nothing in it", schema(vm) == "9999_next", schema(vm))
    vm.forget()
    vm.destroy()
    os.rename(root + ".kept", root)
    vm.start(root, data)
    vm.page()
    vm.wait_ssh()
    check("its own root disk goes on with it", "after" in ctl(vm, "get", "schedules").stdout)
    changed("a rollback restores what was saved", "", True, f"The director is version {bundles.version} (root a)",
            "rollback", "--lose-changes", "--within", "40m")
    vm.forget()
    vm.wait_ssh()
    check("the database has the schema of before", schema(vm).startswith(bundles.schema), schema(vm))
    kept = ctl(vm, "get", "schedules").stdout
    check("with the documents of before the upgrade alone", "before" in kept and "after" not in kept, kept)
    check("no unit failed after it", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)


def cut(path: str) -> str:
    """Cut an archive off within its root: three heads and two files of one block each are before it."""
    os.truncate(path, 5 * 512 + 8)
    return path


def look(vm: VM) -> None:
    """Look at what every appliance must be."""
    def on(what: str, command: str) -> None:
        done = vm.on(command)
        check(what, done.returncode == 0, done.stdout + done.stderr)

    on("no unit failed", "sleep 1; ! systemctl --failed --no-legend --plain | grep .")
    on("the root disk is read-only", "grep -q ' /run/director-root/disk ext4 ro,' /proc/mounts")
    on("the loader has started root a", "grep -q 'director.slot=a ' /proc/cmdline")
    on("the data disk is apart from it", "findmnt -n -o FSTYPE,LABEL /data | grep -q 'ext4 *director-data'")
    on("the journal is on the data disk", "sudo ls /data/log/journal/$(cat /etc/machine-id)/system.journal")
    on("the machine's id is on the data disk", "cmp /etc/machine-id /data/machine-id")
    on("AppArmor is on", "sudo aa-enabled -q 2>/dev/null || grep -q Y /sys/module/apparmor/parameters/enabled")
    on("nothing but SSH, console and registry listens to the network",
       r"! sudo ss -Hltn | awk '{print $4}' | grep -Ev '^(127\.|\[::1\])' | grep -Ev ':(22|443|5000)$' | grep .")
    on("the firewall drops the rest", "sudo nft list chain inet director input | grep -q 'policy drop'")
    on("metrics of the VM on the loopback alone", "curl -fsS -o /dev/null http://127.0.0.1:9100/metrics")
    on("the director runs as a user of its own", '[ "$(ps -o user= -C director | sort -u)" = director ]')
    on("its files in runs are in memory", "sudo sh -c 'findmnt -n -o FSTYPE -T /run/director | grep -q tmpfs'")
    on("Ansible, qemu-img, kubectl and Helm run in it",
       "ansible-playbook --version && qemu-img --version && kubectl version --client && helm version")
    on("Ansible runs a module as the director's user", "cd / && sudo -u director env HOME=/data/director ansible -i "
       "localhost, -c local -e ansible_python_interpreter=/usr/bin/python3 -m ansible.builtin.ping all")
    on("libvirt's library loads", "python3 -c 'import ctypes; ctypes.CDLL(\"libvirt.so.0\")'")
    on("the chrony unit runs", "systemctl is-active chrony")
    on("the password is in no file", "! sudo grep -r 'correct[ ]horse' /data /etc /run/director-root/upper")
    done = sh("ssh", "-n", "-F", "none", "-o", "PreferredAuthentications=password,keyboard-interactive", "-o",
              "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
              f"admin@{vm.address}", "true", check=False)
    check("SSH takes no password", done.returncode != 0 and "(publickey)" in done.stderr, done.stderr)
    for port in (9100, 53):
        with socket.socket() as s:
            s.settimeout(3)
            check(f"port {port} is closed from outside", s.connect_ex((vm.address, port)) != 0)
    hardened(vm)
    supported(vm)


def nocloud_boot() -> tuple:
    """First boot by a NoCloud seed; return the VM, its disks and the file of its authority."""
    key = open(f"{WORK}/id.pub", encoding="utf-8").read().strip()
    vm = VM("nocloud", "10.89.0.10", "52:54:00:89:00:10")
    iso = seed("nocloud-seed", "cidata", {
        "user-data": "#cloud-config\n" + json.dumps({
            "hostname": "director-1.example.org", "ssh_authorized_keys": [key], "ntp": {"servers": ["10.89.0.1"]},
            "director": {"admin_password": PASSWORD},
        }),
        "meta-data": "{}\n",
        "network-config": json.dumps({"version": 2, "ethernets": {"any": {
            "addresses": [vm.address + "/24"], "routes": [{"to": "default", "via": "10.89.0.1"}],
            "nameservers": {"addresses": ["10.89.0.1"], "search": ["example.org"]},
        }}}),
    })
    data, root = vm.disk("data", "20G"), vm.disk("root")
    vm.start(root, data, seed=iso)
    page = vm.page()
    first = time.monotonic() - vm.began
    check(f"first boot by a NoCloud seed: the log-in page after {first:.0f} s", "<html" in page.lower(), page)
    vm.wait_ssh()
    ca = vm.authority()
    done = vm.login(ca)
    check("the API takes the password of the seed", done.returncode == 0 and "admin" in done.stdout,
          done.stdout + done.stderr)
    check("the host name is the seed's", vm.on("hostname").stdout.strip() == "director-1.example.org",
          vm.on("hostname").stdout)
    look(vm)
    print(vm.on("systemd-analyze; systemd-analyze blame | head -n 12; free -m; df -h / /data").stdout)
    done = vm.on("sudo director setup check 10.89.0.1:1")
    check("setup check names what does not answer",
          done.returncode == 69 and "FAILED  hypervisor 10.89.0.1:1" in done.stdout and
          "next:" in done.stdout, done.stdout + done.stderr)
    return vm, root, data, ca


def lists_first(vm: VM) -> None:
    """See a thread of the director before the others while lists are asked for: the unit allows it (LimitNICE)."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            ctl(vm, "get", "clusters")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        seen = vm.on("for i in $(seq 300); do ps -L -o ni= -C director | grep -q '^ *-10$' && exit 0; done; exit 1")
    finally:
        over.set()
        asking.join()
    check("lists are put together before other work", seen.returncode == 0, seen.stderr)


def boot() -> None:
    """Boot the image once, look at it, and shut it down: what `make test` has of the appliance."""
    vm, _, data, _ = nocloud_boot()
    lists_first(vm)
    vm.forget()
    vm.stop()
    check("it shuts down, and the data disk is whole",
          sh("qemu-img", "check", "-q", data, check=False).returncode == 0)


def nocloud() -> None:
    """First boot by a NoCloud seed; a restart; a new root disk, now with UEFI, in front of the same data disk."""
    vm, root, data, ca = nocloud_boot()
    before = vm.on("sudo sh -c 'cd /data; sha256sum setup/setup.json director/tls/ca.crt ssh/*.pub machine-id'",
                   check=True).stdout
    applied = vm.on("sudo director setup apply && sudo sh -c 'cd /data; sha256sum setup/setup.json'")
    check("setup apply runs again", applied.returncode == 0 and applied.stdout.strip() in before,
          applied.stdout + applied.stderr)
    consul = Consul()
    consul.begins(vm)
    logs = Logs()
    logs.begins(vm)
    booted = vm.on("cat /proc/sys/kernel/random/boot_id", check=True).stdout
    vm.on("sudo systemctl reboot")
    vm.forget()
    again = time.monotonic()
    wait("a restart", lambda: vm.on("cat /proc/sys/kernel/random/boot_id").stdout not in ("", booted))
    vm.page()
    check(f"it comes back after a restart: the log-in page after {time.monotonic() - again:.0f} s", True)
    check("no unit failed after it", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)
    consul.until(vm, "after the restart", {"passing"})
    consul.ends(vm)
    logs.ends(vm)
    vm.forget()
    vm.stop()

    os.remove(root)
    vm.uefi = True
    vm.start(vm.disk("root"), data)
    vm.page()
    check(f"a new root disk, with UEFI and without a seed: the log-in page after {time.monotonic() - vm.began:.0f} s",
          True)
    vm.wait_ssh()  # with the host key of before: it is in known_hosts
    done = vm.login(ca)
    check("the former authority and password are good", done.returncode == 0, done.stdout + done.stderr)
    after = vm.on("sudo sh -c 'cd /data; sha256sum setup/setup.json director/tls/ca.crt ssh/*.pub machine-id'",
                  check=True).stdout
    check("setup, authority, host key and machine id are the same", after == before, before + after)
    boots = vm.on("sudo journalctl --list-boots | grep -c '^ *-*[0-9]'").stdout.strip()
    check("the journal has all three boots", boots == "3", boots)
    check("it booted with UEFI", vm.on("test -d /sys/firmware/efi").returncode == 0)
    vm.forget()
    vm.destroy()

    other = seed("nocloud-other", "cidata", {"user-data": "#cloud-config\n" + json.dumps({
        "hostname": "director-9.example.org", "director": {"admin_password": PASSWORD},
    }), "meta-data": "{}\n"})
    vm.start(f"{DISKS}/nocloud-root.qcow2", data, seed=other)
    vm.expect("the data disk is of the director director-1.example.org, and the properties say director-9.example.org")
    check("the data disk of another director is refused on the console", True)
    vm.destroy()


def environment(name: str, values: dict) -> str:
    """Make a CD with an OVF environment."""
    listed = "".join(f"<Property oe:key={quoteattr('director.' + k)} oe:value={quoteattr(v)}/>" for k,
                     v in values.items())
    return seed(name, "OVF ENV", {"ovf-env.xml": (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" '
        f'xmlns:oe="http://schemas.dmtf.org/ovf/environment/1" '
        f'oe:id=""><PropertySection>{listed}</PropertySection></Environment>\n'
    )})


def ovf() -> None:
    """First boot by the CD with an OVF environment, with UEFI, and an address by DHCP; before it, with a wrong one."""
    vm = VM("ovf", "10.89.0.11", "52:54:00:89:00:11", uefi=True)
    key = open(f"{WORK}/id.pub", encoding="utf-8").read().strip()
    values = {"hostname": "director-2", "admin_password": PASSWORD, "ssh_keys": key, "address": "", "ntp": "10.89.0.1"}
    root, data = vm.disk("root"), vm.disk("data", "20G")
    vm.start(root, data, cdrom=environment("ovf-wrong", values | {"dns": "10.89.0.300", "adress": "10.89.0.11/24"}))
    for text in ("The properties are from", "adress", "10.89.0.300", "DNS servers [10.89.0.300]: "):
        vm.expect(text)
    check("the console says which properties are wrong, and asks for those alone", True)
    vm.destroy()
    vm.start(root, data, cdrom=environment("ovf-seed", values))
    vm.page()
    check(f"first boot by a CD with an OVF environment, UEFI and DHCP: the log-in page after "
          f"{time.monotonic() - vm.began:.0f} s", True)
    vm.wait_ssh()
    done = vm.login(vm.authority())
    check("the API takes the password of the properties", done.returncode == 0, done.stdout + done.stderr)
    check("no unit failed", vm.on("! systemctl --failed --no-legend --plain | grep .").returncode == 0)
    vm.forget()
    vm.destroy()


def form() -> None:
    """First boot by the form on the serial console, after a disk with foreign data was refused."""
    vm = VM("form", "10.89.0.12", "52:54:00:89:00:12")
    foreign = f"{DISKS}/form-foreign.raw"
    sh("qemu-img", "create", "-q", "-f", "raw", foreign, "20G")
    sh("mkfs.xfs", "-q", "-L", "photos", foreign)
    before = sh("sha256sum", foreign).stdout
    sh("qemu-img", "convert", "-f", "raw", "-O", "qcow2", foreign, f"{DISKS}/form-foreign.qcow2")
    vm.start(vm.disk("root"), f"{DISKS}/form-foreign.qcow2")
    vm.expect("holds a file system xfs photos")
    vm.expect("nothing was changed")
    check("a disk with foreign data is refused on the console", True)
    vm.expect("Press Enter to try again.")
    sh("virsh", "-q", "attach-disk", vm.name, vm.disk("data", "20G"), "vdd", "--subdriver", "qcow2", "--live")
    vm.console.sendall(b"\r")
    key = open(f"{WORK}/id.pub", encoding="utf-8").read().strip()
    for prompt, line in [
        ("Host name: ", "-wrong-"), ("Address: ", vm.address + "/24"), ("Gateway: ", "10.89.0.1"),
        ("DNS servers: ", "10.89.0.1"),
        ("DNS search domains: ", ""), ("NTP servers: ", "10.89.0.1"), ("Password of admin: ", "short"),
        ("Password of admin, again: ", "short"), ("SSH public keys: ", key),
        ("hostname: \"-wrong-\" is no host name", ""),  # and Enter keeps what is wrong
        ("Host name [-wrong-]: ", "director-3"),
    ]:
        vm.answer(prompt, line) if line or prompt.endswith(": ") else vm.expect(prompt)
    vm.answer("Password of admin: ", PASSWORD)
    vm.answer("Password of admin, again: ", PASSWORD)
    vm.answer("Is this right?", "yes")
    began = time.monotonic()
    vm.expect("The director is set up.")
    check("the form on the serial console names what is wrong, and takes what is right", True)
    vm.page()
    check(f"the log-in page {time.monotonic() - began:.0f} s after the form, {time.monotonic() - vm.began:.0f} s after "
          f"power-on", True)
    vm.wait_ssh()
    done = vm.login(vm.authority())
    check("the API takes the password of the form", done.returncode == 0, done.stdout + done.stderr)
    check("the password was not shown", PASSWORD not in open(vm.serial + ".log", encoding="utf-8",
                                                             errors="replace").read())
    vm.answer("login: ", "admin")
    vm.answer("Password: ", PASSWORD)
    vm.expect("admin@director-3")
    check("the console takes the password", True)
    vm.forget()
    vm.destroy()
    sh("qemu-img", "convert", "-f", "qcow2", "-O", "raw", f"{DISKS}/form-foreign.qcow2", foreign)
    check("the foreign disk is as it was", sh("sha256sum", foreign).stdout == before)


def main() -> None:
    """Run all, or those that are named in KAAS_APPLIANCE_ONLY."""
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test@example.org", "-f", f"{WORK}/id")
    with open(f"{WORK}/network.xml", "w", encoding="utf-8") as f:
        f.write("<network><name>appliance</name><forward mode='open'/><bridge name='appliance0'/><dns enable='no'/>"
                "<ip address='10.89.0.1' prefix='24'><dhcp><range start='10.89.0.100' end='10.89.0.199'/>"
                "<host mac='52:54:00:89:00:11' ip='10.89.0.11'/></dhcp></ip></network>")
    sh("virsh", "-q", "net-create", f"{WORK}/network.xml")
    TIMES.start()
    began = time.monotonic()
    for run in (boot, nocloud, ovf, form, clock, upgrade, before, task, outer, group, group_upgrade, group_roots,
                sizing, restore, cluster):
        if run.__name__.replace("_", "-") not in os.environ["KAAS_APPLIANCE_ONLY"].split():
            continue
        try:
            run()
        except Exception:  # pylint: disable=broad-except # the others run all the same
            check(run.__name__, False, traceback.format_exc())
            log = f"{WORK}/{run.__name__}.serial.log"
            if os.path.exists(log):
                print(open(log, encoding="utf-8", errors="replace").read()[-6000:])
            sh("virsh", "-q", "destroy", run.__name__, check=False)
    print(f"appliance: {RESULTS['checks']} checks, {RESULTS['failures']} failed, {time.monotonic() - began:.0f} s")
    sys.exit(1 if RESULTS["failures"] else 0)


main()
