#!/bin/bash
# loader.sh starts the loader of the appliance on an emulated VM, with roots that only say that they were started: root
# a as it is; root b once, which does not start, and then root a again; and root b for good. With BIOS; a minute.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
"$here/../../test/lab/need.sh" qemu-system-x86 qemu-utils grub-pc-bin grub-efi-amd64-bin grub-common mtools dosfstools \
    e2fsprogs fdisk
work=$(mktemp -d /var/tmp/director-loader-test.XXXXXX)
vm=''
trap '[[ -z $vm ]] || kill "$vm" 2>/dev/null || :; rm -rf "$work"' EXIT
mkdir -p "$work/root/boot/grub" "$work/out"
# shellcheck disable=SC2016 # GRUB expands it
printf 'echo "STARTED $start PART $part TRIAL $trial END"\nsleep 3600\n' >"$work/root/boot/grub/slot.cfg"
SOURCE_DATE_EPOCH=1750000000 "$here/disk.sh" "$work/root" "$work/out"
disk=$work/disk.raw
qemu-img convert -O raw "$work/out/director.qcow2" "$disk"
loader=$((18 << 20)) # where the loader's partition begins
environment=$((loader + $(dd if="$disk" bs=1M skip=18 count=8 status=none |
    grep -abo '# GRUB Environment Block' | head -n 1 | cut -d: -f1)))

tell() { # SLOT TRY WITHIN
    { printf '# GRUB Environment Block\nslot=%s\ntry=%s\nwithin=%s\n' "$@" && printf '#%.0s' {1..1024}; } |
        head -c 1024 | dd of="$disk" bs=1 seek="$environment" conv=notrunc status=none
}
told() { dd if="$disk" bs=1 skip="$environment" count=1024 status=none; }
expect() { # TEXT...: the VM says each of them, one after the other
    : >"$work/serial"
    qemu-system-x86_64 -m 128 -display none -nic none -drive "file=$disk,format=raw,if=virtio" \
        -chardev "file,id=serial,path=$work/serial" -serial chardev:serial &
    vm=$!
    for _ in {1..600}; do
        sleep 0.5
        # shellcheck disable=SC2001 # several characters
        said=$(tr -d '\033\r' <"$work/serial" 2>/dev/null | sed 's/\[[0-9;?]*[A-Za-z]//g' || :)
        rest=$said good=1
        for text in "$@"; do
            [[ $rest == *"$text"* ]] || { good='' && break; }
            rest=${rest#*"$text"}
        done
        [[ -z $good ]] || break
    done
    kill "$vm"
    wait "$vm" || :
    vm=''
    [[ -n $good ]] || { printf 'loader.sh: the VM does not say: %s\n%s\n' "$*" "$said" >&2; exit 1; }
    printf 'ok      %s\n' "$*"
}

expect 'STARTED a PART 4 TRIAL  END'
tell a b 300
expect 'Trying root b once.' 'Root b cannot be started.' 'STARTED a PART 4 TRIAL  END'
[[ $(told) == *$'\ntry=\n'* ]] || { echo 'loader.sh: the trial was not cleared' >&2; exit 1; }
dd if="$work/out/root.ext4" of="$disk" bs=1M seek=$((26 + 3072)) conv=notrunc status=none
tell a b 300
expect 'Trying root b once.' 'STARTED b PART 5 TRIAL director.trial=300 END'
expect 'STARTED a PART 4 TRIAL  END'
tell b '' ''
expect 'STARTED b PART 5 TRIAL  END'
