#!/usr/bin/env bash
# Kills the director KILLS times (200) at random moments while it makes and takes away pretended clusters, and looks
# what is left. KILL_SEED repeats the times of an earlier run. Then two directors on one PostgreSQL, with HAProxy in
# front, are killed and stopped. With RACE=1 the director runs under the race detector, and a race that any director
# reports fails the run. More arguments go to the test binary, such as -test.run FullDisk.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
source test/go.sh
export KILLS=${KILLS:-200} KAAS_KILL_BIN=$root/bin
detector=
reports=$root/bin/race/report
if [[ ${RACE:-} ]]; then
    detector=-race
    KAAS_KILL_BIN=$root/bin/race
    rm -rf "$KAAS_KILL_BIN"
    mkdir -p "$KAAS_KILL_BIN"
    export GORACE="log_path=$reports"
fi
images/compile.sh go build $detector -o "$KAAS_KILL_BIN/director" ./cmd/director
for program in directorctl pretend-ansible; do
    images/compile.sh go build -o "$KAAS_KILL_BIN/$program" "./cmd/$program"
done
go test -c -vet=off -o bin/kill.test ./test/kill
rc=0
(cd test/kill && "$root/bin/kill.test" -test.v -test.timeout 60m "$@") || rc=$?
if compgen -G "$reports.*" >/dev/null; then
    tail -n 100 "$reports".*
    echo "the race detector has reported races of the director" >&2
    rc=1
fi
exit "$rc"
