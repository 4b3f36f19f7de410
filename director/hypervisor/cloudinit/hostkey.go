package cloudinit

import "path"

// Files of the guest's SSH host key.
const (
	hostKeyFile  = "/etc/ssh/ssh_host_ed25519_key"
	nextKeyFile  = hostKeyFile + ".next"
	hostCertFile = hostKeyFile + "-cert.pub"
	// hostCertRule is apart from sshdFile, which a guest has from its first boot on.
	hostCertRule = "/etc/ssh/sshd_config.d/20-kaas-host.conf"
)

// NextHostKeyScript lets the guest generate a secret host key in addition to the one that it was given, and print its
// public part. It runs as root; another run prints the same key.
const NextHostKeyScript = `set -eu
umask 077
next=` + nextKeyFile + `
if [ ! -s "$next" ]; then
  rm -f "$next.tmp" "$next.tmp.pub"
  ssh-keygen -q -t ed25519 -N '' -C '' -f "$next.tmp" </dev/null
  sync "$next.tmp"
  mv -f "$next.tmp" "$next"
  rm -f "$next.tmp.pub"
fi
ssh-keygen -y -f "$next"
`

// TakeHostKeyScript has the guest prove itself with its next host key from now on, and forget the one that it was
// given. With a certificate, which is of that next key and as in authorized_keys, the guest shows that too: it is in
// its place before the key is. It runs as root, any number of times. The connection that it runs over stays.
func TakeHostKeyScript(certificate string) string {
	if certificate == "" {
		return takeHostKey
	}
	return `set -eu
put() {
  printf '%s\n' "$2" >"$1.new"
  chmod 0644 "$1.new"
  sync "$1.new"
  mv -f "$1.new" "$1"
}
mkdir -p ` + path.Dir(hostCertRule) + `
put ` + hostCertFile + ` '` + certificate + `'
put ` + hostCertRule + ` 'HostCertificate ` + hostCertFile + `'
` + takeHostKey
}

const takeHostKey = `set -eu
key=` + hostKeyFile + ` next=` + nextKeyFile + `
if [ -s "$next" ]; then
  ssh-keygen -y -f "$next" >"$key.pub"
  chmod 0644 "$key.pub"
  mv -f "$next" "$key"
  sync "$key" "$key.pub"
fi
systemctl reload ssh 2>/dev/null || systemctl reload sshd 2>/dev/null || pkill -HUP -o -x sshd
`

// KeepScript lets cloud-init keep what it has read at the first boot, when the seed is gone. Without it, cloud-init
// could treat the next boot as the first one of a new machine. It runs as root.
const KeepScript = `[ ! -d /var/lib/cloud/instance ] || : >/var/lib/cloud/instance/manual-clean
`
