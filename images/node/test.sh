#!/bin/bash
# test.sh [IMAGE.qcow2] boots a node image in a lab of its own, looks at what a
# node must be and prints how long it took. Without an argument it takes the
# image without Kubernetes.
#
# shellcheck disable=SC2016 # the quoted commands are expanded on the node
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=$here/../../test/lab/lab
image=${1:-$("$here/build.sh")}
image=$(readlink -f "$image")

if [[ -z ${NODE_TEST_DIR:-} ]]; then # outside: make the lab and go on in it
    "$here/../../test/lab/need.sh" genisoimage openssh-client qemu-utils
    NODE_TEST_DIR=$(mktemp -d /var/tmp/director-node-test.XXXXXX)
    export NODE_TEST_DIR LAB_DIR=$NODE_TEST_DIR/lab LAB_DATA=$NODE_TEST_DIR/data
    trap '"$lab" down >/dev/null 2>&1 || :; rm -rf "$NODE_TEST_DIR"' EXIT
    trap 'exit 130' INT TERM
    "$lab" up
    "$lab" exec -- "$here/test.sh" "$image"
    exit
fi

cd "$NODE_TEST_DIR"
vm=10.89.0.10
failures=0
check() { # check WHAT COMMAND...: the command must succeed on the node
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "ok      $what"
    else
        echo "FAILED  $what: ${out##*$'\n'}"
        failures=$((failures + 1))
    fi
}
check_vm() { # as check, for what a guest without a kernel of its own does not have
    [[ $(<"$LAB_DIR/accel") == container ]] || check "$@"
}
on() { ssh -n -F none -i id -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=yes \
    -o UserKnownHostsFile=known_hosts -o ControlMaster=auto -o ControlPath="$NODE_TEST_DIR/ssh" -o ControlPersist=120 \
    "kaas@$vm" "$@"; }

ssh-keygen -q -t ed25519 -N '' -C test -f id
ssh-keygen -q -t ed25519 -N '' -C '' -f host
# The director logs in with certificates: the image's SSH server has to read what cloud-init writes for it.
ssh-keygen -q -t ed25519 -N '' -C '' -f ca
ssh-keygen -q -s ca -I test -n cluster-test -V -1d:+4h id.pub
echo "$vm $(cut -d' ' -f1,2 host.pub)" >known_hosts

cat >meta-data <<END
{"instance-id": "test-1", "local-hostname": "node-1"}
END
cat >network-config <<END
version: 2
ethernets:
  eth0:
    match: {macaddress: "52:54:00:89:00:10"}
    set-name: eth0
    addresses: [$vm/24]
    routes: [{to: 0.0.0.0/0, via: 10.89.0.1}]
    nameservers: {addresses: [10.89.0.1], search: [example.test]}
END
cat >user-data <<END
#cloud-config
users:
  - name: kaas
    sudo: "ALL=(ALL) NOPASSWD:ALL"
    shell: /bin/bash
    lock_passwd: true
ssh_keys:
  ed25519_private: |
$(sed 's/^/    /' host)
  ed25519_public: "$(<host.pub)"
write_files:
  - {path: /etc/ssh/kaas/user_ca.pub, permissions: "0644", content: "$(<ca.pub)"}
  - {path: /etc/ssh/kaas/principals/kaas, permissions: "0644", content: cluster-test}
  - path: /etc/ssh/sshd_config.d/10-kaas.conf
    permissions: "0644"
    content: |
      TrustedUserCAKeys /etc/ssh/kaas/user_ca.pub
      AuthorizedPrincipalsFile /etc/ssh/kaas/principals/%u
bootcmd: # in the way of the director's documents (director/hypervisor/cloudinit)
  - |
    dev=/dev/disk/by-id/virtio-kaas-data top=/var/lib/kaas-data
    blkid -p "\$dev" || mkfs.ext4 -q -L kaas-data "\$dev"
    mkdir -p "\$top"
    mountpoint -q "\$top" || mount "\$dev" "\$top"
    grep -q " \$top " /etc/fstab || echo "\$dev \$top auto defaults,x-systemd.device-timeout=90s 0 2" >>/etc/fstab
END
genisoimage -quiet -V cidata -J -r -o seed.iso user-data meta-data network-config

