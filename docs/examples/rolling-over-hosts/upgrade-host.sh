#!/usr/bin/env bash
# An upgrade of one libvirt host by its package manager, for roll.sh. It returns when the host answers again after its
# restart.
set -euo pipefail
host=$1
remote() { ssh -o BatchMode=yes -o ConnectTimeout=5 "root@$host" "$@"; }

before=$(remote cat /proc/sys/kernel/random/boot_id)
remote 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -y -q dist-upgrade && systemctl --no-block reboot'
for ((i = 0; i < 180; i++)); do
    now=$(remote cat /proc/sys/kernel/random/boot_id 2> /dev/null) || now=$before
    if [[ $now != "$before" ]] && remote virsh -c qemu:///system version > /dev/null; then
        exit 0
    fi
    sleep 5
done
echo "$host has not come back within 15 minutes" >&2
exit 1
