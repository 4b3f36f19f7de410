// Package cloudinit renders what a node reads at its first boot. Every back end gets the same three documents and only
// decides how they travel.
//
// The documents keep to cheap modules of cloud-init: on an emulated node each one costs seconds. The data disk is
// prepared by a short script instead of cloud-init's own disk modules, because those format a whole disk again whenever
// the instance is new, and a new instance on an old data disk is the very case that the disk is for.
package cloudinit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"
	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// DefaultUser is the account that the director logs in with.
const DefaultUser = "kaas"

// HostKey is the SSH identity of a node. The director makes it before the VM exists, so that the first connection is
// checked like every other.
type HostKey struct {
	Private director.Secret // PEM in OpenSSH's format
	Public  string          // one line as in authorized_keys and after the host in known_hosts: "ssh-ed25519 AAAA..."
}

// NewHostKey returns a new ed25519 key.
func NewHostKey() (HostKey, error) {
	const op = "cloudinit.host_key"
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return HostKey{}, director.Errorf(director.KindInternal, op, "no random numbers: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return HostKey{}, director.Errorf(director.KindInternal, op, "cannot encode the key: %w", err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		return HostKey{}, director.Errorf(director.KindInternal, op, "cannot encode the key: %w", err)
	}
	return HostKey{
		Private: director.Secret(pem.EncodeToMemory(block)),
		Public:  strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))),
	}, nil
}

// HostAlias is a line of /etc/hosts.
type HostAlias struct {
	Address netip.Addr
	Names   []string
}

// DataDisk is the disk that outlives the VM, as the guest sees it.
type DataDisk struct {
	Serial string // the serial of the hypervisor.Disk
	WWN    string // hypervisor.DiskWWN of it, where the hypervisor may show it by that; empty for the serial alone
	Mount  string // where it is mounted; required
	// Persist are directories that live on the disk and are bind-mounted to their own paths. What a directory holds
	// before its first time on the disk is copied to it.
	Persist []string
}

// Repository is a package source for apt.
type Repository struct {
	Name   string // of the file in sources.list.d
	Source string // a line of sources.list
	Key    string // armoured public key; may be empty
}

// File is a file to write before anything else starts.
type File struct {
	Path    string
	Mode    string // octal, such as "0644", which is the default
	Owner   string // user:group; default root:root
	Content []byte
}

// Guest is what one node is told at its first boot.
type Guest struct {
	// InstanceID is the machine's id. cloud-init runs its first-boot part again when it differs from the disk's last
	// one.
	InstanceID     string
	Hostname       string
	SSHUser        string   // default DefaultUser; has sudo without a password
	AuthorizedKeys []string // lasting keys, such as an administrator's
	UserCA         *UserCA  // nil for none
	HostKey        HostKey
	NICs           []hypervisor.NIC // named eth0, eth1 and so on by their order
	HostAliases    []HostAlias
	NTP            []string // empty leaves the image's setting alone
	Timezone       string   // empty leaves the image's setting alone
	DataDisk       *DataDisk
	Packages       []string // installed at first boot; slow, and needs a reachable repository
	Repositories   []Repository
	Scripts        []Script // run in order, after everything else
	Shares         []Share  // mounted before the scripts run
	Health         string   // shell script that tells whether the node is well; empty for none
	Files          []File
	CleanUp        CleanUp
}

