package appliance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"text/template"

	"github.com/director-kaas/kaas/director"
)

const opGroup = "appliance.group"

// Group is several appliances that are one director to nodes and people. They share a database, a sealing key, an
// authority, and an address that the first of them has that is ready.
type Group struct {
	Address netip.Addr `json:"address"` // of a member that is ready; nodes and people know it
	// Members are the appliances' own addresses, in the order in which they take the address.
	Members []netip.Addr `json:"members"`
	// Router is the group's number in VRRP, 1 to 255. No other group in the same network may have it.
	Router int `json:"router"`
	// Files is HOST:/PATH of an NFS with the files that they share: registry, images and releases.
	Files string `json:"files,omitempty"`
}

// groupFile is written last of what makes an appliance a member.
const groupFile = "setup/group.json"

// GroupRequest is what an administrator says of a group, unread.
type GroupRequest struct {
	Address string
	Members []string
	Router  int // 0 takes the last byte of the address, as clusters do
	Files   string
}

const mostMembers = 7

// groupFiles keep what the appliances of a group share.
type groupFiles struct{ Place }

func (p Place) group() groupFiles { return groupFiles{p} }

// NewGroup returns the group that was asked for on the appliance with the setup. Errors: invalid, with all that is
// wrong.
func NewGroup(r GroupRequest, s Setup) (Group, error) {
	var fields []director.Field
	bad := func(path, hint, format string, args ...any) {
		fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	g := Group{Router: r.Router, Files: r.Files}
	if !s.Address.IsValid() || !s.Address.Addr().Is4() {
		bad("address", "director setup edit", "members of a group need a static IPv4 address")
		return g, director.Invalid(opGroup, "this appliance cannot be in a group", fields)
	}
	inNetwork := func(path, text string) netip.Addr {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || !a.Is4() || !usable(a):
			bad(path, "such as 192.0.2.10", "%q is no IPv4 address of one machine", printable(text))
		case !s.Address.Masked().Contains(a) || edge(netip.PrefixFrom(a, s.Address.Bits())):
			bad(path, "an address in "+s.Address.Masked().String(), "%s is not in the network of this appliance", a)
		}
		return a
	}
	g.Address = inNetwork("address", r.Address)
	for i, text := range r.Members {
		path := fmt.Sprintf("members[%d]", i)
		a := inNetwork(path, text)
		if a == g.Address || slices.Contains(g.Members, a) {
			bad(path, "each appliance's own address, once", "%s is named twice", a)
		}
		g.Members = append(g.Members, a)
	}
	if len(r.Members) < 2 || len(r.Members) > mostMembers {
		bad("members", "name the own addresses of all appliances", "a group has 2 to %d members", mostMembers)
	} else if !slices.Contains(g.Members, s.Address.Addr()) {
		bad("members", "add "+s.Address.Addr().String(), "this appliance is not among them")
	}
	if g.Router == 0 && g.Address.Is4() {
		g.Router = max(1, int(g.Address.As4()[3]))
	}
	if g.Router < 1 || g.Router > 255 {
		bad("router", "a number that no other group in this network has", "%d is not from 1 to 255", g.Router)
	}
	if g.Files != "" && (len(g.Files) > mostExport || !export.MatchString(g.Files)) {
		bad("files", "such as nfs.example.net:/director", "%q is no HOST:/PATH", printable(g.Files))
	}
	return g, director.Invalid(opGroup, "the group is wrong", fields)
}

