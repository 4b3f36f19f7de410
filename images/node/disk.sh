#!/bin/bash
# disk.sh ROOT OUT.qcow2 makes a bootable disk of a root directory: GPT, GRUB for
# BIOS and one ext4 root. It needs no loop devices and no mounts.
set -euo pipefail
# shellcheck source=images/common/grub.sh
source "$(dirname "$(readlink -f "$0")")/../common/grub.sh"
root=$1
out=$2
size_mib=${NODE_DISK_MIB:-5120} # of the image; a node's disk may be any larger
core_lba=2048                   # 1 MiB: partition 1, for GRUB's core
root_mib=2                      # partition 2
tmp=$(mktemp -d "${out%/*}/disk.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
raw=$tmp/disk

truncate -s "${size_mib}M" "$raw"
sfdisk -q "$raw" <<END
label: gpt
start=$core_lba, size=2048, type=21686148-6449-6E6F-744E-656564454649, name=grub
start=$((root_mib * 2048)), type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
END

# The root file system, straight from the directory and to its place.
root_kib=$(((size_mib - root_mib - 1) * 1024))
mke2fs -q -t ext4 -L kaas-root -m 1 -O metadata_csum,64bit \
    -E "offset=$((root_mib * 1048576)),lazy_itable_init=1,nodiscard" -d "$root" "$raw" "${root_kib}k"

grub_bios "$raw" $core_lba '(,gpt2)/boot/grub'
qemu-img convert -f raw -O qcow2 -o lazy_refcounts=on "$raw" "$out"
