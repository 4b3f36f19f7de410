#!/usr/bin/env bash
# Everything, in two lanes side by side: what needs no guest in one, guests in the other; the last stages go to the lane
# that is free. The first stage that fails ends both. Prints a table of how long each stage took, slowest first, and
# then what failed.
#
# A stage of VMs or playbooks that has passed with the same inputs in the last week is not run again, as Go does with
# tests: KAAS_TEST_AGAIN=1 runs it. KAAS_TEST_END minutes (80) after the start, the last stages are left out or cut off:
# the table says which, and what runs them.
#
# KAAS_TEST_GUESTS=vm (make test/vm) runs every scenario on VMs. Without it, the long ones run in container guests where
# there is no KVM; the node image boots and is prepared on an emulated VM all the same.
# Each stage writes to a file below bin/test-logs.
#
# shellcheck disable=SC2317 # stage calls functions by name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source test/go.sh
lab=$PWD/test/lab/lab
logs=$PWD/bin/test-logs
cache=${XDG_CACHE_HOME:-$HOME/.cache}/director
end=${KAAS_TEST_END:-80} # minutes
# Where Go's tests have their files: in memory if there is room, where journals take about half of the time.
fast=/dev/shm
(($(df --output=avail $fast | tail -n 1) > 6 << 20)) || fast=${TMPDIR:-/tmp}
times=$logs/times
guests=${KAAS_TEST_GUESTS:-}
rm -rf "$logs"
mkdir -p "$logs"
: >"$times"