var (
	hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	username = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	safePath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)
	serial   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,20}$`)
	wwn      = regexp.MustCompile(`^[0-9a-f]{32}$`)
	fileName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	mode     = regexp.MustCompile(`^[0-7]{3,4}$`)
	mac      = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)
)

// validate returns every place that is wrong.
func (g *Guest) validate() []director.Field {
	var p problems
	g.checkLogin(&p)
	g.checkAdapters(&p)
	g.checkHostAliases(&p)
	g.checkDataDisk(&p)
	g.checkFiles(&p)
	p = append(p, g.userCAProblems()...)
	p = append(p, g.firstBootProblems()...)
	return append(p, g.cleanUpProblems()...)
}

// problems are the places that are wrong.
type problems []director.Field

// want adds a place unless ok.
func (p *problems) want(ok bool, path, format string, args ...any) {
	if !ok {
		*p = append(*p, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
	}
}

func oneLine(s string) bool { return s != "" && !strings.ContainsAny(s, "\r\n\x00") }

func cleanPath(p string) bool { return safePath.MatchString(p) && path.Clean(p) == p }

// checkLogin checks the VM's identity and who may log in.
func (g *Guest) checkLogin(p *problems) {
	p.want(oneLine(g.InstanceID), "instance_id", "is empty or has several lines")
	p.want(hostname.MatchString(g.Hostname) && len(g.Hostname) <= 253, "hostname", "%q is not a host name", g.Hostname)
	p.want(username.MatchString(g.SSHUser), "ssh_user", "%q is not a user name", g.SSHUser)
	p.want(len(g.AuthorizedKeys) > 0 || g.UserCA != nil, "authorized_keys", "is empty: no one could log in")
	for i, k := range g.AuthorizedKeys {
		_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(k))
		p.want(
			err == nil && len(bytes.TrimSpace(rest)) == 0, fmt.Sprintf("authorized_keys[%d]", i),
			"is not one SSH public key",
		)
	}
	if key, err := ssh.ParsePrivateKey([]byte(g.HostKey.Private.Reveal())); err != nil {
		p.want(false, "host_key.private", "is not an SSH private key without a passphrase")
	} else if public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(g.HostKey.Public)); err != nil ||
		public.Type() != ssh.KeyAlgoED25519 || !bytes.Equal(public.Marshal(), key.PublicKey().Marshal()) {
		p.want(false, "host_key.public", "is not the ed25519 public key of the private one")
	}
}

func (g *Guest) checkAdapters(p *problems) {
	gateways, macs := 0, map[string]bool{}
	for i, n := range g.NICs {
		at := fmt.Sprintf("nics[%d]", i)
		p.want(!macs[n.MAC], at+".mac", "%q is another adapter's too", n.MAC)
		macs[n.MAC] = true
		if n.Gateway.Is4() {
			gateways++
			p.want(gateways == 1, at+".gateway", "another adapter has the default route already")
		}
		for j, r := range n.Routes {
			p.want(
				r.To.IsValid() && r.Via.IsValid() && r.To.Addr().Is4() == r.Via.Is4(),
				fmt.Sprintf("%s.routes[%d]", at, j), "is no route",
			)
		}
		p.want(mac.MatchString(n.MAC), at+".mac", "%q is not a MAC address in lower case with colons", n.MAC)
		for j, a := range n.Addresses {
			p.want(a.IsValid(), fmt.Sprintf("%s.addresses[%d]", at, j), "is not an address with a prefix length")
		}
	}
}

func (g *Guest) checkHostAliases(p *problems) {
	for i, a := range g.HostAliases {
		at := fmt.Sprintf("host_aliases[%d]", i)
		p.want(a.Address.IsValid(), at+".address", "is not an address")
		p.want(len(a.Names) > 0, at+".names", "is empty")
		for j, n := range a.Names {
			p.want(hostname.MatchString(n), fmt.Sprintf("%s.names[%d]", at, j), "%q is not a host name", n)
		}
	}
}

func (g *Guest) checkDataDisk(p *problems) {
	d := g.DataDisk
	if d == nil {
		return
	}
	p.want(
		serial.MatchString(d.Serial), "data_disk.serial", "%q is not 1 to 20 letters, digits, dots and dashes",
		d.Serial,
	)
	p.want(d.WWN == "" || wwn.MatchString(d.WWN), "data_disk.wwn", "%q is not 32 hexadecimal digits", d.WWN)
	p.want(cleanPath(d.Mount), "data_disk.mount", "%q is not a plain absolute path", d.Mount)
	for i, dir := range d.Persist {
		at := fmt.Sprintf("data_disk.persist[%d]", i)
		p.want(cleanPath(dir), at, "%q is not a plain absolute path", dir)
		p.want(
			!within(dir, d.Mount) && !within(d.Mount, dir), at, "%q and the mount point %q lie in each other", dir,
			d.Mount,
		)
		for j, other := range d.Persist[:i] {
			p.want(
				!within(dir, other) && !within(other, dir), at, "%q and persist[%d] %q lie in each other", dir, j,
				other,
			)
		}
	}
}

// checkFiles checks the files and the repositories of packages.
func (g *Guest) checkFiles(p *problems) {
	for i, r := range g.Repositories {
		at := fmt.Sprintf("repositories[%d]", i)
		p.want(fileName.MatchString(r.Name), at+".name", "%q is not a file name", r.Name)
		p.want(oneLine(r.Source), at+".source", "is empty or has several lines")
	}
	for i, f := range g.Files {
		at := fmt.Sprintf("files[%d]", i)
		p.want(
			path.IsAbs(f.Path) && path.Clean(f.Path) == f.Path, at+".path", "%q is not a clean absolute path", f.Path,
		)
		p.want(f.Mode == "" || mode.MatchString(f.Mode), at+".mode", "%q is not octal, such as 0644", f.Mode)
	}
}

// within tells whether p is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// Render returns the documents for g. The same g gives the same bytes. Errors: invalid with every place that is wrong.
func Render(g Guest) (hypervisor.Seed, error) {
	const op = "cloudinit.render"
	if g.SSHUser == "" {
		g.SSHUser = DefaultUser
	}
	if err := director.Invalid(op, "the node's first-boot settings are wrong", g.validate()); err != nil {
		return hypervisor.Seed{}, err
	}
	user, err := encode("#cloud-config\n", g.userData())
	if err != nil {
		return hypervisor.Seed{}, err
	}
	meta, err := encode("", metaData{InstanceID: g.InstanceID, Hostname: g.Hostname})
	if err != nil {
		return hypervisor.Seed{}, err
	}
	network, err := encode("", networkConfig(g.NICs))
	if err != nil {
		return hypervisor.Seed{}, err
	}
	return hypervisor.Seed{MetaData: meta, UserData: user, NetworkConfig: network}, nil
}

func encode(header string, v any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, director.Errorf(director.KindInternal, "cloudinit.render", "cannot encode: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, director.Errorf(director.KindInternal, "cloudinit.render", "cannot encode: %w", err)
	}
	return b.Bytes(), nil
}

type metaData struct {
	InstanceID string `yaml:"instance-id"`
	Hostname   string `yaml:"local-hostname"`
}

// userData is the part of cloud-config that we use, in the order in which it is read best.
type userData struct {
	Hostname         string     `yaml:"hostname"`
	PreserveHostname bool       `yaml:"preserve_hostname"`
	ManageEtcHosts   bool       `yaml:"manage_etc_hosts"`
	Users            []user     `yaml:"users"`
	DisableRoot      bool       `yaml:"disable_root"`
	PasswordLogin    bool       `yaml:"ssh_pwauth"`
	DeleteKeys       bool       `yaml:"ssh_deletekeys"`
	HostKeys         hostKeys   `yaml:"ssh_keys"`
	NoFingerprints   bool       `yaml:"no_ssh_fingerprints"`
	Growpart         growpart   `yaml:"growpart"`
	ResizeRoot       bool       `yaml:"resize_rootfs"`
	Timezone         string     `yaml:"timezone,omitempty"`
	NTP              *ntp       `yaml:"ntp,omitempty"`
	Bootcmd          []string   `yaml:"bootcmd,omitempty"`
	Files            []file     `yaml:"write_files"`
	Apt              *apt       `yaml:"apt,omitempty"`
	PackageUpdate    bool       `yaml:"package_update,omitempty"`
	Packages         []string   `yaml:"packages,omitempty"`
	Runcmd           [][]string `yaml:"runcmd,omitempty"`
}

type user struct {
	Name   string   `yaml:"name"`
	Shell  string   `yaml:"shell"`
	Sudo   string   `yaml:"sudo"`
	Locked bool     `yaml:"lock_passwd"`
	Keys   []string `yaml:"ssh_authorized_keys,omitempty"`
}

type hostKeys struct {
	Private string `yaml:"ed25519_private"`
	Public  string `yaml:"ed25519_public"`
}

type growpart struct {
	Mode    string   `yaml:"mode"`
	Devices []string `yaml:"devices"`
}

type ntp struct {
	Enabled bool     `yaml:"enabled"`
	Client  string   `yaml:"ntp_client"`
	Servers []string `yaml:"servers"`
}

// file is an entry of write_files.
type file struct {
	Path     string `yaml:"path"`
	Mode     string `yaml:"permissions"`
	Owner    string `yaml:"owner"`
	Encoding string `yaml:"encoding,omitempty"`
	Content  string `yaml:"content"`
}

// newFile returns the entry for a file. Only what reads well in YAML is written as it is: text of whole lines, the
// first of which is not indented. The rest is encoded.
func newFile(path, mode, owner string, content []byte) file {
	f := file{Path: path, Mode: mode, Owner: owner, Content: string(content)}
	plain := utf8.Valid(content) && bytes.HasSuffix(content, []byte("\n")) && content[0] > ' '
	for _, c := range content {
		plain = plain && (c >= ' ' && c != 0x7f || c == '\n' || c == '\t')
	}
	if !plain {
		f.Encoding, f.Content = "b64", base64.StdEncoding.EncodeToString(content)
	}
	return f
}

type apt struct {
	Preserve bool                 `yaml:"preserve_sources_list"`
	Sources  map[string]aptSource `yaml:"sources,omitempty"`
}

type aptSource struct {
	Source string `yaml:"source"`
	Key    string `yaml:"key,omitempty"`
}

func (g *Guest) userData() userData {
	u := userData{
		Hostname: g.Hostname,
		Users: []user{{
			Name: g.SSHUser, Shell: "/bin/bash", Sudo: "ALL=(ALL) NOPASSWD:ALL", Locked: true, Keys: g.AuthorizedKeys,
		}},
		DisableRoot:    true,
		DeleteKeys:     true,
		HostKeys:       hostKeys{Private: g.HostKey.Private.Reveal(), Public: g.HostKey.Public},
		NoFingerprints: true,
		Growpart:       growpart{Mode: "auto", Devices: []string{"/"}},
		ResizeRoot:     true,
		Timezone:       g.Timezone,
		Files:          []file{newFile("/etc/hosts", "0644", "root:root", []byte(g.hosts()))},
		PackageUpdate:  len(g.Packages) > 0,
		Packages:       g.Packages,
	}
	if len(g.NTP) > 0 {
		u.NTP = &ntp{Enabled: true, Client: "chrony", Servers: g.NTP}
	}
	if !g.CleanUp.empty() {
		u.Bootcmd = append(u.Bootcmd, g.CleanUp.script(""))
		u.Apt = &apt{Preserve: true} // or cloud-init rewrites the distribution's repositories
	}
	if g.DataDisk != nil {
		u.Bootcmd = append(u.Bootcmd, g.DataDisk.Script())
	}
	for _, f := range g.Files {
		if f.Mode == "" {
			f.Mode = "0644"
		}
		if f.Owner == "" {
			f.Owner = "root:root"
		}
		u.Files = append(u.Files, newFile(f.Path, f.Mode, f.Owner, f.Content))
	}
	u.Files = append(u.Files, g.userCAFiles()...)
	if len(g.Repositories) > 0 {
		u.Apt = &apt{Preserve: true, Sources: map[string]aptSource{}}
		for _, r := range g.Repositories {
			u.Apt.Sources[r.Name] = aptSource{Source: r.Source, Key: r.Key}
		}
	}
	if g.Health != "" {
		u.Files = append(
			u.Files,
			newFile(HealthFile, "0700", "root:root", []byte("#!/bin/sh\n"+strings.TrimRight(g.Health, "\n")+"\n")),
		)
	}
	files, command := g.firstBoot()
	u.Files = append(u.Files, files...)
	if command != nil {
		u.Runcmd = append(u.Runcmd, command)
	}
	return u
}

// hosts is the whole of /etc/hosts. The node's own name leads to its first address, as the other nodes see it.
func (g *Guest) hosts() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	own := netip.AddrFrom4([4]byte{127, 0, 1, 1})
	if len(g.NICs) > 0 && len(g.NICs[0].Addresses) > 0 {
		own = g.NICs[0].Addresses[0].Addr()
	}
	names := g.Hostname
	if short, _, found := strings.Cut(g.Hostname, "."); found {
		names += " " + short
	}
	fmt.Fprintf(&b, "%s %s\n", own, names)
	for _, a := range g.HostAliases {
		fmt.Fprintf(&b, "%s %s\n", a.Address, strings.Join(a.Names, " "))
	}
	return b.String()
}

// Script prepares the disk and mounts it, as root. It runs at every boot, and does nothing where /etc/fstab has mounted
// all already. A disk is formatted only if it has no known signature and its first MiB is zero.
func (d *DataDisk) Script() string {
	var b strings.Builder
	other := ""
	if d.WWN != "" {
		other = fmt.Sprintf(
			"if [ -b /dev/disk/by-id/wwn-0x%[1]s ]; then dev=/dev/disk/by-id/wwn-0x%[1]s; continue; fi; ", d.WWN,
		)
	}
	fmt.Fprintf(&b, `set -eu
