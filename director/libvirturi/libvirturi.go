// Package libvirturi reads the connection URIs of libvirt that a provider may name.
//
// libvirt's own URIs can run programs (command, netcat), switch checks off (no_verify) and lead to other places than
// they say (proxy, socket, name), and libvirt opens them with the director's rights. So this package knows the few
// forms that are needed, and refuses everything else: no percent-encoding, no upper case in keys, no key twice. This
// package and libvirt cannot read an accepted URI differently.
package libvirturi

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The transports of a URI.
const (
	Local = ""     // qemu:///system: libvirt on the director's own machine
	SSH   = "ssh"  // qemu+ssh://root@host/system
	TLS   = "tls"  // qemu+tls://host/system
	Unix  = "unix" // qemu+unix:///system?socket=/path: libvirt on the director's own machine, at another socket
)

// The keys of a URI's query.
const (
	keyFile = "keyfile"
	pkiPath = "pkipath"
	socket  = "socket"
)

// keys are the keys that each transport may have.
var keys = map[string][]string{Local: nil, SSH: {keyFile}, TLS: {pkiPath}, Unix: {socket}}

// URI is a connection URI that was understood. Its fields hold no byte that has a meaning to libvirt, ssh or a shell.
type URI struct {
	Transport string
	User      string // of ssh; may be empty
	Host      string // of ssh and tls: a name, an IPv4 address, or an IPv6 address without brackets
	Port      int    // 0 for the transport's own
	KeyFile   string // of ssh: the file of the private key
	PKIPath   string // of tls: the directory of the certificates
	Socket    string // of unix: libvirt's socket
}

var (
	shape       = regexp.MustCompile(`^qemu(\+[^:/]*)?://([^/?#]*)/system(?:\?(.*))?$`)
	userPattern = regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,31}$`)
	namePattern = regexp.MustCompile(
		`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`,
	)
	pathPattern = regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`)
	digits      = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
)

// most is the length that a URI may have.
const most = 1024

// Examples say what a URI looks like.
const Examples = "qemu:///system, qemu+ssh://root@host/system?keyfile=PATH or qemu+tls://host/system?pkipath=PATH"

// Parse reads a connection URI. The error says what is wrong with it, and never repeats a password.
func Parse(text string) (URI, error) {
	if len(text) > most {
		return URI{}, fmt.Errorf("is %d bytes long, and at most %d are allowed", len(text), most)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return URI{}, fmt.Errorf("has a character that is not allowed (0x%02x)", c)
		}
	}
	if before, _, found := strings.Cut(text, "@"); found {
		if _, account, _ := strings.Cut(before, "://"); strings.Contains(account, ":") {
			return URI{}, fmt.Errorf("holds a password")
		}
	}
	if i := strings.IndexAny(text, `%#;\"'$&<>|(){}*!^`+"`"); i >= 0 && text[i] != '&' {
		return URI{}, fmt.Errorf("has the character %q, which is not allowed", text[i])
	}
	m := shape.FindStringSubmatch(text)
	if m == nil {
		return URI{}, fmt.Errorf("%q is not a libvirt connection URI that the director opens", text)
	}
	u := URI{Transport: strings.TrimPrefix(m[1], "+")}
	allowed, known := keys[u.Transport]
	if !known || m[1] == "+" {
		return URI{}, fmt.Errorf("has the transport %q, and only ssh and tls lead to another host", u.Transport)
	}
	if err := u.authority(m[2]); err != nil {
		return URI{}, err
	}
	if strings.Contains(text, "?") {
		if err := u.query(m[3], allowed); err != nil {
			return URI{}, err
		}
	}
	if u.Transport == Unix && u.Socket == "" {
		return URI{}, fmt.Errorf("names no socket; leave +unix out for libvirt's own")
	}
	return u, nil
}

