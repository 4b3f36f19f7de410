#!/usr/bin/env bash
# Kills the director KILLS times (200) at random moments while it makes and takes away pretended clusters, and looks what is left. KILL_SEED
# repeats the times of an earlier run. Then two directors on one PostgreSQL, with HAProxy in front, are killed and stopped. More arguments go to the
# test binary, such as -test.run FullDisk.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
export GOFLAGS=-tags=libvirt_dlopen
export KILLS=${KILLS:-200} KAAS_KILL_BIN=$root/bin
for program in director directorctl pretend-ansible; do
    go build -o "bin/$program" "./cmd/$program"
done
go test -c -o bin/kill.test ./test/kill
cd test/kill
exec "$root/bin/kill.test" -test.v -test.timeout 60m "$@"
