#!/bin/bash
# finish.sh runs in the new root, after the files and the programs are in place.
set -euo pipefail

# Nothing of the machine that built the image stays in it. A node is air-gapped:
# which repositories it has is said by the model.
cat >/etc/apt/sources.list <<'END'
# No repository by default. The cluster's model says which a node may use.
END
rm -rf /etc/apt/apt.conf.d/99mmdebstrap /etc/apt/sources.list.d/* \
    /var/log/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/lib/systemd/random-seed /tmp/* \
    /usr/share/{man,info,doc-base,lintian}/* /initrd.img.old /vmlinuz.old
find /usr/share/locale -mindepth 1 -maxdepth 1 ! -name 'locale.alias' -exec rm -rf {} +
install -d -m 0755 /var/log/journal
: >/etc/machine-id
echo localhost >/etc/hostname
sed -i 's/^pool /# &/' /etc/chrony/chrony.conf

systemctl -q enable systemd-networkd systemd-resolved systemd-repart ssh chrony containerd kubelet qemu-guest-agent kaas-emulated
chmod 0600 /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
# Whom etcd's data belongs to on a master. etcd itself runs as root, which reads the keys of its certificates.
useradd --system --user-group --no-create-home --home-dir /var/lib/etcd --shell /usr/sbin/nologin etcd
# The playbooks enable these where a node needs them.
systemctl -q disable haproxy keepalived rpcbind.service rpcbind.socket nfs-client.target
# Each is a process or a kernel module at every start, and none is of use here.
systemctl -q mask cloud-config.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    sys-fs-fuse-connections.mount sys-kernel-config.mount modprobe@drm.service
# Downloads, and upkeep of things a node does not have.
systemctl -q mask apt-daily.timer apt-daily-upgrade.timer apt-daily.service apt-daily-upgrade.service \
    dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    systemd-networkd-wait-online.service cloud-init-hotplugd.socket