dev=/dev/disk/by-id/virtio-%[1]s
top=%[2]s
try=0
until [ -b "$dev" ] || [ "$try" -ge 60 ]; do try=$((try + 1)); %[4]ssleep 1; done
found=0
blkid -p "$dev" >/dev/null 2>&1 || found=$?
if [ "$found" -eq 2 ]; then
  if ! cmp -s -n 1048576 "$dev" /dev/zero; then
    echo "data disk $dev holds data of an unknown kind and is left alone" >&2
    exit 1
  fi
  mkfs.ext4 -q -m 1 -L %[3]s -E nodiscard "$dev"
fi
remember() { grep -qxF "$1" /etc/fstab || echo "$1" >>/etc/fstab; }
mkdir -p "$top"
mountpoint -q "$top" || mount "$dev" "$top"
remember "$dev $top auto defaults,x-systemd.device-timeout=90s 0 2"
`, d.Serial, d.Mount, label(d.Serial), other)
	if len(d.Persist) == 0 {
		return b.String()
	}
	b.WriteString(`persist() {
  mkdir -p "$1"
  mountpoint -q "$1" && return
  if [ ! -d "$top$1" ]; then
    mkdir -p "$(dirname "$top$1")"
    rm -rf "$top$1.new"
    cp -a "$1" "$top$1.new"
    mv "$top$1.new" "$top$1"
  fi
  mount --bind "$top$1" "$1"
  remember "$top$1 $1 none bind 0 0"
}
`)
	for _, p := range d.Persist {
		fmt.Fprintf(&b, "persist %s\n", p)
	}
	return b.String()
}

// label is the file system label: ext4 takes 16 bytes.
func label(serial string) string { return serial[:min(len(serial), 16)] }

type netConfig struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]ethernet `yaml:"ethernets"`
}

type ethernet struct {
	Match       match        `yaml:"match"`
	SetName     string       `yaml:"set-name"`
	DHCP4       bool         `yaml:"dhcp4"`
	DHCP6       bool         `yaml:"dhcp6"`
	AcceptRA    bool         `yaml:"accept-ra"`
	LinkLocal   *[]string    `yaml:"link-local,omitempty,flow"`
	Addresses   []string     `yaml:"addresses,omitempty"`
	Routes      []route      `yaml:"routes,omitempty"`
	Nameservers *nameservers `yaml:"nameservers,omitempty"`
	Optional    bool         `yaml:"optional,omitempty"`
}

type match struct {
	MAC string `yaml:"macaddress"`
}

type route struct {
	To  string `yaml:"to"`
	Via string `yaml:"via"`
}

type nameservers struct {
	Addresses []string `yaml:"addresses"`
}

// networkConfig is cloud-init's network-config, version 2. The default route is spelled as a range, because older
// cloud-init does not know the word for it, and without IPv6 link-local addresses are off, because waiting for them
// costs seconds at boot.
func networkConfig(nics []hypervisor.NIC) netConfig {
	c := netConfig{Version: 2, Ethernets: map[string]ethernet{}}
	for i, n := range nics {
		name := fmt.Sprintf("eth%d", i)
		e := ethernet{Match: match{MAC: n.MAC}, SetName: name, Optional: i > 0 && !n.Gateway.IsValid()}
		v6 := false
		for _, a := range n.Addresses {
			e.Addresses = append(e.Addresses, a.String())
			v6 = v6 || a.Addr().Is6()
		}
		if !v6 {
			e.LinkLocal = &[]string{}
		}
		if n.Gateway.IsValid() {
			to := "0.0.0.0/0"
			if n.Gateway.Is6() {
				to = "::/0"
			}
			e.Routes = []route{{To: to, Via: n.Gateway.String()}}
		}
		for _, r := range n.Routes {
			e.Routes = append(e.Routes, route{To: r.To.String(), Via: r.Via.String()})
		}
		if len(n.DNS) > 0 {
			e.Nameservers = &nameservers{}
			for _, a := range n.DNS {
				e.Nameservers.Addresses = append(e.Nameservers.Addresses, a.String())
			}
		}
		c.Ethernets[name] = e
	}
	return c
}
