#!/bin/bash
# lab_test.sh proves on labs of its own that the lab comes up, holds two at
# once, runs commands, and leaves nothing behind: not after down, and no
# process, mount or network after its init was killed.
#
# shellcheck disable=SC2016 # the quoted commands are expanded by the inner shell
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=$here/lab
dir=$(mktemp -d /var/tmp/director-lab-test.XXXXXX)
export LAB_DIR=$dir/one LAB_DATA=$dir/one-data
two() { LAB_DIR=$dir/two LAB_DATA=$dir/two-data "$@"; }
trap '"$lab" down >/dev/null 2>&1 || :; two "$lab" down >/dev/null 2>&1 || :; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

failures=0
check() {
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then
        echo "ok      $what"
    else
        echo "FAILED  $what: $out"
        failures=$((failures + 1))
    fi
}
# holders prints the processes that still are in the network namespace $1 or
# hold a mount below $dir.
holders() {
    local p
    for p in /proc/[0-9]*; do
        if [[ "$(readlink "$p/ns/net" 2>/dev/null)" == "$1" ]] || grep -qs " $dir/" "$p/mountinfo"; then
            echo "${p#/proc/} $(tr '\0' ' ' <"$p/cmdline" 2>/dev/null)"
        fi
    done
}
gone() {
    local i
    for ((i = 0; i < 50; i++)); do
        [[ -n $(holders "$1") ]] || return 0
        sleep 0.1
    done
    holders "$1"
    return 1
}
initpid() { cut -d' ' -f1 "$LAB_DIR/pid"; }
netns() { readlink "/proc/$(initpid)/ns/net"; }
start_guest() {
    "$lab" exec -- virsh -q -c qemu:///system create /dev/stdin <<END
<domain type='qemu'>
  <name>idle</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='pc'>hvm</type></os>
</domain>
END
}
status_code() { local code=0; "$lab" status >/dev/null 2>&1 || code=$?; [[ $code == "$1" ]]; }

links_before=$(ip -o link | cut -d: -f2 | sort)
check "status says down" status_code 3
check "exec without a lab is refused" bash -c '! "$1" exec -- true' - "$lab"
check "up" "$lab" up
check "up again says that it is up" bash -c '"$1" up 2>&1 | grep -q "already up"' - "$lab"
check "status says up" status_code 0
check "one more host" "$lab" host h2
check "the host again has the same URI" bash -c '[[ $("$1" host h2) == *"/hosts/h2/run/libvirt-sock" ]]' - "$lab"
check "a host's guests are its own" bash -c '
    u=$("$1" host h2)
    os="<os><type arch=\"x86_64\" machine=\"pc\">hvm</type></os>"
    "$1" exec -- virsh -q -c "$u" create /dev/stdin \
        <<<"<domain type=\"qemu\"><name>elsewhere</name><memory unit=\"MiB\">32</memory>$os</domain>"
    [[ $("$1" exec -- virsh -q -c "$u" list --name) == elsewhere* &&
        -z $("$1" exec -- virsh -q -c qemu:///system list --name) ]]' - "$lab"
check "virsh reaches libvirt" "$lab" exec -- virsh -c qemu:///system list
check "the pool 'default' is active" bash -c \
    '"$1" exec -- virsh -q -c qemu:///system pool-list | grep -q "default *active"' - "$lab"
check "the director's address" bash -c '"$1" exec -- ip -o address | grep -q "director0 .* 172.30.0.1/24"' - "$lab"
check "exec keeps directory, environment, standard input and exit code" bash -c '
    cd /usr/share && export PROBE="a b" &&
        got=$(echo in | "$1" exec -- sh -c "echo \$PWD:\$PROBE:\$(cat); exit 7") && exit 1
    [[ $? == 7 && $got == "/usr/share:a b:in" ]]' - "$lab"
check "exec inside the lab is the lab" "$lab" exec -- "$lab" exec -- "$lab" status
check "KVM or emulation is said" bash -c '"$1" kvm | grep -Exq "kvm|tcg"' - "$lab"
check "a network of each forward mode" "$lab" exec -- bash -euc '
    for mode in open route nat; do
        rest="<dns enable=\"no\"/><ip address=\"10.77.0.1\" prefix=\"24\"/>"
        virsh -q -c qemu:///system net-create /dev/stdin \
            <<<"<network><name>$mode</name><forward mode=\"$mode\"/><bridge name=\"t$mode\"/>$rest</network>"
        virsh -q -c qemu:///system net-destroy $mode
    done'
check "a guest starts" start_guest
check "a second lab beside it" two "$lab" up
check "the second lab has guests of its own" two bash -c \
    '! "$1" exec -- virsh -q -c qemu:///system list --all | grep idle' - "$lab"
check "the second lab goes down alone" two "$lab" down
check "the first one is still up" status_code 0
check "the machine has no link of a lab" test "$(ip -o link | cut -d: -f2 | sort)" = "$links_before"

ns=$(netns)
kill -KILL "$(initpid)"
check "after a kill of init: no process, mount or network is left" gone "$ns"
check "status says down" status_code 3
check "up after a kill" "$lab" up
check "nothing of the killed lab is there" bash -c \
    '! "$1" exec -- virsh -q -c qemu:///system list --all | grep idle' - "$lab"
ns=$(netns)
check "down" "$lab" down
check "after down: no process, mount or network is left" gone "$ns"
check "after down: no file is left" test -z "$(ls -A "$dir")"
mkdir -p "$dir/foreign/precious"
check "a directory that is not a lab's is not touched" bash -c \
    '! LAB_DATA=$2 "$1" up && [[ -d $2/precious ]]' - "$lab" "$dir/foreign"
((failures == 0)) || { echo "$failures checks failed" >&2; exit 1; }
echo "lab: all checks passed in $SECONDS s"