disks=/var/lib/libvirt/images
qemu-img create -q -f qcow2 -b "$image" -F qcow2 $disks/node.qcow2 8G
qemu-img create -q -f qcow2 $disks/data.qcow2 1G
cat >network.xml <<END
<network><name>node-test</name><forward mode='open'/><bridge name='nodetest0'/>
<dns enable='no'/><ip address='10.89.0.1' prefix='24'/></network>
END
type=qemu
[[ $(<"$LAB_DIR/accel") != kvm ]] || type=kvm
# Processors and clocks are those of a machine of the director: its libvirt back end writes them (domainXML in
# plugins/libvirt/domainxml.go), and the tests there keep this golden file equal to what it writes.
golden=$here/../../plugins/libvirt/testdata/$type.xml
processors=$(awk '/<(vcpu|features|cpu|clock)[ >]/ { on = 1 } on; /<\/(vcpu|features|cpu|clock)>/ { on = 0 }' "$golden")
[[ $processors == *"<vcpu>"*"<features>"*"<cpu "*"<clock "*"</clock>" ]] || {
    echo "$golden has no longer what a guest's processors and clocks are" >&2
    exit 1
}
cat >domain.xml <<END
<domain type='$type'><name>node-test</name><memory unit='MiB'>1536</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
$processors
<devices>
  <disk type='file' device='disk'>
    <driver name='qemu' type='qcow2' cache='unsafe'/><source file='$disks/node.qcow2'/>
    <target dev='vda' bus='virtio'/><boot order='1'/>
  </disk>
  <disk type='file' device='disk'>
    <driver name='qemu' type='raw'/><source file='$NODE_TEST_DIR/seed.iso'/>
    <target dev='vdb' bus='virtio'/><readonly/>
  </disk>
  <disk type='file' device='disk'>
    <driver name='qemu' type='qcow2' cache='unsafe'/><source file='$disks/data.qcow2'/>
    <target dev='vdc' bus='virtio'/><serial>kaas-data</serial>
  </disk>
  <interface type='network'>
    <mac address='52:54:00:89:00:10'/><source network='node-test'/><model type='virtio'/>
  </interface>
  <serial type='file'><source path='$NODE_TEST_DIR/console'/><target port='0'/></serial>
  <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  <memballoon model='virtio'/>
</devices></domain>
END
virsh -q net-create network.xml
echo "booting $image ($(<"$LAB_DIR/accel"))"
SECONDS=0
virsh -q create domain.xml
until on true 2>ssh.err; do
    if ((SECONDS > 600)); then
        echo "FAILED  no SSH after $SECONDS s: $(<ssh.err)"
        tail -n 30 console
        exit 1
    fi
    sleep 0.5
done
ssh_after=$SECONDS
echo "ok      SSH with the expected host key after $ssh_after s"
check "cloud-init ends without an error" \
    on 'sudo cloud-init status --wait --long | tee /dev/stderr | grep -q "^status: done"'
echo "        cloud-init done after $SECONDS s"
check "no unit failed" on '! systemctl --failed --no-legend --plain | grep .'
check "hostname" on '[ "$(hostname)" = node-1 ] && sudo -n true'
check "root file system has grown to the disk" on '[ "$(df --output=size -BM / | tail -n1 | tr -dc 0-9)" -gt 7000 ]'
check "data disk is formatted and mounted" on 'findmnt -n -o FSTYPE /var/lib/kaas-data | grep -qx ext4 &&
    sudo blkid -s LABEL -o value /dev/disk/by-id/virtio-kaas-data | grep -qx kaas-data'
check "default route and address" on 'ip -o route get 172.30.0.1 | grep -q "via 10.89.0.1 dev eth0"'
check "the lab's own address answers" on 'sudo ping -c1 -W5 172.30.0.1'
check "name server" on 'grep -q "nameserver 10.89.0.1" /run/systemd/resolve/resolv.conf &&
    grep -q "search example.test" /run/systemd/resolve/resolv.conf'
check "/etc/kaas-release" \
    on 'python3 -c "import json; d = json.load(open(\"/etc/kaas-release\")); assert d[\"image\"] == \"debian12\", d"'
check "machine id is its own" on '[ "$(wc -c </etc/machine-id)" = 33 ]'
check_vm "kernel modules" on 'sudo modprobe -a overlay br_netfilter vxlan ip_set nf_tables nft_compat xt_set ip_vs \
    nfs nfsv4 vmxnet3 vmw_pvscsi wireguard'
check "sysctls" on 'v=$(sudo sysctl -n net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables kernel.panic | xargs)
    [ "$v" = "1 1 10" ]'
check_vm "the clock is read without leaving the guest" \
    on 'grep -qxE "tsc|kvm-clock" /sys/devices/system/clocksource/clocksource0/current_clocksource &&
        grep -q tsc=reliable /proc/cmdline'