// authority reads user, host and port.
func (u *URI) authority(text string) error {
	if u.Transport == Local || u.Transport == Unix {
		if text != "" {
			return fmt.Errorf("names a host and no transport; write qemu+ssh:// or qemu+tls://")
		}
		return nil
	}
	user, host, found := strings.Cut(text, "@")
	if !found {
		user, host = "", text
	}
	switch {
	case found && u.Transport != SSH:
		return fmt.Errorf("names a user, which only ssh has")
	case found && !userPattern.MatchString(user):
		return fmt.Errorf("has the user %q, which is not allowed", user)
	}
	u.User = user
	port := ""
	if inner, rest, v6 := strings.Cut(strings.TrimPrefix(host, "["), "]"); strings.HasPrefix(host, "[") {
		a, err := netip.ParseAddr(inner)
		if !v6 || err != nil || !a.Is6() || a.Zone() != "" || rest != "" && !strings.HasPrefix(rest, ":") {
			return fmt.Errorf("has the host %q, which is not allowed", host)
		}
		u.Host, port = inner, rest
	} else {
		name, rest, colon := strings.Cut(host, ":")
		if len(name) > 253 || !namePattern.MatchString(name) {
			return fmt.Errorf("has the host %q, which is not allowed", name)
		}
		if u.Host = name; colon {
			port = ":" + rest
		}
	}
	if port == "" {
		return nil
	}
	n, err := strconv.Atoi(port[1:])
	if err != nil || !digits.MatchString(port[1:]) || n > 65535 {
		return fmt.Errorf("has the port %q, which is not allowed", port[1:])
	}
	u.Port = n
	return nil
}

// query reads the keys behind the question mark.
func (u *URI) query(text string, allowed []string) error {
	var seen []string
	for pair := range strings.SplitSeq(text, "&") {
		key, value, _ := strings.Cut(pair, "=")
		switch {
		case !slices.Contains(allowed, key) && len(allowed) == 0:
			return fmt.Errorf("has the key %q, and qemu:///system takes none", key)
		case !slices.Contains(allowed, key):
			return fmt.Errorf(
				"has the key %q, and qemu+%s takes %s alone", key, u.Transport, strings.Join(allowed, " and "),
			)
		case slices.Contains(seen, key):
			return fmt.Errorf("has the key %s twice", key)
		case !pathPattern.MatchString(value) || path.Clean(value) != value:
			return fmt.Errorf(
				"has the path %q in %s, which is not a clean absolute path of letters, digits and . _ -", value, key,
			)
		}
		seen = append(seen, key)
		switch key {
		case keyFile:
			u.KeyFile = value
		case pkiPath:
			u.PKIPath = value
		case socket:
			u.Socket = value
		}
	}
	return nil
}

// Remote tells whether the URI leads to another machine by its network.
func (u URI) Remote() bool { return u.Host != "" }

// Files returns the file or directory that libvirt reads for the URI, with the key that names it, or "" twice.
func (u URI) Files() (key, name string) {
	if u.KeyFile != "" {
		return keyFile, u.KeyFile
	}
	if u.PKIPath != "" {
		return pkiPath, u.PKIPath
	}
	return "", ""
}

// String writes the URI. Parse reads it again as the same.
func (u URI) String() string {
	var b strings.Builder
	b.WriteString("qemu")
	if u.Transport != Local {
		b.WriteString("+" + u.Transport)
	}
	b.WriteString("://")
	if u.User != "" {
		b.WriteString(u.User + "@")
	}
	if strings.Contains(u.Host, ":") {
		b.WriteString("[" + u.Host + "]")
	} else {
		b.WriteString(u.Host)
	}
	if u.Port != 0 {
		b.WriteString(":" + strconv.Itoa(u.Port))
	}
	b.WriteString("/system")
	mark := "?"
	for _, p := range []struct{ key, value string }{{keyFile, u.KeyFile}, {pkiPath, u.PKIPath}, {socket, u.Socket}} {
		if p.value != "" {
			b.WriteString(mark + p.key + "=" + p.value)
			mark = "&"
		}
	}
	return b.String()
}
