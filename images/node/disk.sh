#!/bin/bash
# disk.sh ROOT OUT.qcow2 makes a bootable disk of a root directory: GPT, GRUB for
# BIOS and one ext4 root. It needs no loop devices and no mounts.
set -euo pipefail
root=$1
out=$2
size_mib=${NODE_DISK_MIB:-5120} # of the image; a node's disk may be any larger
core_lba=2048                   # 1 MiB: partition 1, for GRUB's core
root_mib=2                      # partition 2
tmp=$(mktemp -d "${out%/*}/disk.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
raw=$tmp/disk
grub=/usr/lib/grub/i386-pc

# little N BYTES prints a number as little endian bytes.
little() {
    local n=$1 i
    for ((i = 0; i < $2; i++)); do
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\x$(printf %02x $((n & 255)))"
        n=$((n >> 8))
    done
}
at() { dd of="$1" bs=1 seek=$(($2)) conv=notrunc status=none; }

truncate -s "${size_mib}M" "$raw"
sfdisk -q "$raw" <<END
label: gpt
start=$core_lba, size=2048, type=21686148-6449-6E6F-744E-656564454649, name=grub
start=$((root_mib * 2048)), type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
END

# The root file system, straight from the directory.
root_kib=$(((size_mib - root_mib - 1) * 1024))
mke2fs -q -t ext4 -L kaas-root -m 1 -O metadata_csum,64bit -E "lazy_itable_init=1,nodiscard" \
    -d "$root" "$tmp/root" "${root_kib}k"
dd if="$tmp/root" of="$raw" bs=1M seek=$root_mib conv=notrunc,sparse status=none
rm "$tmp/root"

# GRUB: boot.img in the first sector loads core.img from partition 1. Both have
# fields for the place of what they load; grub-bios-setup would write the same,
# but only through a device.
grub-mkimage -O i386-pc -p '(,gpt2)/boot/grub' -o "$tmp/core" \
    biosdisk part_gpt ext2 normal configfile linux boot serial terminal echo ls cat
core_sectors=$((($(stat -c %s "$tmp/core") + 511) / 512))
((core_sectors < 2048)) || { echo "disk.sh: GRUB's core is too large" >&2; exit 1; }
cp "$grub/boot.img" "$tmp/boot"
little $core_lba 8 | at "$tmp/boot" 0x5c
little 0x9090 2 | at "$tmp/boot" 0x66 # trust the BIOS about the boot drive only if it is a hard disk
little $((core_lba + 1)) 8 | at "$tmp/core" 0x1f4
little $((core_sectors - 1)) 2 | at "$tmp/core" 0x1fc
dd if="$tmp/boot" of="$raw" bs=440 count=1 conv=notrunc status=none
dd if="$tmp/core" of="$raw" bs=512 seek=$core_lba conv=notrunc status=none

qemu-img convert -f raw -O qcow2 -o lazy_refcounts=on "$raw" "$out"
