#!/bin/bash
# test.sh [DIR] boots the appliance of images/director/build.sh in a lab of its own, sets it up in each way that there
# is, also with a clock that is years off, looks at what it must be, has it run an agent of Consul and send its journal
# to a log server, restarts it, replaces its root disk, upgrades it in place, also as a task of an outer plan, has
# another director make one, makes a group of three and upgrades it, and lets it create a cluster, in the middle of
# which it is upgraded. Prints how long it took.
#
# KAAS_APPLIANCE_ONLY runs some: "nocloud ovf form clock upgrade before task outer group group-upgrade group-roots
# sizing restore cluster". "before" upgrades the appliance of an earlier commit, which before.sh builds; KAAS_BEFORE
# names another commit.
# KAAS_APPLIANCE_ONLY=boot is the first part of nocloud alone: one boot, and a look at what every appliance must be.
# KAAS_APPLIANCE_KEEP=1 keeps the files of the run.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
root=$(readlink -f "$here/../..")
lab=$root/test/lab/lab
dir=$(readlink -f "${1:-$("$here/build.sh" | tail -n 1)}")
all="nocloud ovf form clock upgrade before task outer group group-upgrade group-roots sizing restore cluster"
export PYTHONDONTWRITEBYTECODE=1 KAAS_APPLIANCE_ONLY=${KAAS_APPLIANCE_ONLY:-$all}

"$root/test/lab/need.sh" genisoimage openssh-client qemu-utils ovmf xfsprogs python3 dnsmasq-base e2fsprogs zstd
APPLIANCE_TEST_DIR=$(mktemp -d /var/tmp/director-appliance-test.XXXXXX)
export APPLIANCE_TEST_DIR LAB_DIR=$APPLIANCE_TEST_DIR/lab LAB_DATA=$APPLIANCE_TEST_DIR/data LAB_GUESTS=vm
hypervisor=$APPLIANCE_TEST_DIR/hypervisor

# on_hypervisor runs a command of the lab that the nodes of a cluster are in.
on_hypervisor() {
    LAB_DIR=$hypervisor/lab LAB_DATA=$hypervisor/data LAB_GUESTS=$guests "$lab" "$@"
}

finish() {
    [[ ! -d $hypervisor ]] || on_hypervisor down >/dev/null 2>&1 || :
    "$lab" down >/dev/null 2>&1 || :
    [[ -n ${KAAS_APPLIANCE_KEEP:-} ]] || rm -rf "$APPLIANCE_TEST_DIR"
}

# start_hypervisor starts that lab with an SSH server for the director, and joins it to the appliance's by a cable.
# Neither has a way out. Guests are containers there where VMs would be emulated.
start_hypervisor() {
    local a b
    "$root/test/lab/need.sh" openssh-server age chromium
    APPLIANCE_TEST_BUNDLE=$("$root/images/release/build.sh" --kubernetes 1.37 | tail -n 1)
    APPLIANCE_TEST_IMAGE=$("$root/images/node/build.sh" --release "$APPLIANCE_TEST_BUNDLE" | tail -n 1)
    export APPLIANCE_TEST_BUNDLE APPLIANCE_TEST_IMAGE
    guests=vm
    [[ $("$lab" kvm) == kvm ]] || guests=container
    mkdir -p "$hypervisor" /run/sshd
    on_hypervisor up
    read -r a _ <"$LAB_DIR/pid"
    read -r b _ <"$hypervisor/lab/pid"
    ip link add cable netns "$a" type veth peer name cable netns "$b"
    "$lab" exec -- sh -ec \
        "ip address add 10.91.0.1/30 dev cable; ip link set cable up; ip route add 10.88.0.0/24 via 10.91.0.2"
    on_hypervisor exec -- sh -ec \
        "ip address add 10.91.0.2/30 dev cable; ip link set cable up; ip route add 10.89.0.0/24 via 10.91.0.1"
    ssh-keygen -q -t ed25519 -N '' -C director -f "$APPLIANCE_TEST_DIR/hypervisor.id"
    ssh-keygen -q -t ed25519 -N '' -C hypervisor -f "$hypervisor/host"
    echo "10.91.0.2 $(cut -d ' ' -f 1,2 "$hypervisor/host.pub")" >"$APPLIANCE_TEST_DIR/hypervisor.known"
    cat >"$hypervisor/sshd" <<END
ListenAddress 10.91.0.2
HostKey $hypervisor/host
AuthorizedKeysFile $APPLIANCE_TEST_DIR/hypervisor.id.pub
StrictModes no
PasswordAuthentication no
UsePAM no
PidFile none
END
    on_hypervisor exec -- /usr/sbin/sshd -D -e -f "$hypervisor/sshd" >"$hypervisor/sshd.log" 2>&1 &
}

trap finish EXIT
trap 'exit 130' INT TERM
if [[ " $KAAS_APPLIANCE_ONLY " == *" before "* ]]; then
    APPLIANCE_TEST_BEFORE=$("$here/before.sh" ${KAAS_BEFORE:+"$KAAS_BEFORE"} | tail -n 1)
    export APPLIANCE_TEST_BEFORE
fi
if [[ $KAAS_APPLIANCE_ONLY == *group* ]]; then # the lab has no way out to install them
    "$root/test/lab/need.sh" postgresql nfs-ganesha nfs-ganesha-vfs openssl age
fi
"$lab" up
if [[ " $KAAS_APPLIANCE_ONLY " == *" nocloud "* ]]; then
    APPLIANCE_TEST_CONSUL=$("$root/test/consul/build.sh" | tail -n 1)
    export APPLIANCE_TEST_CONSUL
fi
[[ " $KAAS_APPLIANCE_ONLY " != *" "@(cluster|restore)" "* ]] || start_hypervisor
"$lab" exec -- "$here/test.py" "$dir"