stage() { # name command...: runs it with its output in a file; ends this lane if it fails
    local name=$1 began=$SECONDS log=$logs/${1//[^a-zA-Z0-9]/-}.log rc=0
    shift
    printf '=== %s\n' "$name"
    "$@" >"$log" 2>&1 || rc=$?
    ended "$name" "$began" "$rc" "$log"
}

ended() { # name began answer log: writes the stage into the table; ends this lane if it has failed
    local took=$((SECONDS - $2))
    printf '%d\t%s\n' "$took" "$1" >>"$times"
    if (($3 == 0)); then
        printf '=== %s: ok, %d s\n' "$1" "$took"
        return
    fi
    printf '\n=== %s: FAILED with %d after %d s. The end of %s:\n' "$1" "$3" "$took" "$4"
    tail -n 250 "$4"
    failures "$1" "$3" "$4" >>"$logs/failures"
    exit 1
}

# failures says in a few lines what failed. They end the whole run: some readers of it get to see no others.
failures() { # name answer log
    printf '%s: FAILED with %d\n' "$1" "$2"
    # Go's tests, Playwright's list of failed ones, vitest and unittest, linters.
    local lines='^ *--- FAIL|^FAIL|^panic:|WARNING: DATA RACE|^ +[0-9]+\) .* › |^ *(FAIL|ERROR):? | Error: '
    grep -E "$lines"'|^error |\.go:[0-9]+:[0-9]+: ' "$3" |
        awk '!seen[$0]++' | cut -c 1-200 | tail -n 25 | sed 's/^/    /' || :
    tail -n 5 "$3" | cut -c 1-200 | sed 's/^/  > /'
}

# unless_passed is stage, without what has passed on this machine with the same inputs in the last seven days.
unless_passed() { # inputs name command...
    local key=$1
    shift
    ! passed "$key" "$1" || return 0
    stage "$@"
    remember "$key"
}

passed() { # inputs name: whether it has, which the table says
    local file=$cache/passed/$1
    [[ -z ${KAAS_TEST_AGAIN:-} && -n $(find "$file" -mtime -7 2>/dev/null) ]] || return 1
    printf -- '=\t%s: passed with the same inputs at %s\n' "$2" "$(<"$file")" >>"$times"
    printf '=== %s: passed with the same inputs at %s\n' "$2" "$(<"$file")"
}

remember() { # inputs
    local new=$cache/passed/$1.$BASHPID
    mkdir -p "$cache/passed"
    date -u +%Y-%m-%dT%H:%M:%SZ >"$new"
    mv "$new" "$cache/passed/$1"
}

# inputs is one hash over a text, all files below paths, this script, and the packages that guests and playbooks run on.
# The tests of Go's packages are no part of it: only libvirt's are run by such a stage, and its text has their program.
inputs() { # text path...
    local text=$1
    shift
    {
        printf '%s\n' "$text" "$(uname -r)" "$guests"
        dpkg-query -W '*qemu*' '*libvirt*' 'ansible*' python3 'systemd*' 'grub*' 2>/dev/null || :
        git ls-files -z -co --exclude-standard -- test/run.sh "$@" | grep -zv '_test\.go$' | sort -zu |
            xargs -0 sha256sum
    } | sha256sum | cut -c 1-24
}

left_out() { # name why
    printf -- '-\t%s: LEFT OUT, %s\n' "$1" "$2" >>"$times"
    printf '=== %s: LEFT OUT, %s\n' "$1" "$2"
}

unit() {
    images/compile.sh test/s3/build.sh
    images/compile.sh test/consul/build.sh
    images/compile.sh test/stepca/build.sh
    # The linter has vetted the same code. No answer is taken from Go's cache: it does not know the playbooks, scripts
    # and programs that tests start.
    TMPDIR=$fast KAAS_REQUIRE_REAL=1 go test -count=1 -vet=off -timeout 20m ./client/... ./cmd/... ./director/... \
        ./images/... ./inventory-templates/... ./playbooks/... ./plugins/... ./test/docs ./test/house ./test/e2e \
        ./test/lab/... ./test/loopback ./test/tree
}

# Journals that are cut behind every event run the same code again and again: without the detector they have had their
# run.
race=(env TMPDIR="$fast" go test -count=1 -race -vet=off -timeout 20m -skip TestEveryCut ./director/engine
    './director/hypervisor/...' ./director/store ./director/client ./director/schedule)

libvirt_in_lab() { # set -e does not hold in here: what calls this looks at its answer
    local tests=$PWD/bin/libvirt.test uri second
    uri=$("$lab" host crashing) && second=$("$lab" host second) || return
    (
        cd plugins/libvirt &&
            "$lab" exec -- env KAAS_LAB_URI=qemu:///system KAAS_LAB_SECOND_URI="$second" \
                "$tests" -test.run 'Lab|Conformance' -test.timeout 10m &&
            "$lab" exec -- env KAAS_LAB_URI="$uri" KAAS_LAB_RESTART="$PWD/../../test/lab/crash.sh crashing" \
                "$tests" -test.run '^TestLabRestart$' -test.v -test.timeout 5m
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

host_lane() {
    stage 'lint' test/lint.sh
    stage 'unit and integration' unit
    what_is_left
}

guest_lane() {
    on_guests
    what_is_left
}

# what_is_left runs the stages that either lane can: each goes to the lane that gets to it first. Those that look for
# rare faults in code that has passed its tests by then are last. A slow machine that has no time for one leaves it out.
what_is_left() {
    last console 14 web/console/test.sh '' 'console in a browser' web/console/test.sh
    last appliance 6 'make test/appliance' "$(inputs appliance "${appliance[@]}")" 'appliance on a VM' \
        env KAAS_APPLIANCE_ONLY=boot images/director/test.sh
    last playbooks 10 playbooks/test.sh "$(inputs playbooks playbooks inventory-templates)" playbooks playbooks/test.sh
    last kill 5 'make test/kill' '' 'kill loop, with the race detector in the whole director' \
        env RACE=1 KILLS=20 KAAS_REQUIRE_REAL=1 test/kill/kill.sh
    last race 7 'make test/race' '' 'race detector' "${race[@]}"
    last fuzzing 3 test/fuzz.sh '' fuzzing test/fuzz.sh 20s
}

# What the appliance is built of, without the pages of the manual that change with each measurement.
appliance=(images cmd director plugins playbooks inventory-templates web/console docs ':(exclude)docs/develop' test/lab
    go.sum Makefile)

# last runs a stage that no other lane has begun, if it should end in time. minutes is how long it takes on a quiet
# machine of two cores. A stage that takes longer than was thought is cut off at the end; what has failed by then
# counts.
last() { # name minutes by-hand inputs stage command...
    local name=$1 needs by_hand=$3 key=$4 title=$5 began=$SECONDS log minute=$((SECONDS / 60)) rc=0
    needs=$(($2 * $(slowness) / 100))
    log=$logs/${title//[^a-zA-Z0-9]/-}.log
    shift 5
    claim "$name" || return 0
    [[ -z $key ]] || ! passed "$key" "$title" || return 0
    if ((minute + needs > end)); then
        left_out "$title" "$minute of $end minutes have passed (KAAS_TEST_END), and it would take $needs: $by_hand"
        return
    fi
    printf '=== %s\n' "$title"
    within $((end * 60 - SECONDS)) "$@" >"$log" 2>&1 || rc=$?
    if ((rc == 124 || rc == 137)) && ! failed "$log"; then
        left_out "$title" \
            "cut off after $(((SECONDS - began) / 60)) minutes, nothing had failed (KAAS_TEST_END): $by_hand"
        tail -n 5 "$log" | cut -c 1-200 | sed 's/^/  > /'
        return
    fi
    ended "$title" "$began" "$rc" "$log"
    [[ -z $key ]] || remember "$key"
}

# within is timeout. What timeout runs is a process group of its own, which stop does not know, so that the signal is
# handed on.
within() { # seconds command...
    local running rc=0
    timeout -k 30 "$@" &
    running=$!
    trap 'kill -TERM "$running" && wait "$running"; exit 143' TERM
    wait "$running" || rc=$?
    trap - TERM
    return "$rc"
}

# failed says whether a log has a failure of a test already: a Go test, a browser test at its second try, a unit test.
failed() { # log
    grep -qE '^ *--- FAIL|^FAIL|^panic:|WARNING: DATA RACE|✘.*retry #|^playbooks: |^ *(FAIL|ERROR):' "$1"
}

# slowness says in per cent how long stages take here, by the last one that is known: 100 on a quiet machine of two
# cores.
slowness() {
    awk -F '\t' '
        $2 == "lint" { slow = $1 * 100 / 220 }
        $2 == "unit and integration" { slow = $1 * 100 / 900 }
        END { print int(slow > 100 ? slow : 100) }' "$times"
}

claim() { # name: succeeds once
    mkdir "$logs/claimed-$1" 2>/dev/null
}

# What a VM sees of the director while it is prepared. The rest runs on containers in every run.
prepared=(playbooks inventory-templates plugins director/ansible director/inventory director/steps director/step
    director/kube director/hypervisor test/e2e test/lab)
on_guests() {
    local bundle image
    bundle=$(images/release/build.sh --kubernetes 1.37 | tail -n 1)
    stage 'lab' test/lab/lab_test.sh
    stage 'node image' images/node/build.sh --release "$bundle"
    image=$(images/node/build.sh --release "$bundle" | tail -n 1)
    unless_passed "$(inputs "node $image" images/node test/lab)" 'node image on a VM' images/node/test.sh "$image"
    unless_passed "$(inputs loader images/director)" 'loader of the appliance on a VM' images/director/loader.sh
    go test -c -vet=off -o bin/libvirt.test ./plugins/libvirt
    unless_passed "$(inputs "libvirt $(sha256sum <bin/libvirt.test)" test/lab)" \
        'libvirt back end on a real host' with_lab libvirt_in_lab
    if [[ $guests == vm || $("$lab" kvm) == kvm ]]; then
        stage 'end to end on VMs' test/e2e/e2e.sh
        stage 'life of nodes on VMs' env LAB_GUESTS=vm test/e2e/e2e.sh nodes
        return
    fi
    unless_passed "$(inputs "prepare $image" "${prepared[@]}")" 'nodes are prepared on VMs' test/e2e/e2e.sh prepare
    if ! "$lab" containers >/dev/null; then
        left_out 'node image as a container' "$("$lab" containers || :)"
        stage 'end to end on VMs' test/e2e/e2e.sh
        left_out 'life of nodes' 'emulated nodes take it more than an hour: make test/nodes'
        return
    fi
    stage 'node image as a container' env LAB_GUESTS=container images/node/test.sh "$image"
    stage 'end to end on containers' env LAB_GUESTS=container test/e2e/e2e.sh
    life_of_nodes
}

# It takes about 15 minutes, and 20 more if it has to build the older release first.
life_of_nodes() {
    local limit=${KAAS_TEST_MINUTES:-45} needs=20
    images/release/build.sh --kubernetes 1.36 --cached >/dev/null 2>&1 || needs=40
    if ((SECONDS / 60 + needs > limit)); then
        left_out 'life of nodes' "$((SECONDS / 60)) of $limit minutes have passed (KAAS_TEST_MINUTES): make test/nodes"
    else
        stage 'life of nodes on containers' env LAB_GUESTS=container test/e2e/e2e.sh nodes
    fi
}

# stop ends a lane with all that it started, in good order first: labs are taken down by what made them.
stop() { # process group
    kill -TERM -- "-$1" 2>/dev/null || return 0
    for _ in {1..300}; do
        kill -0 -- "-$1" 2>/dev/null || return 0
        sleep 0.2
    done
    kill -KILL -- "-$1" 2>/dev/null || :
}

test/lab/need.sh ansible ansible-lint yamllint shellcheck openssh-server openssh-client libvirt0 postgresql \
    rsyslog rsyslog-gnutls slapd samba-ad-dc samba-ad-provision iproute2 haproxy curl skopeo qemu-utils \
    fdisk e2fsprogs systemd util-linux minisign chromium
stage 'build' make -j3 build
stage 'release bundle' images/release/build.sh --kubernetes 1.37

set -m # each lane is a process group of its own
host_lane &
first=$!
guest_lane &
second=$!
set +m
trap 'stop "$first"; stop "$second"; exit 130' INT TERM
rc=0 ended=
wait -n -p ended "$first" "$second" || rc=$?
left=$first
[[ $ended != "$first" ]] || left=$second
((rc == 0)) || stop "$left"
wait "$left" || rc=$?

printf '\nSeconds of each stage, in %d s:\n' "$SECONDS"
sort -rn "$times" | sed 's/^/  /'
skipped=$(grep -c '^-' "$times" || :) before=$(grep -c '^=' "$times" || :)
printf '\n%d stages, %d passed before with the same inputs, %d left out: %s\n' \
    $(($(wc -l <"$times") - skipped - before)) \
    "$before" "$skipped" "$( ((rc == 0)) && echo passed || echo FAILED)"
if [[ -s $logs/failures ]]; then
    printf '\n'
    cat "$logs/failures"
fi
exit "$rc"
