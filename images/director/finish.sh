#!/bin/bash
# finish.sh runs in the new root, after the files and the programs are in place.
set -euo pipefail

# Nothing of the machine that built the image stays in it.
rm -rf /etc/apt /var/log/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/lib/systemd/random-seed /tmp/* \
    /usr/share/{man,info,doc-base,lintian}/* /initrd.img.old /vmlinuz.old /usr/share/ieee-data \
    /var/lib/chrony/* /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-
find /usr/share/locale -mindepth 1 -maxdepth 1 ! -name 'locale.alias' -exec rm -rf {} +
install -d -m 0755 /var/log/journal /data /etc/ssh/keys /etc/director /usr/lib/director
: >/etc/machine-id # the initramfs writes it
echo director >/etc/hostname
sed -i -e '/^pool /d' -e '/^maxupdateskew/d' /etc/chrony/chrony.conf
: >/etc/default/locale # PAM reads it
: >/usr/lib/clock-epoch # systemd sets a clock that is behind the time of this file: that of the image
ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf

# Numbers that never change: files on the data disk belong to them. Place in director/appliance has the first three.
groupadd --gid 900 director
useradd --uid 900 --gid 900 --system --no-create-home --home-dir /data/director --shell /usr/sbin/nologin director
groupadd --gid 901 director-consul
useradd --uid 901 --gid 901 --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin director-consul
groupadd --gid 902 director-logs
useradd --uid 902 --gid 902 --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin director-logs
groupadd --gid 1000 admin
useradd --uid 1000 --gid 1000 --groups director,systemd-journal --create-home --shell /bin/bash --password '!' admin
chage -d 20000 director
chage -d 20000 director-consul
chage -d 20000 director-logs
chage -d 20000 admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
chmod 0440 /etc/sudoers.d/admin
# Called by root alone.
chmod a-s /usr/bin/{chage,chfn,chsh,expiry,gpasswd,newgrp} /usr/lib/openssh/ssh-keysign /usr/sbin/mount.nfs
passwd -q -l root
chage -d 20000 root

systemctl -q enable systemd-networkd systemd-networkd-wait-online systemd-resolved ssh chrony nftables apparmor \
    prometheus-node-exporter qemu-guest-agent open-vm-tools keepalived \
    director-disk director-setup director-shared director director-logs director-trial \
    director-upgrade.path director-consul.path director-console@tty1 director-console@ttyS0
# director-logs runs rsyslogd with a configuration of its own; the package's service would write a second log.
systemctl -q disable rsyslog.service
rm -rf /etc/rsyslog.conf /etc/rsyslog.d /etc/logrotate.d/rsyslog /var/spool/rsyslog
systemctl -q mask rsyslog.service getty@tty1.service serial-getty@ttyS0.service \
    systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    e2scrub_all.timer e2scrub_reap.service dpkg-db-backup.timer fstrim.timer \
    rpcbind.service rpcbind.socket nfs-client.target vgauth.service systemd-firstboot.service