// export is an NFS: a name or an IPv4 address, and a path.
var export = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?:(/[A-Za-z0-9._-]+)+$`)

const mostExport = 1024

// request is the group as it would be asked for.
func (g Group) request() GroupRequest {
	r := GroupRequest{Address: g.Address.String(), Router: g.Router, Files: g.Files}
	for _, m := range g.Members {
		r.Members = append(r.Members, m.String())
	}
	return r
}

// LoadGroup returns the group that this appliance is in. Errors: not_found, internal.
func (p Place) LoadGroup() (Group, error) {
	var g Group
	text, err := os.ReadFile(p.data(groupFile))
	if errors.Is(err, fs.ErrNotExist) {
		return g, director.Errorf(director.KindNotFound, opGroup, "this appliance is in no group").
			WithHint("director setup group -help")
	}
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err != nil {
		return g, director.Errorf(director.KindInternal, opGroup, "%s cannot be read: %w", p.data(groupFile), err).
			WithHint("write it again: director setup group -help")
	}
	return g, nil
}

// CheckGroup returns invalid if the director of this appliance has its database alone.
func (p Place) CheckGroup() error {
	shared, err := p.roots().onServer()
	if err != nil || shared {
		return err
	}
	return director.Invalid(opGroup, "this appliance cannot be in a group", []director.Field{{
		Path: p.data(OwnConfig) + ": database", Msg: "is missing: directors of a group share a PostgreSQL",
		Hint: "docs/operate/high-availability.md has the settings",
	}})
}

// SaveGroup makes the appliance a member of the group. Activate has its services take it. Errors: those of CheckGroup.
func (p Place) SaveGroup(g Group) error {
	if err := p.CheckGroup(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return director.Errorf(director.KindInternal, opGroup, "%w", err)
	}
	return writeFile(p.data(groupFile), append(text, '\n'), 0o644)
}

// Files of the services that move the address. They are below /etc.
const (
	keepalivedFile = "keepalived/keepalived.conf"
	firewallFile   = "director/group.nft"
)

// writeGroup writes what the services read of the group, or removes it. Those of networkd, chrony and the director are
// written by Write.
func (p groupFiles) writeGroup(s Setup) error {
	g, err := p.LoadGroup()
	if director.KindOf(err) == director.KindNotFound {
		return errors.Join(removeFile(p.etc(keepalivedFile)), removeFile(p.etc(firewallFile)))
	}
	if err != nil {
		return err
	}
	// The setup may have another address since.
	if _, err := NewGroup(g.request(), s); err != nil {
		return err
	}
	keepalived, err := g.keepalived(s)
	if err != nil {
		return err
	}
	return errors.Join(
		writeFile(p.etc(firewallFile), []byte(g.firewall()), 0o644),
		writeFile(p.etc(keepalivedFile), []byte(keepalived), 0o644),
	)
}

// keepalived is the configuration that moves the address. A director that is not ready, or takes no changes, loses it
// after two questions. The member that has it keeps it: one that comes back takes nothing away.
var keepalived = template.Must(template.New("keepalived").Parse(`# Written by director setup apply.
global_defs {
    router_id {{.Name}}
    enable_script_security
    script_user daemon daemon
    vrrp_garp_master_refresh 60
}

vrrp_script director {
    script "/usr/bin/curl --silent --fail --insecure --output /dev/null --max-time 4 {{.Ready}}"
    interval 3
    timeout 5
    fall 2
    rise 2
}

vrrp_instance director {
    state BACKUP
    nopreempt
    interface eth0
    virtual_router_id {{.Router}}
    priority {{.Priority}}
    advert_int 1
    unicast_src_ip {{.Own}}
    check_unicast_src
    unicast_peer {
{{- range .Others}}
        {{.}}
{{- end}}
    }
    virtual_ipaddress {
        {{.Address}}/32
    }
    track_script {
        director
    }
}
`))

// readyURL is asked on the appliance itself, whose director listens everywhere.
const readyURL = "https://127.0.0.1/readyz?changes=true"

func (g Group) keepalived(s Setup) (string, error) {
	own := s.Address.Addr()
	var b bytes.Buffer
	err := keepalived.Execute(&b, map[string]any{
		"Name": s.Hostname, "Ready": readyURL, "Router": strconv.Itoa(g.Router), "Own": own, "Address": g.Address,
		"Priority": 200 - slices.Index(g.Members, own), "Others": g.others(own),
	})
	if err != nil {
		return "", director.Errorf(director.KindInternal, opGroup, "%w", err)
	}
	return b.String(), nil
}

// others are the members without the own one.
func (g Group) others(own netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(g.Members), func(a netip.Addr) bool { return a == own })
}

// firewall lets members in: their questions for the address, and the one of a member that joins.
func (g Group) firewall() string {
	var b bytes.Buffer
	b.WriteString("flush set inet director members\nadd element inet director members { ")
	for i, m := range g.Members {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(m.String())
	}
	b.WriteString(" }\n")
	return b.String()
}

// settings are those of the director that the group decides on.
func (g Group) settings(s Setup) map[string]any {
	return map[string]any{
		"address": g.Address.String(), "listen": ":443", "registryListen": ":5000",
		"peerAddress": netip.AddrPortFrom(s.Address.Addr(), 443).String(),
	}
}
