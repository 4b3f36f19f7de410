#!/usr/bin/env bash
# The end-to-end runs, in a lab of their own that is taken down again. Needs bin/director and bin/directorctl (make
# build).
#
#   e2e.sh            create over a kill -9, look from outside, run by hand, delete
#   e2e.sh prepare    VMs of the node image boot, playbooks prepare them, a failing playbook says what to do, delete
#   e2e.sh nodes      drain, take out and bring back, an outer plan's phases, scale out, a destroyed VM, scale in, and
#                     an upgrade from the older minor under a running service and over a kill -9
#   e2e.sh ha         three masters behind a virtual address on three hosts: one off and on, the first out and in, an
#                     outer plan over the other hosts, upgrade, a dead one replaced, a host lost
#   e2e.sh certs      three masters and two workers whose service account key and certificates are renewed under a
#                     service and a writer; the certificates then end while the director is down
#   e2e.sh ca         three masters whose certificate authorities are changed under a service and a writer, with a
#                     director that is killed in each stage, a clock that is off, and once more while the worker is
#                     away, which joins again
#   e2e.sh outer      a master and a worker whose authorities come from an outer one, which ends; then from a step-ca
#   e2e.sh consul     a cluster and a Consul that find each other: agents on the nodes, also over a rejoin and an
#                     upgrade, Services both ways, names, and nothing left in the end
#   e2e.sh restore    three masters (KAAS_E2E_MASTERS): the director is lost four times in one plan, and in a rotation,
#                     and restored from its bundles on other machines; all masters are destroyed, and the cluster is
#                     restored on new ones from a backup in a bucket
#   e2e.sh kubeadm    a cluster, the same with kubeadm by hand on fresh nodes, and the first again: how long each took
#
# The first runs on VMs everywhere. The others do where there is KVM: emulated nodes take them hours, or never come up.
# Elsewhere libvirt's guests are containers with the same disks and adapters (test/lab/README.md). LAB_GUESTS=vm has VMs
# all the same, and LAB_GUESTS=container has containers.
#
# KAAS_E2E_KEEP=1 keeps the lab and the files of a run that ended, to look at; KAAS_E2E_FROM="a worker less" then
# continues with the part that begins so.
# KAAS_E2E_LEAVE_OUT="upgrades|an outer" leaves out the parts that begin so. KAAS_E2E_STRATEGY=reconstitute, or replace,
# upgrades nodes in that way.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export LAB_DIR=${LAB_DIR:-/run/director-lab-e2e} LAB_DATA=${LAB_DATA:-/var/lib/director-lab-e2e}
export KAAS_E2E_ROOT=$root KAAS_E2E_DIR=${KAAS_E2E_DIR:-/var/lib/director-e2e}
lab=$root/test/lab/lab
declare -A plays=(
    [first]=TestEndToEnd [prepare]=TestNodesArePrepared [nodes]=TestNodes [ha]=TestHighlyAvailable
    [certs]=TestCertificates [ca]=TestAuthorities [outer]=TestOuterAuthority [consul]=TestDiscovery
    [restore]=TestRestore [kubeadm]=TestAgainstKubeadm
)
run=${plays[${1:-first}]:?"no such play: $1"}

bundle() { "$root/images/release/build.sh" --kubernetes "$1" | tail -n 1; }
image() { "$root/images/node/build.sh" --release "$1" | tail -n 1; }

"$root/test/lab/need.sh" ansible openssh-client curl iputils-ping chromium
KAAS_E2E_BUNDLE=$(bundle 1.37)
KAAS_E2E_IMAGE=$(image "$KAAS_E2E_BUNDLE")
export KAAS_E2E_BUNDLE KAAS_E2E_IMAGE
KAAS_E2E_KUBE_BENCH=$("$root/test/kube-bench/build.sh")
export KAAS_E2E_KUBE_BENCH
if [[ $run == @(TestNodes|TestHighlyAvailable|TestDiscovery) ]]; then
    KAAS_E2E_OLD_BUNDLE=$(bundle 1.36)
    KAAS_E2E_OLD_IMAGE=$(image "$KAAS_E2E_OLD_BUNDLE")
    export KAAS_E2E_OLD_BUNDLE KAAS_E2E_OLD_IMAGE
fi

long="TestNodes|TestHighlyAvailable|TestCertificates|TestAuthorities|TestOuterAuthority|TestDiscovery|TestRestore"
long+="|TestAgainstKubeadm"
if [[ $run =~ ^($long)$ && -z ${LAB_GUESTS:-} && $("$lab" kvm) == tcg ]] && "$lab" containers >&2; then
    export LAB_GUESTS=container
fi
case $run in # the lab has no way out
TestOuterAuthority) "$root/test/stepca/build.sh" >/dev/null ;;
TestRestore) export KAAS_REQUIRE_REAL=1 && "$root/test/s3/build.sh" >/dev/null ;;
TestDiscovery) export KAAS_REQUIRE_REAL=1 && "$root/test/consul/build.sh" >/dev/null ;;
esac
finish() {
    [[ -n ${KAAS_E2E_KEEP:-} ]] && return
    "$lab" down
    rm -rf "$KAAS_E2E_DIR"
}
trap finish EXIT
if [[ -z ${KAAS_E2E_FROM:-} ]]; then
    "$lab" down
    rm -rf "$KAAS_E2E_DIR"
    mkdir -p "$KAAS_E2E_DIR"
    "$lab" up
fi
# Three masters have three libvirtd with disks of their own, which share a bridge.
if [[ $run == @(TestHighlyAvailable|TestCertificates|TestAuthorities) ||
    ($run == TestRestore && ${KAAS_E2E_MASTERS:-3} != 1) ]]; then
    if [[ $("$lab" kvm) == tcg ]] && (($(nproc) <= 2)); then
        echo "e2e: without KVM, two cores were too few for three masters (docs/develop/benchmarks.md);" \
            "it is tried all the same" >&2
    fi
    if ! "$lab" exec -- ip link show kaas-e2e >/dev/null 2>&1; then
        "$lab" exec -- ip link add kaas-e2e type bridge
        "$lab" exec -- ip address add 10.88.0.1/24 dev kaas-e2e
        "$lab" exec -- ip link set kaas-e2e up
    fi
    if [[ $run == TestRestore ]] && ! "$lab" exec -- ip link show kaas-drill >/dev/null 2>&1; then
        "$lab" exec -- ip link add kaas-drill type bridge
        "$lab" exec -- ip address add 10.90.0.1/24 dev kaas-drill
        "$lab" exec -- ip link set kaas-drill up
    fi
    KAAS_E2E_HOSTS="lab=qemu:///system h2=$("$lab" host h2) h3=$("$lab" host h3)"
    export KAAS_E2E_HOSTS
fi
KAAS_E2E_GUESTS=$(<"$LAB_DIR/accel")
export KAAS_E2E_GUESTS
cd "$root"
source test/go.sh
go test -c -vet=off -o bin/e2e.test ./test/e2e
cd "$root/test/e2e"
rc=0
log=$(mktemp)
"$lab" exec -- "$root/bin/e2e.test" -test.v -test.timeout 170m -test.run "^$run\$" | tee "$log" || rc=$?
if ((rc)); then # once more, for who sees the end of a long output only
    printf '\nwhat failed:\n'
    awk '/^=== RUN/ { part = "" } /what a person would look at first/ { exit }
        { part = part $0 "\n" } END { printf "%s", part }' "$log" | tail -c 6000
fi
rm -f "$log"
((rc == 0))
