package appliance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

const opApply = "appliance.apply"

// Place is where the appliance has its files.
type Place struct {
	Root string // of the files of services; empty for /
	Data string // where the data disk is mounted
	User int    // that the director runs as, with its group of the same number; -1 leaves owners as they are
	// Agent is the group of the agent of Consul next to the director.
	Agent int
	// Logs is the user, and the group, of what sends the journal to a log server.
	Logs int
}

// Default is the place on the appliance. The numbers of user and group are those in images/director/finish.sh.
func Default() Place { return Place{Data: "/data", User: 900, Agent: 901, Logs: 902} }

func (p Place) etc(name string) string  { return filepath.Join(p.Root, "/etc", name) }
func (p Place) data(name string) string { return filepath.Join(p.Data, name) }

// Files on the data disk.
const (
	setupFile          = "setup/setup.json"
	certificateFile    = "setup/certificate.pem"
	certificateKeyFile = "setup/certificate.key"
)

// Load returns the setup on the data disk. Errors: not_found before the first one, internal.
func (p Place) Load() (Setup, error) {
	var s Setup
	text, err := os.ReadFile(p.data(setupFile))
	if errors.Is(err, os.ErrNotExist) {
		return s, director.Errorf(director.KindNotFound, opApply, "the appliance is not set up yet")
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, director.Errorf(director.KindInternal, opApply, "%s cannot be read: %w", p.data(setupFile), err)
	}
	return s, nil
}

// Save keeps the setup on the data disk. From then on the VM is set up, also at its next start.
func (p Place) Save(s Setup) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.data(setupFile)), 0o700); err != nil {
		return director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	if err := writeMark(p.Data, mark{Format: markFormat, Name: s.Hostname}); err != nil {
		return err
	}
	return writeFile(p.data(setupFile), append(text, '\n'), 0o600)
}

