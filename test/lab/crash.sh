#!/bin/sh
# crash.sh NAME, inside a lab: the libvirtd of the further host NAME gets a kill -9 and is started again, while its
# guests run on.
set -eu
run=${LAB_DIR:?}/hosts/$1/run
pid=$(cat "$run/libvirtd.pid")
# shellcheck disable=SC2016 # expanded in the host's mount namespace
exec nsenter --target "$pid" --mount sh -eu -c '
    kill -9 "$1"
    while kill -0 "$1" 2>/dev/null; do sleep 0.1; done
    rm -f /run/libvirt/libvirtd.pid
    setsid libvirtd --daemon --pid-file /run/libvirt/libvirtd.pid </dev/null >/dev/null 2>&1
    tries=0
    until virsh -q -c "$2" version >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ]
        sleep 0.1
    done' - "$pid" "qemu+unix:///system?socket=$run/libvirt-sock"
