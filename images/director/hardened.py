"""What the CIS benchmark of Debian asks of the appliance, as far as it applies. docs/operate/cis.md has the list."""

import re

from vms import HERE, VM, check

FILES = f"{HERE}/files/etc"
# Programs that run as another user or group: for log-in, sudo, mounts and the agent of SSH.
SUID = {"dbus-daemon-launch-helper", "mount", "passwd", "ssh-agent", "su", "sudo", "umount", "unix_chkpwd"}


def lines(file: str) -> list:
    """Return the lines of a file of the image that are no comments."""
    with open(f"{FILES}/{file}", encoding="utf-8") as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]


def hardened(vm: VM) -> None:
    """Compare the appliance that runs with what its files say, and look for what must not be there."""
    wanted = dict(re.split(r"\s*=\s*", line) for line in lines("sysctl.d/90-director.conf"))
    seen = vm.on("sudo sysctl " + " ".join(wanted)).stdout
    has = dict(re.findall(r"^(\S+) = (.*)$", seen, re.M))
    wrong = {key: has.get(key) for key, value in wanted.items() if has.get(key) != value}
    check(f"{len(wanted)} settings of the kernel are as the image says", not wrong, str(wrong))

    modules = [line.split()[1] for line in lines("modprobe.d/director.conf")]
    seen = vm.on("for m in " + " ".join(modules) + "; do sudo modprobe -nv $m; done").stdout
    check(f"{len(modules)} modules are never loaded",
          [line.strip() for line in seen.splitlines()].count("install /bin/false") == len(modules), seen)

    seen = vm.on("sudo sshd -T").stdout.lower()
    wrong = [line for line in lines("ssh/sshd_config.d/director.conf") if line.lower() not in seen]
    check("the SSH server has its settings", not wrong, str(wrong))

    seen = vm.on("for m in /tmp /dev/shm /data; do findmnt -rno TARGET,OPTIONS $m; done").stdout
    wrong = [f"{path} {option}" for path in ("/tmp", "/dev/shm", "/data") for option in ("nosuid", "nodev")
             if not re.search(rf"^{path} \S*\b{option}\b", seen, re.M)]
    check("what can be written is mounted without devices and set-uid programs", not wrong, str(wrong) + seen)

    seen = vm.on("sudo find / -xdev -type f -perm -0002 -print; sudo find / -xdev -type d -perm -0002 ! -perm -1000; "
                 "sudo find / -xdev \\( -nouser -o -nogroup \\)").stdout.split()
    check("nothing can be written by everybody, and all files have an owner", not seen, str(seen[:20]))
    seen = vm.on("sudo find / -xdev -type f -perm /6000").stdout.split()
    check("no unknown program runs as another user", {path.rsplit("/", 1)[1] for path in seen} <= SUID, str(seen))
    seen = vm.on("sudo awk -F: '$2 !~ /^[!*]/ {print $1}' /etc/shadow").stdout.split()
    check("nobody but admin has a password", set(seen) <= {"admin"}, str(seen))
    seen = vm.on("sudo journalctl -b -u systemd-journald --no-pager").stdout
    check("the journal is bounded", "max 1.0G" in seen, seen)
    seen = vm.on("grep '^Max core' /proc/$(systemctl show -P MainPID director)/limits").stdout.split()
    check("a crash of the director writes no memory to a disk", seen[4:6] == ["0", "0"], str(seen))


def supported(vm: VM) -> None:
    """The bundle for support has what it should, can be read by root alone, and has no secret."""
    done = vm.on("sudo director support /run/support.tar.gz && sudo stat -c %a /run/support.tar.gz && "
                 "sudo tar -tzf /run/support.tar.gz && sudo mkdir /run/support && "
                 "sudo tar -xzf /run/support.tar.gz -C /run/support")
    check("a bundle for support is written, for root alone", done.returncode == 0 and "\n600\n" in done.stdout,
          done.stdout + done.stderr)
    print("        " + " ".join(done.stdout.split("600\n")[-1].split()), flush=True)
    hashed = vm.on("sudo sh -c 'grep -rlE \"correct horse|[$]argon2|[$]6[$]|[$]y[$]|PRIVATE KEY\" /run/support; "
                   "rm -rf /run/support /run/support.tar.gz'").stdout
    check("no password, hash or key is in it", not hashed, hashed)