// Write writes what the services of the VM read. It is idempotent, and may be killed at any point and called again.
// What it writes into /etc is in memory: each start of the VM calls it.
func (p Place) Write(ctx context.Context, s Setup, addresses []netip.Addr) error {
	if err := p.directories(); err != nil {
		return err
	}
	config, err := p.config(s, addresses)
	if err != nil {
		return err
	}
	type file struct {
		path, text string
		mode       os.FileMode
	}
	for _, f := range []file{
		{p.etc("hostname"), s.Hostname + "\n", 0o644},
		{p.etc("hosts"), s.hosts(), 0o644},
		{p.etc("systemd/network/10-director.network"), s.networkd(), 0o644},
		{p.etc("chrony/sources.d/director.sources"), s.chrony(), 0o644},
		{p.etc("ssh/keys/admin"), strings.Join(append(slices.Clone(s.SSHKeys), ""), "\n"), 0o644},
		{p.etc("director/director.yaml"), config, 0o644},
		{p.data("setup/admin-password-hash"), s.PasswordHash + "\n", 0o600},
	} {
		if err := writeFile(f.path, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	if err := p.certificate(s); err != nil {
		return err
	}
	if err := p.owned("setup/admin-password-hash"); err != nil {
		return err
	}
	if err := p.group().writeGroup(s); err != nil {
		return err
	}
	return p.hostKeys(ctx)
}

// certificate writes the given certificate with its key, or removes a former one.
func (p Place) certificate(s Setup) error {
	if s.Certificate == "" {
		return errors.Join(removeFile(p.data(certificateFile)), removeFile(p.data(certificateKeyFile)))
	}
	return errors.Join(
		writeFile(p.data(certificateKeyFile), []byte(s.Key), 0o600), p.owned(certificateKeyFile),
		writeFile(p.data(certificateFile), []byte(s.Certificate), 0o644),
	)
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// dirs are those on the data disk; the director's own user has what it writes.
var dirs = []struct {
	name string
	mode os.FileMode
	own  bool
}{
	{"setup", 0o711, false},
	{"etc", 0o755, false},
	{"etc/keys", 0o755, false},
	{"etc/providers", 0o750, true},
	{"ssh", 0o700, false},
	{"log/journal", 0o755, false},
	{"director", 0o700, true},
	{"director/" + rootdisk.Inbox, 0o700, true},
	{"images", 0o755, true},
	{"bundles", 0o755, true},
	{"backups", 0o700, true},
	{upgradeDir, 0o755, false},
}

func (p Place) directories() error {
	for _, d := range dirs {
		if err := p.directory(d.name, d.mode, d.own); err != nil {
			return director.Errorf(director.KindInternal, opApply, "%s cannot be made: %w", p.data(d.name), err)
		}
	}
	return p.consulDirectory()
}

// directory makes a directory of the data disk. One that is right is not touched: it may be on an NFS, whose server
// lets root change nothing.
func (p Place) directory(name string, mode os.FileMode, own bool) error {
	path := p.data(name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm() != mode {
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && own && int(stat.Uid) != p.User {
		return p.owned(name)
	}
	return nil
}

// consulDirectory makes the directory in which the director tells the agent of Consul next to it what it runs with. Its
// files have the agent's group.
func (p Place) consulDirectory() error {
	path := p.data(consulDir)
	err := os.MkdirAll(path, 0o750)
	if err == nil && p.User >= 0 {
		err = os.Lchown(path, p.User, p.Agent)
	}
	if err == nil {
		err = os.Chmod(path, 0o750|os.ModeSetgid)
	}
	if err != nil {
		return director.Errorf(director.KindInternal, opApply, "%s cannot be made: %w", path, err)
	}
	return nil
}

// owned gives a file of the data disk to the director's user.
func (p Place) owned(name string) error {
	if p.User < 0 {
		return nil
	}
	return os.Lchown(p.data(name), p.User, p.User)
}

// hostKeys makes the keys of the VM's SSH server, once for a data disk.
func (p Place) hostKeys(ctx context.Context) error {
	key := p.data("ssh/ssh_host_ed25519_key")
	if _, err := os.Stat(key + ".pub"); err == nil {
		return nil
	}
	next := key + ".new"
	if err := errors.Join(removeFile(next), removeFile(next+".pub")); err != nil {
		return director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	if _, err := command(ctx, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", next); err != nil {
		return err
	}
	// The public part is last: it says that both are there.
	if err := errors.Join(os.Rename(next, key), os.Rename(next+".pub", key+".pub")); err != nil {
		return director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	return nil
}

func (s Setup) hosts() string {
	short, _, _ := strings.Cut(s.Hostname, ".")
	all := s.Hostname
	if short != s.Hostname {
		all += " " + short
	}
	return "127.0.0.1 localhost\n127.0.1.1 " + all + "\n::1 localhost ip6-localhost ip6-loopback\n"
}

// networkd returns the settings of the first adapter, for systemd-networkd.
func (s Setup) networkd() string {
	var b strings.Builder
	b.WriteString("[Match]\nName=eth0\n\n[Network]\n")
	if s.Address.IsValid() {
		fmt.Fprintf(&b, "DHCP=no\nIPv6AcceptRA=no\nAddress=%s\n", s.Address)
	} else {
		b.WriteString("DHCP=yes\n")
	}
	if s.Gateway.IsValid() {
		fmt.Fprintf(&b, "Gateway=%s\n", s.Gateway)
	}
	for _, d := range s.DNS {
		fmt.Fprintf(&b, "DNS=%s\n", d)
	}
	if len(s.Search) > 0 {
		fmt.Fprintf(&b, "Domains=%s\n", strings.Join(s.Search, " "))
	}
	if !s.Address.IsValid() {
		// The same address for a new root disk: the data disk has the machine's id, but the adapter is who asks.
		b.WriteString("\n[DHCPv4]\nClientIdentifier=mac\n")
		if len(s.DNS) > 0 {
			b.WriteString("UseDNS=no\n")
		}
	}
	return b.String()
}

func (s Setup) chrony() string {
	var b strings.Builder
	for _, server := range s.NTP {
		fmt.Fprintf(&b, "server %s iburst\n", server)
	}
	return b.String()
}

// consulDir is the directory of the agent of Consul on the data disk.
const consulDir = "consul"

// OwnConfig is the file on the data disk with the administrator's own settings of the director.
const OwnConfig = "etc/director.yaml"

// fixed are the settings that the appliance alone decides on.
var fixed = []string{
	"stateDir", "runDir", "adminPasswordFile", "adminPasswordHashFile", "held", "upgradeDir", "consulDir",
}

// ownSettings returns the administrator's own settings of the director. Errors: invalid.
func (p Place) ownSettings() (map[string]any, error) {
	own, err := os.ReadFile(p.data(OwnConfig))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	var settings map[string]any
	if err := yaml.Unmarshal(own, &settings); err != nil {
		return nil, director.Errorf(director.KindInvalid, opApply, "%s is no YAML: %w", p.data(OwnConfig), err).
			WithHint("correct it, and run: director setup apply")
	}
	return settings, nil
}

// config returns the director's configuration: that of the appliance, with the administrator's own settings over it.
// addresses are those of the VM, for a setup by DHCP.
func (p Place) config(s Setup, addresses []netip.Addr) (string, error) {
	address := s.Address.Addr()
	if !address.IsValid() && len(addresses) > 0 {
		address = addresses[0]
	}
	all := map[string]any{
		"stateDir": p.data("director"), "listen": ":443", "registryListen": ":5000",
		"names":                 []string{s.Hostname},
		"adminPasswordHashFile": p.data("setup/admin-password-hash"),
		"imageDirs":             []string{p.data("images")}, "bundleDirs": []string{p.data("bundles")},
		"backupDirs": []string{p.data("backups")}, "providerFiles": []string{p.data("etc/providers")},
		"upgradeDir": p.data(upgradeDir), "consulDir": p.data(consulDir),
	}
	if s.Certificate != "" {
		all["certificateFile"], all["certificateKeyFile"] = p.data(certificateFile), p.data(certificateKeyFile)
	}
	if address.IsValid() {
		all["address"] = address.String()
	}
	roots, err := p.Roots()
	if err != nil {
		return "", err
	}
	if b, err := booted(); err == nil && b.Trial && roots.Change.Stage == rootdisk.Trying {
		all["held"] = true // until this root is known to be healthy
	}
	grouped, err := p.groupSettings(s)
	if err != nil {
		return "", err
	}
	settings, err := p.ownSettings()
	if err != nil {
		return "", err
	}
	maps.Copy(all, grouped)
	for key, value := range settings {
		if _, ours := grouped[key]; ours || slices.Contains(fixed, key) {
			return "", director.Invalid(opApply, "the settings of the director are wrong", []director.Field{{
				Path: p.data(OwnConfig) + ": " + printable(key), Msg: "is decided by the appliance",
				Hint: "leave it out, and run: director setup apply",
			}})
		}
		all[key] = value
	}
	var b bytes.Buffer
	b.WriteString("# Written by director setup apply. Your own settings belong into " + p.data(OwnConfig) + ".\n")
	if err := yaml.NewEncoder(&b).Encode(all); err != nil {
		return "", director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	return b.String(), nil
}

// groupSettings returns the settings of the director that its group decides on; none without a group.
func (p Place) groupSettings(s Setup) (map[string]any, error) {
	g, err := p.LoadGroup()
	if director.KindOf(err) == director.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return g.settings(s), nil
}

// Addresses returns the addresses of this machine that others may reach, IPv4 first.
func Addresses() []netip.Addr {
	all, _ := net.InterfaceAddrs()
	var v4, v6 []netip.Addr
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || !p.Addr().IsGlobalUnicast() || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4():
			v4 = append(v4, p.Addr())
		default:
			v6 = append(v6, p.Addr())
		}
	}
	return append(v4, v6...)
}

// SaveFirst is Save unless the appliance has been set up meanwhile, on another of its consoles. It reports whether it
// saved.
func (p Place) SaveFirst(s Setup) (saved bool, err error) {
	lock, err := os.OpenFile(p.data("."), os.O_RDONLY, 0)
	if err != nil {
		return false, director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return false, director.Errorf(director.KindInternal, opApply, "%w", err)
	}
	if _, err := p.Load(); director.KindOf(err) != director.KindNotFound {
		return false, err
	}
	return true, p.Save(s)
}
