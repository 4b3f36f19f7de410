package cloudinit

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// CleanUp is what the first boot takes off the disk of an image that its maker prepared for another cloud. It happens
// in cloud-init's bootcmd, before users, keys, repositories and packages are dealt with. What is taken away lies below
// CleanedDir afterwards, so that a person can look at it; a second boot finds the mark and does nothing.
type CleanUp struct {
	What  []string // cloud, repositories, keys
	Paths []string // further files and directories; the last part may be a pattern
}

// CleanedDir is where the things are that the first boot took away.
const CleanedDir = "/var/lib/kaas/cleaned"

func (c CleanUp) empty() bool { return len(c.What) == 0 && len(c.Paths) == 0 }

// cleanGroups are the things of each group.
var cleanGroups = map[string]struct {
	paths []string
	units []string
}{
	"cloud": {
		// Seeds and data of earlier instances, and the settings by which images of the large clouds look for their own.
		// What this boot itself was told lies in /run and in the instance that it links to.
		paths: []string{
			"/var/lib/cloud/seed", "/var/lib/waagent", "/var/lib/amazon", "/var/lib/google",
			"/etc/waagent.conf", "/etc/boto.cfg", "/etc/default/instance_configs.cfg",
			"/etc/default/instance_configs.cfg.distro",
			"/etc/cloud/cloud.cfg.d/*azure*", "/etc/cloud/cloud.cfg.d/*ec2*", "/etc/cloud/cloud.cfg.d/*aws*",
			"/etc/cloud/cloud.cfg.d/*gce*",
			"/etc/cloud/cloud.cfg.d/*google*", "/etc/cloud/cloud.cfg.d/*maas*", "/etc/cloud/cloud.cfg.d/*openstack*",
			"/etc/cloud/cloud.cfg.d/*oracle*",
			"/etc/cloud/cloud.cfg.d/*digitalocean*", "/etc/cloud/cloud.cfg.d/*hetzner*",
			"/etc/cloud/cloud.cfg.d/*installer*", "/etc/cloud/cloud.cfg.d/*subiquity*",
			"/etc/netplan/00-installer-config.yaml", "/etc/netplan/01-netcfg.yaml", "/etc/update-motd.d/*cloud*",
		},
		units: []string{
			"walinuxagent", "waagent", "google-guest-agent", "google-osconfig-agent", "google-startup-scripts",
			"amazon-ssm-agent", "snap.amazon-ssm-agent.amazon-ssm-agent",
			"oracle-cloud-agent", "do-agent", "hc-utils", "cloud-init-hotplugd.socket",
		},
	},
	"repositories": {
		paths: []string{
			"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources",
			"/etc/apt/mirrors",
			"/etc/yum.repos.d/*.repo", "/etc/zypp/repos.d/*.repo", "/etc/apk/repositories",
		},
		units: []string{
			"apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades", "dnf-makecache.timer",
			"dnf-automatic.timer", "packagekit",
		},
	},
	"keys": {
		paths: []string{
			"/root/.ssh", "/home/*/.ssh", "/etc/ssh/authorized_keys.d", "/etc/ssh/*_ca.pub",
			"/etc/ssh/sshd_config.d/*ca*",
		},
	},
}

func (c CleanUp) validate(fail func(path, format string, args ...any)) {
	for i, what := range c.What {
		if _, known := cleanGroups[what]; !known {
			fail(fmt.Sprintf("clean_up.what[%d]", i), "%q is not known", what)
		}
	}
	for i, p := range c.Paths {
		dir, last := path.Split(p)
		plain := safePath.MatchString(strings.NewReplacer("*", "x", "?", "x", "@", "x", "+", "x").Replace(p))
		if !plain || path.Clean(p) != p || strings.ContainsAny(dir, "*?") || last == "" {
			fail(
				fmt.Sprintf("clean_up.paths[%d]", i),
				"%q is not a plain absolute path with a pattern at most in its last part", p,
			)
		}
	}
}

// script is what bootcmd runs. root is empty on a node.
func (c CleanUp) script(root string) string {
	var paths, units []string
	for _, what := range slices.Sorted(slices.Values(c.What)) {
		paths, units = append(paths, cleanGroups[what].paths...), append(units, cleanGroups[what].units...)
	}
	paths = append(paths, c.Paths...)
	var b strings.Builder
	// cloud-init makes one script of all commands: the parentheses keep this one's exit to itself.
	fmt.Fprintf(&b, `(
set -u
root='%s'
kept=%s
[ -e "$root$kept/done" ] && exit 0
mkdir -p "$root$kept"
chmod 700 "$root$kept"
away() {
  for found in "$@"; do
    [ -e "$found" ] || [ -L "$found" ] || continue
    to="$root$kept${found#"$root"}"
    mkdir -p "${to%%/*}"
    rm -rf "$to"
    mv "$found" "$to" || { echo "clean-up: $found stays" >&2; failed=1; }
  done
}
failed=0
`, root, CleanedDir)
	for _, p := range paths {
		fmt.Fprintf(&b, "away \"$root\"%s\n", p)
	}
	if slices.Contains(c.What, "cloud") {
		// The instance that is booting must stay: all others belong to earlier users of the disk.
		b.WriteString(`current=$(readlink "$root/var/lib/cloud/instance" || true)
for old in "$root"/var/lib/cloud/instances/*; do
  [ "${old##*/}" = "${current##*/}" ] || away "$old"
done
`)
	}
	if slices.Contains(c.What, "repositories") {
		b.WriteString("[ ! -d \"$root/etc/apt\" ] || : >\"$root/etc/apt/sources.list\"\n")
	}
	if len(units) > 0 {
		fmt.Fprintf(&b, `for unit in %s; do
  case $unit in *.*) ;; *) unit=$unit.service ;; esac
  for dir in /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
    [ -e "$root$dir/$unit" ] || continue
    systemctl --no-block disable --now "$unit" >/dev/null 2>&1 || true
    systemctl mask "$unit" >/dev/null 2>&1 || true
    break
  done
done
`, strings.Join(units, " "))
	}
	b.WriteString("[ \"$failed\" = 0 ] && : >\"$root$kept/done\"\nexit \"$failed\"\n) || exit 1\n")
	return b.String()
}

// cleanUpProblems are the places that are wrong.
func (g *Guest) cleanUpProblems() []director.Field {
	var fields []director.Field
	g.CleanUp.validate(func(path, format string, args ...any) {
		fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
	})
	return fields
}