check "programs move about in memory, unless the CPU is emulated" on 'want=2
    [ "$(systemd-detect-virt)" != qemu ] || want=0
    [ "$(</proc/sys/kernel/randomize_va_space)" = $want ]'
check "timers go off together where the CPU is emulated, and there alone" on 'want=50000
    [ "$(systemd-detect-virt)" != qemu ] || want=20000000
    [ "$(sudo cat "/proc/$(pgrep -o containerd)/timerslack_ns")" = $want ]'
check_vm "processes run for longer where the CPU is emulated, and there alone" \
    on 'n=$(sudo cat /sys/kernel/debug/sched/min_granularity_ns)
        if [ "$(systemd-detect-virt)" = qemu ]; then [ "$n" = 10000000 ]; else [ "$n" -lt 10000000 ]; fi'
check "no swap" on '[ "$(wc -l </proc/swaps)" = 1 ]'
check "programs" on 'export PATH=$PATH:/usr/sbin; for p in haproxy keepalived chronyd nft conntrack iptables ipset \
    ethtool socat mount.nfs runc qemu-ga vmtoolsd growpart python3 crictl; do
    command -v $p >/dev/null || [ $p = crictl ] || { echo "$p is missing" >&2; exit 1; }; done'
check "haproxy and keepalived wait for a playbook" \
    on '! systemctl -q is-enabled haproxy && ! systemctl -q is-enabled keepalived'
check "nothing listens to the network but SSH" on '! sudo ss -Hltnu | grep -Ev ":22 |127[.]0[.]0[.]|\[::1\]" | grep .'
check "no repositories, no host keys of the image" on '! grep -rqs "^deb" /etc/apt &&
    [ "$(ls /etc/ssh/ssh_host_*_key)" = /etc/ssh/ssh_host_ed25519_key ]'
check_vm "guest agent" virsh -q -c qemu:///system qemu-agent-command node-test '{"execute":"guest-ping"}'
if [[ $(on 'ls /usr/local/bin') == *kubelet* ]]; then
    check "containerd runs" on 'systemctl is-active containerd && sudo ctr version'
    check "kubelet waits for kubeadm" on 'systemctl -q is-enabled kubelet && ! systemctl -q is-active kubelet'
    check "kubeadm, kubelet and kubectl have the version of /etc/kaas-release" \
        on 'v=$(python3 -c "import json; print(json.load(open(\"/etc/kaas-release\"))[\"kubernetes\"])")
        [ "$(kubeadm version -o short)" = "$v" ] && [ "$(kubelet --version)" = "Kubernetes $v" ] &&
        kubectl version --client | grep -q "$v"'
    check "CNI plugins" on 'ls /opt/cni/bin/bridge /opt/cni/bin/loopback /opt/cni/bin/portmap /opt/cni/bin/host-local'
fi
if [[ -n ${NODE_TEST_VERBOSE:-} ]]; then
    on 'systemd-analyze; systemd-analyze blame | head -n 30; systemd-analyze critical-chain ssh.service
        sudo journalctl -b -p warning --no-pager | tail -n 40; free -m; ps axo rss,comm --sort -rss | head'
fi
boot=$(on cat /proc/sys/kernel/random/boot_id)
comes_back() {
    local now end=$((SECONDS + 600))
    on sudo systemctl reboot || :
    on -O exit 2>/dev/null || :
    while ((SECONDS < end)); do
        if now=$(on cat /proc/sys/kernel/random/boot_id 2>/dev/null) && [[ $now != "$boot" ]]; then
            on 'for ((i = 0; i < 600; i++)); do findmnt -n /var/lib/kaas-data && exit; sleep 0.2; done; exit 1'
            return
        fi
        sleep 0.5
    done
    echo "no SSH after the restart"
    return 1
}
check "it comes back after a restart, with its data disk" comes_back
echo "        SSH again after $SECONDS s in all"
switches_off() { # the domain is gone once it is off
    local i
    virsh -q -c qemu:///system shutdown --mode acpi node-test
    for ((i = 0; i < 600; i++)); do
        virsh -q -c qemu:///system domstate node-test >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    echo "still $(virsh -q -c qemu:///system domstate node-test)"
    return 1
}
check "the power button switches it off" switches_off
if ((failures)); then
    tail -n 20 console
    echo "$failures checks failed" >&2
    exit 1
fi
echo "node image: all checks passed; SSH after $ssh_after s"
