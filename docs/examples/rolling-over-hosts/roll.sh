#!/usr/bin/env bash
# Upgrades hypervisor hosts one by one while the clusters on them run:
#   lock the host (its nodes leave their clusters), upgrade it by your own command, unlock it (its nodes come back).
#
#   roll.sh --run up7 --cluster demo --upgrade ./upgrade-host.sh hv1 hv2 hv3
#
# The command gets the name of the host, returns when the host is upgraded and back, and can be run again. directorctl
# must be logged in. Whatever stops the script: run it again with the same --run, and it continues where it was. The
# director remembers the tasks by their ids.
# The exit code is that of the directorctl phase that stopped it (directorctl help exit-codes), or that of the command.
set -euo pipefail

usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

run='' cluster='' upgrade='' provider=() timeout=2h
while [[ $# -gt 0 && $1 == --* ]]; do
    [[ $# -ge 2 ]] || usage
    case $1 in
        --run) run=$2 ;;
        --cluster) cluster=$2 ;;
        --upgrade) upgrade=$2 ;;
        --provider) provider=(--provider "$2") ;;
        --timeout) timeout=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[[ -n $run && -n $cluster && -n $upgrade && $# -gt 0 ]] || usage

# phase NAME TASK ARGS...: ends well only when the task is done. A director that does not answer is starting again, and
# is asked again.
phase() {
    local name=$1 task=$2 code=0 try
    shift 2
    for ((try = 1; try <= 30; try++)); do
        code=0
        directorctl phase "$name" "$@" --task-id "$task" --wait --timeout "$timeout" || code=$?
        [[ $code -eq 8 ]] || break
        sleep 10
    done
    if [[ $code -ne 0 ]]; then
        echo "roll.sh: $name ($task) ended with $code; mend what is wrong, and run the same again" >&2
        exit "$code"
    fi
}

# asked TASK: whether the task was ever asked for.
asked() {
    local code=0
    directorctl phase show "$1" > /dev/null 2>&1 || code=$?
    case $code in
        0) return 0 ;;
        5) return 1 ;;
        *) directorctl phase show "$1" > /dev/null || exit $? ;; # says what is wrong
    esac
}

phase cluster "$run-begin" --cluster "$cluster"
for host in "$@"; do
    # The unlock is asked for when the upgrade is through. A host that is so far must not be upgraded again: its nodes
    # may be back.
    if ! asked "$run-$host-unlock"; then
        phase pre-node-lock "$run-$host-lock" --host "$host" "${provider[@]}"
        echo "== upgrading $host"
        "$upgrade" "$host"
    fi
    phase post-node-unlock "$run-$host-unlock" --host "$host" "${provider[@]}"
done
phase post-cluster "$run-end" --cluster "$cluster"
echo "== all hosts are upgraded: $*"
