#!/usr/bin/env bash
# Everything, in the order in which a fault shows up soonest. Stops at the first stage that fails; prints how long each took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS=-tags=libvirt_dlopen
passed=0 skipped=0

stage() { # name command...
    local name=$1 began=$SECONDS
    shift
    printf '\n=== %s\n' "$name"
    if "$@"; then
        passed=$((passed + 1))
        printf '=== %s: ok, %d s\n' "$name" $((SECONDS - began))
    else
        printf '=== %s: FAILED after %d s\n%d passed, 1 failed\n' "$name" $((SECONDS - began)) "$passed"
        exit 1
    fi
}

left_out() { # name why
    skipped=$((skipped + 1))
    printf '\n=== %s: LEFT OUT, %s\n' "$1" "$2"
}

unit() {
    KAAS_REQUIRE_REAL=1 go test -timeout 15m ./cmd/... ./director/... ./images/... ./inventory-templates/... ./playbooks/... ./plugins/... ./test/lab/...
}

# Journals that are cut behind every event run the same code again and again: without the detector they have had their run.
race() {
    go test -race -timeout 10m -skip TestEveryCut ./director/engine ./director/hypervisor/... ./director/store ./director/client ./director/schedule
}

libvirt_in_lab() { # set -e does not hold in here: what calls this looks at its answer
    local tests=$PWD/bin/libvirt.test uri
    go test -c -o "$tests" ./plugins/libvirt && uri=$("$lab" host crashing) || return
    (
        cd plugins/libvirt &&
            "$lab" exec -- env KAAS_LAB_URI=qemu:///system "$tests" -test.run 'Lab|Conformance' -test.timeout 10m &&
            "$lab" exec -- env KAAS_LAB_URI="$uri" KAAS_LAB_RESTART="$PWD/../../test/lab/crash.sh crashing" "$tests" -test.run '^TestLabRestart$' -test.v -test.timeout 5m
    )
}

with_lab() { # command...: in a lab of its own, which is taken down whatever happens
    export LAB_DIR=/run/director-lab-test LAB_DATA=/var/lib/director-lab-test
    local rc=0
    "$lab" down
    "$lab" up
    "$@" || rc=$?
    "$lab" down
    unset LAB_DIR LAB_DATA
    return "$rc"
}

lab=$PWD/test/lab/lab
test/lab/need.sh ansible ansible-lint yamllint shellcheck openssh-server openssh-client libvirt0 postgresql haproxy curl skopeo qemu-utils fdisk e2fsprogs util-linux

stage 'build' make build
stage 'release bundle' images/release/build.sh --kubernetes 1.37
stage 'lint' test/lint.sh
stage 'unit and integration' unit
stage 'race detector' race
stage 'fuzzing' test/fuzz.sh 20s
stage 'kill loop' env KILLS=20 KAAS_REQUIRE_REAL=1 test/kill/kill.sh
stage 'playbooks' playbooks/test.sh
stage 'lab' test/lab/lab_test.sh
bundle=$(images/release/build.sh --kubernetes 1.37 | tail -n 1)
stage 'node image' images/node/build.sh --release "$bundle"
image=$(images/node/build.sh --release "$bundle" | tail -n 1)
stage 'node image on a VM' images/node/test.sh "$image"
stage 'libvirt back end on a real host' with_lab libvirt_in_lab
if "$lab" containers >/dev/null; then
    stage 'node image as a container' env LAB_GUESTS=container images/node/test.sh "$image"
    stage 'end to end on containers, with the CIS benchmark' env LAB_GUESTS=container test/e2e/e2e.sh
else
    left_out 'node image as a container' "$("$lab" containers || :)"
fi
stage 'end to end' test/e2e/e2e.sh
# It takes about 15 minutes, and 20 more if it has to build the older release first.
limit=${KAAS_TEST_MINUTES:-90} needs=20
images/release/build.sh --kubernetes 1.36 --cached >/dev/null 2>&1 || needs=40
if [[ $("$lab" kvm) != kvm ]] && ! "$lab" containers >/dev/null; then
    left_out 'life of nodes' 'emulated nodes take it more than an hour: make test/nodes'
elif ((SECONDS / 60 + needs > limit)); then
    left_out 'life of nodes' "$((SECONDS / 60)) of $limit minutes have passed (KAAS_TEST_MINUTES): make test/nodes"
else
    stage 'life of nodes' test/e2e/e2e.sh nodes
fi
printf '\n%d passed, 0 failed, %d left out\n' "$passed" "$skipped"
