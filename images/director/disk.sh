#!/bin/bash
# disk.sh ROOT OUT makes bootable disks of a root directory: OUT/director.qcow2 and OUT/director.vmdk (streamOptimized),
# and OUT/root.ext4, the file system of the root partition alone. GPT, GRUB for BIOS and UEFI, and two partitions for
# roots, of which the second one is empty: an upgrade goes there. It needs no loop devices and no mounts, and makes the
# same disk of the same root if SOURCE_DATE_EPOCH is the same.
set -euo pipefail
# shellcheck source=images/common/grub.sh
source "$(dirname "$(readlink -f "$0")")/../common/grub.sh"
root=$1
out=$2
: "${SOURCE_DATE_EPOCH:?the time that files of the image are given at most}"
linux_root=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
core_lba=2048 # 1 MiB: partition 1, for GRUB's core; 2048 sectors
esp_mib=2     # partition 2, for UEFI
esp_size=16
loader_mib=$((esp_mib + esp_size)) # partition 3, with GRUB's configuration and its environment block
loader_size=8
root_mib=$((loader_mib + loader_size)) # partitions 4 and 5, of this size each
slot_size=3072
# Numbers of the disk and of its parts: any that are the same each time. director/appliance knows them.
id=6F1D7C1E-52A5-4C0B-9B0D-6469726B
tmp=$(mktemp -d "$out/disk.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
raw=$tmp/disk

# same_times gives the files of a file system times that do not depend on when and where it was made: mke2fs -d takes
# those of the last change and of the last look from this machine's.
same_times() { # DIRECTORY FILE
    local at=@$SOURCE_DATE_EPOCH said
    said=$(find "$1" -printf "set_inode_field \"/%P\" ctime $at\nset_inode_field \"/%P\" atime $at\n" |
        E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH debugfs -w -f - "$2" 2>&1 >/dev/null | sed 1d)
    [[ -z $said ]] || { echo "disk.sh: debugfs on $2: $said" >&2; exit 1; }
}

used_kib=$(du -sk --apparent-size "$root" | cut -f1)
files=$(find "$root" | wc -l)
# MiB; ends of blocks, inodes, and what ext4 keeps for itself.
root_size=$(((used_kib + files * 2) * 115 / 100 / 1024 + 64))
((root_size <= slot_size)) || { echo "disk.sh: the root needs $root_size MiB of $slot_size" >&2; exit 1; }
truncate -s "$((root_mib + 2 * slot_size + 1))M" "$raw"
sfdisk -q "$raw" <<END
label: gpt
label-id: ${id}0000
start=$core_lba, size=2048, type=21686148-6449-6E6F-744E-656564454649, uuid=${id}0001, name=grub
start=$((esp_mib * 2048)), size=$((esp_size * 2048)), type=U, uuid=${id}0002, name=efi
start=$((loader_mib * 2048)), size=$((loader_size * 2048)), type=L, uuid=${id}0003, name=loader
start=$((root_mib * 2048)), size=$((slot_size * 2048)), type=$linux_root, uuid=${id}0004, name=root-a
start=$(((root_mib + slot_size) * 2048)), size=$((slot_size * 2048)), type=$linux_root, uuid=${id}0005, name=root-b
END

find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0r touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
truncate -s "${root_size}M" "$out/root.ext4"
E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH mke2fs -q -t ext4 -L director-root -U "${id}0004" -m 0 \
    -O metadata_csum,64bit,^has_journal -E "hash_seed=${id}0004,lazy_itable_init=0,nodiscard" \
    -N "$((files + 1024))" -d "$root" "$out/root.ext4"
same_times "$root" "$out/root.ext4"
dd if="$out/root.ext4" of="$raw" bs=1M seek="$root_mib" conv=notrunc,sparse status=none

# The loader has a partition of its own: GRUB writes its environment block, and an upgrade replaces neither. Without a
# journal, because GRUB writes past it.
here=$(dirname "$(readlink -f "$0")")
install -D -m 0644 "$here/loader.cfg" "$tmp/loader/grub/grub.cfg"
{
    printf '# GRUB Environment Block\nslot=a\ntry=\nwithin=\n'
    printf '#%.0s' {1..1024}
} | head -c 1024 >"$tmp/loader/grub/grubenv"
find "$tmp/loader" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
truncate -s "${loader_size}M" "$tmp/loader.ext4"
E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH mke2fs -q -t ext4 -L director-loader -U "${id}0003" -m 0 \
    -O metadata_csum,64bit,^has_journal -E "hash_seed=${id}0003,lazy_itable_init=0,nodiscard,root_owner=0:0" \
    -d "$tmp/loader" "$tmp/loader.ext4"
same_times "$tmp/loader" "$tmp/loader.ext4"
dd if="$tmp/loader.ext4" of="$raw" bs=1M seek="$loader_mib" conv=notrunc,sparse status=none

# What loader.cfg uses, in addition to what starts any image.
loader_modules=(loadenv test regexp reboot sleep)
grub-mkimage() { command grub-mkimage "$@" "${loader_modules[@]}"; }
grub_bios "$raw" "$core_lba" '(,gpt3)/grub'

# UEFI starts EFI/BOOT/BOOTX64.EFI of the removable medium; no variables of the firmware are needed.
mkdir "$tmp/efi"
cat >"$tmp/efi/start.cfg" <<'END'
regexp --set=1:disk '^\(([^,]+),' "$cmdpath"
set root=$disk,gpt3
set prefix=($root)/grub
configfile $prefix/grub.cfg
END
grub-mkimage -O x86_64-efi -p /grub -c "$tmp/efi/start.cfg" -o "$tmp/efi/BOOTX64.EFI" \
    part_gpt ext2 fat normal configfile linux boot serial terminal echo ls cat efi_gop efi_uga all_video
touch --date="@$SOURCE_DATE_EPOCH" "$tmp/efi/BOOTX64.EFI"
truncate -s "${esp_size}M" "$tmp/esp"
mkfs.vfat --invariant -F 16 -n EFI -i 64697265 "$tmp/esp" >/dev/null
mmd -i "$tmp/esp" ::/EFI ::/EFI/BOOT
mcopy -m -i "$tmp/esp" "$tmp/efi/BOOTX64.EFI" ::/EFI/BOOT/BOOTX64.EFI
dd if="$tmp/esp" of="$raw" bs=1M seek="$esp_mib" conv=notrunc status=none

qemu-img convert -f raw -O qcow2 -c -o compression_type=zlib "$raw" "$out/director.qcow2"
qemu-img convert -f raw -O vmdk -o subformat=streamOptimized,adapter_type=lsilogic "$raw" "$out/director.vmdk"
# The number of its content, which qemu-img draws, is in a text of 20 sectors behind the first. The same content has the
# same one.
/usr/bin/python3 - "$out/director.vmdk" "$(sha256sum <"$out/director.qcow2" | cut -c 1-8)" <<'END'
import re, sys
with open(sys.argv[1], "r+b") as disk:
    disk.seek(512)
    text = disk.read(20 * 512)
    same, found = re.subn(rb"(?m)^CID=[0-9a-f]+$", b"CID=" + sys.argv[2].encode(), text.rstrip(b"\0"))
    if found != 1:
        sys.exit("disk.sh: the VMDK has no number of its content")
    disk.seek(512)
    disk.write(same.ljust(len(text), b"\0"))
END
