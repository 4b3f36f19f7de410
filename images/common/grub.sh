#!/bin/bash
# grub.sh is sourced: it makes disks boot without loop devices and mounts.

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

# grub_bios RAW CORE_LBA PREFIX puts GRUB for BIOS into a disk with a GPT. GRUB reads PREFIX/grub.cfg.
#
# boot.img in the first sector loads core.img from the partition at CORE_LBA, which has 2048 sectors. Both have fields
# for the place of what they load; grub-bios-setup would write the same, but only through a device.
grub_bios() {
    local raw=$1 core_lba=$2 prefix=$3 tmp core_sectors
    tmp=$(mktemp -d "${raw%/*}/grub.XXXXXX")
    grub-mkimage -O i386-pc -p "$prefix" -o "$tmp/core" \
        biosdisk part_gpt ext2 normal configfile linux boot serial terminal echo ls cat
    core_sectors=$((($(stat -c %s "$tmp/core") + 511) / 512))
    ((core_sectors < 2048)) || { echo "grub.sh: GRUB's core is too large" >&2; return 1; }
    cp /usr/lib/grub/i386-pc/boot.img "$tmp/boot"
    little "$core_lba" 8 | at "$tmp/boot" 0x5c
    little 0x9090 2 | at "$tmp/boot" 0x66 # trust the BIOS about the boot drive only if it is a hard disk
    little $((core_lba + 1)) 8 | at "$tmp/core" 0x1f4
    little $((core_sectors - 1)) 2 | at "$tmp/core" 0x1fc
    dd if="$tmp/boot" of="$raw" bs=440 count=1 conv=notrunc status=none
    dd if="$tmp/core" of="$raw" bs=512 seek="$core_lba" conv=notrunc status=none
    rm -r "$tmp"
}
