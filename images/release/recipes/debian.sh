#!/usr/bin/env bash
# The small Debian layer below the images whose programs call nft, iptables, ipset or conntrack: a root file system from the
# unpacked packages, without package manager, documentation and locales. apt checks what it fetches against the archive's
# signatures; packages.txt says what came in.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
out=$1
packages=(
    libc6 libgcc-s1 busybox netbase
    nftables libnftables1 libnftnl11 libmnl0 libjansson4 libgmp10 libedit2 libtinfo6 libbsd0 libmd0
    iptables libxtables12 libip4tc2 libip6tc2 libnetfilter-conntrack3 libnfnetlink0
    ipset libipset13 conntrack
)
grep -q '^VERSION_CODENAME=bookworm' /etc/os-release || { log "debian: this part is made from Debian 12's packages, on Debian 12"; exit 1; }

debs=$out/debs rootfs=$out/rootfs
mkdir -p "$debs" "$rootfs"
fetch() { (cd "$debs" && apt-get -q -o APT::Sandbox::User=root download "${packages[@]}"); }
fetch || { apt-get -q update && fetch; }

mkdir -p "$rootfs"/{dev,etc,proc,root,run,sys,tmp,var,usr/{bin,sbin,lib,lib64}}
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$rootfs/$dir"; done
ln -s ../run "$rootfs/var/run"
chmod 1777 "$rootfs/tmp"
for deb in "$debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$rootfs" --keep-directory-symlink --no-same-owner
    printf '%s %s %s\n' "$(dpkg-deb -f "$deb" Package)" "$(dpkg-deb -f "$deb" Version)" "$(sha256sum "$deb" | cut -d ' ' -f 1)"
done | LC_ALL=C sort >"$out/packages.txt"
rm -rf "$debs" "$rootfs"/usr/share/{man,locale,info,lintian,bug,doc-base,bash-completion,gdb,initramfs-tools} \
    "$rootfs"/usr/lib/x86_64-linux-gnu/{gconv,audit} "$rootfs"/usr/lib/{locale,init} "$rootfs"/etc/{init.d,cron.*,systemd} \
    "$rootfs"/usr/lib/systemd "$rootfs"/lib/systemd
# Licences stay, the rest of the documentation goes.
find "$rootfs/usr/share/doc" -type f ! -name copyright -delete
find "$rootfs/usr/share/doc" -type l -delete
find "$rootfs/usr/share/doc" -depth -type d -empty -delete

# What the packages' scripts would have done: the alternatives of iptables, and busybox for the rest.
for tables in iptables ip6tables; do
    for suffix in "" -save -restore; do ln -sf "$tables-nft$suffix" "$rootfs/usr/sbin/$tables$suffix"; done
done
busybox=$rootfs/usr/bin/busybox
while read -r applet; do
    [[ -e $rootfs/usr/bin/$applet || -e $rootfs/usr/sbin/$applet ]] || ln -s busybox "$rootfs/usr/bin/$applet"
done < <("$busybox" --list)
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n' >"$rootfs/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$rootfs/etc/group"
printf 'hosts: files dns\npasswd: files\ngroup: files\n' >"$rootfs/etc/nsswitch.conf"
cp "$out/packages.txt" "$rootfs/usr/share/doc/packages.txt"

# Every program must be there and find its libraries.
for program in /bin/sh /usr/bin/busybox /usr/sbin/{nft,ipset,conntrack} /usr/sbin/ip{,6}tables{,-nft}{,-save,-restore}; do
    linked=$(chroot "$rootfs" /lib64/ld-linux-x86-64.so.2 --list "$program" 2>&1) || true
    [[ $linked == *libc.so.6* && $linked != *"not found"* ]] || { log "debian: $program lacks libraries: $linked"; exit 1; }
done
