// Package appliance sets up the VM that the director comes as: it reads what an administrator says at the first boot,
// takes the data disk, and writes what the services of the VM read. See docs/start/appliance.md.
package appliance

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
)

// Setup is what an administrator said, in the form in which it is kept. It has hashes, and no password.
type Setup struct {
	Hostname string       `json:"hostname"`
	Address  netip.Prefix `json:"address"` // static; by DHCP if it is not valid
	Gateway  netip.Addr   `json:"gateway"`
	DNS      []netip.Addr `json:"dns"`
	Search   []string     `json:"search"`
	NTP      []string     `json:"ntp"`
	SSHKeys  []string     `json:"ssh_keys"`
	// PasswordHash is of the first password of the director's user admin, as auth.HashPassword makes it.
	PasswordHash string `json:"password_hash"`
	// ConsoleHash is of the same password, in the form of crypt(3), for the log-in on the VM's console. Without it
	// there is none: a hash that is given alone is of no such form.
	ConsoleHash string `json:"console_hash"`
	// Certificate and Key are what the console is served with, in PEM. Without them the director issues its own.
	Certificate string `json:"certificate"`
	Key         string `json:"certificate_key"`
}

// Property is one of what an administrator can say.
type Property struct {
	Key    string
	Secret bool // is never shown
	Label  string
	Help   string
}

// Properties returns all properties in the order in which they are asked for. The OVF descriptor has the same.
func Properties() []Property {
	return []Property{
		{Key: "hostname", Label: "Host name", Help: "Such as director or director.example.org."},
		{
			Key: "address", Label: "Address",
			Help: "With its prefix, such as 192.0.2.10/24. Empty: by DHCP.",
		},
		{Key: "gateway", Label: "Gateway", Help: "Address of the router in the same network."},
		{Key: "dns", Label: "DNS servers", Help: "Addresses, with commas between them."},
		{Key: "search", Label: "DNS search domains", Help: "With commas between them."},
		{Key: "ntp", Label: "NTP servers", Help: "Names or addresses, with commas between them."},
		{
			Key: "admin_password", Secret: true, Label: "Password of admin",
			Help: "First password of the user admin, 12 characters or more.",
		},
		{
			Key: "admin_password_hash", Secret: true, Label: "Hash of the password of admin",
			Help: "Instead of the password: what director setup hash writes.",
		},
		{
			Key: "ssh_keys", Label: "SSH public keys",
			Help: "Of those who may log in as admin over SSH, with commas or line ends between them.",
		},
		{
			Key: "certificate", Label: "Certificate",
			Help: "PEM, or base64 of it, with the chain. Empty: the director issues its own.",
		},
		{
			Key: "certificate_key", Secret: true, Label: "Key of the certificate",
			Help: "PEM without a password, or base64 of it.",
		},
	}
}

// Values returns the properties of a setup, with the hash of the password for the password.
func (s Setup) Values() map[string]string {
	values := map[string]string{
		"hostname": s.Hostname, "search": strings.Join(s.Search, ","), "ntp": strings.Join(s.NTP, ","),
		"ssh_keys": strings.Join(s.SSHKeys, "\n"), "admin_password_hash": s.PasswordHash,
		"certificate": s.Certificate, "certificate_key": s.Key,
	}
	var dns []string
	for _, d := range s.DNS {
		dns = append(dns, d.String())
	}
	values["dns"] = strings.Join(dns, ",")
	if s.Address.IsValid() {
		values["address"] = s.Address.String()
	}
	if s.Gateway.IsValid() {
		values["gateway"] = s.Gateway.String()
	}
	return values
}

// reader reads properties and collects what is wrong.
type reader struct {
	given  map[string]string
	fields []director.Field
}

func (r *reader) get(key string) string { return strings.TrimSpace(r.given[key]) }

func (r *reader) bad(key, hint, format string, args ...any) {
	r.fields = append(r.fields, director.Field{Path: key, Msg: fmt.Sprintf(format, args...), Hint: hint})
}

// most bounds the length of a property: certificates with their chains are the longest.
const most = 64 << 10

// Read returns the setup that the properties ask for, with passwords replaced by hashes. Unknown keys are wrong.
// Errors: invalid, with every wrong property at once; no error holds a secret.
func Read(given map[string]string) (Setup, error) {
	r := &reader{given: given}
	known := map[string]bool{}
	for _, p := range Properties() {
		known[p.Key] = true
		if len(given[p.Key]) > most {
			r.bad(p.Key, "shorten it", "has more than %d bytes", most)
			return Setup{}, r.problem()
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !known[key] {
			r.bad(printable(key), "leave it out", "is not a property of the appliance")
		}
	}
	var s Setup
	r.names(&s)
	r.network(&s)
	r.access(&s)
	r.certificate(&s)
	return s, r.problem()
}

func (r *reader) problem() error {
	return director.Invalid("appliance.properties", "the properties of the appliance are wrong", r.fields)
}

var hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// isHost reports whether s is a name of a host, of at most as many bytes as Linux takes for its own.
func isHost(s string, bytes int) bool { return len(s) <= bytes && hostname.MatchString(s) }

func (r *reader) names(s *Setup) {
	s.Hostname = strings.ToLower(r.get("hostname"))
	switch {
	case s.Hostname == "":
		r.bad("hostname", "such as director.example.org", "is missing")
	case !isHost(s.Hostname, 64) || s.Hostname == "localhost":
		r.bad("hostname", "letters, digits, - and dots, at most 64", "%q is no host name", s.Hostname)
	}
	for _, name := range list(r.get("search")) {
		if !isHost(name, 253) {
			r.bad("search", "names of domains with commas between them", "%q is no name of a domain", name)
			continue
		}
		s.Search = append(s.Search, name)
	}
	for _, server := range list(r.get("ntp")) {
		if _, err := netip.ParseAddr(server); err != nil && !isHost(server, 253) {
			r.bad("ntp", "names or addresses with commas between them", "%q is neither a name nor an address", server)
			continue
		}
		s.NTP = append(s.NTP, server)
	}
}

func (r *reader) network(s *Setup) {
	for _, text := range list(r.get("dns")) {
		a, err := netip.ParseAddr(text)
		if err != nil || !usable(a) {
			r.bad("dns", "addresses with commas between them", "%q is no address of a server", text)
			continue
		}
		s.DNS = append(s.DNS, a)
	}
	address, gateway := r.get("address"), r.get("gateway")
	if address == "" || strings.EqualFold(address, "dhcp") {
		if gateway != "" {
			r.bad("gateway", "leave it out, or say the address", "is given without address, which then comes by DHCP")
		}
		return
	}
	var err error
	if s.Address, err = netip.ParsePrefix(address); err != nil {
		r.bad("address", "with its prefix, such as 192.0.2.10/24", "%q is no address with a prefix", address)
		return
	}
	switch {
	case !usable(s.Address.Addr()):
		r.bad("address", "an address of this VM alone", "%s is for no single machine", s.Address)
	case s.Address.Bits() < s.Address.Addr().BitLen()-1 && edge(s.Address):
		r.bad("address", "one in between", "%s is the first or the last address of its network", s.Address)
	}
	if gateway == "" {
		return // a network without a way out
	}
	s.Gateway, err = netip.ParseAddr(gateway)
	switch {
	case err != nil || !usable(s.Gateway):
		r.bad("gateway", "such as 192.0.2.1", "%q is no address", gateway)
	case !s.Address.Masked().Contains(s.Gateway):
		r.bad("gateway", "an address in "+s.Address.Masked().String(), "%s is not in the network of address", gateway)
	case s.Gateway == s.Address.Addr():
		r.bad("gateway", "the address of the router", "is the address of this VM")
	}
}

// usable reports whether the address may be one machine's in a network.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == ""
}

// edge reports whether the address is its IPv4 network's own, or that for everyone in it.
func edge(p netip.Prefix) bool {
	if !p.Addr().Is4() {
		return false
	}
	b := p.Masked().Addr().As4()
	host := 32 - p.Bits()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n |= 1<<host - 1
	last := netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return p.Addr() == p.Masked().Addr() || p.Addr() == last
}

func (r *reader) access(s *Setup) {
	password, hash := director.Secret(r.given["admin_password"]), r.get("admin_password_hash")
	switch {
	case password == "" && hash == "":
		r.bad("admin_password", "12 characters or more, or give admin_password_hash", "is missing")
	case password != "" && hash != "":
		r.bad("admin_password_hash", "leave one of them out", "is given, and admin_password too")
	case hash != "":
		r.fields = append(r.fields, director.FieldsOf(auth.CheckHash("admin_password_hash", hash))...)
		s.PasswordHash = hash
	default:
		if err := auth.CheckPassword("admin_password", password); err != nil {
			r.fields = append(r.fields, director.FieldsOf(err)...)
			break
		}
		s.PasswordHash, s.ConsoleHash = auth.HashPassword(password), consoleHash(password)
	}
	for i, text := range strings.FieldsFunc(r.get("ssh_keys"), func(c rune) bool { return c == '\n' || c == ',' }) {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil || len(options) > 0 || len(rest) > 0 {
			r.bad(
				fmt.Sprintf("ssh_keys[%d]", i), "one line such as ssh-ed25519 AAAA... name, without options",
				"is no public key of SSH",
			)
			continue
		}
		line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
		s.SSHKeys = append(s.SSHKeys, strings.TrimSpace(line+" "+printable(comment)))
	}
}

func (r *reader) certificate(s *Setup) {
	cert, key := r.get("certificate"), r.get("certificate_key")
	if cert == "" && key == "" {
		return
	}
	if cert == "" || key == "" {
		r.bad("certificate", "give both or none", "certificate and certificate_key belong together")
		return
	}
	certPEM, okCert := pemOf(cert)
	keyPEM, okKey := pemOf(key)
	if !okCert {
		r.bad("certificate", "-----BEGIN CERTIFICATE-----, or base64 of it", "is no PEM")
	}
	if !okKey {
		r.bad("certificate_key", "-----BEGIN PRIVATE KEY-----, or base64 of it", "is no PEM")
	}
	if !okCert || !okKey {
		return
	}
	pair, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		r.bad("certificate", "the key of this certificate, without a password", "does not go with the key")
		return
	}
	if hostname.MatchString(s.Hostname) && pair.Leaf.VerifyHostname(s.Hostname) != nil {
		r.bad("certificate", "a certificate with the name in hostname", "is not for %s", s.Hostname)
		return
	}
	s.Certificate, s.Key = certPEM, keyPEM
}

// pemOf returns the PEM in a text that has gone through a field of one line: as it is, with \n for the ends of lines,
// with spaces for them, or as base64.
func pemOf(text string) (string, bool) {
	if !strings.Contains(text, "-----BEGIN") {
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return "", false
		}
		text = string(b)
	}
	text = strings.ReplaceAll(text, `\n`, "\n")
	if !strings.Contains(strings.TrimSpace(text), "\n") {
		text = oneLine.ReplaceAllStringFunc(text, func(block string) string {
			m := oneLine.FindStringSubmatch(block)
			return "-----BEGIN " + m[1] + "-----\n" + strings.Join(strings.Fields(m[2]), "\n") + "\n-----END " + m[1] +
				"-----\n"
		})
	}
	var out strings.Builder
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out.String(), out.Len() > 0
		}
		out.Write(pem.EncodeToMemory(block))
	}
}

var oneLine = regexp.MustCompile(`-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/= \t]+)-----END [A-Z0-9 ]+-----`)

// consoleHash returns a hash of the password for crypt(3), and nothing for passwords that bcrypt does not take whole.
func consoleHash(password director.Secret) string {
	hash, err := bcrypt.GenerateFromPassword([]byte(password.Reveal()), bcrypt.DefaultCost)
	if err != nil {
		return ""
	}
	return string(hash)
}

// list splits a list with commas or spaces.
func list(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\n' })
}

// printable returns s without what could move a terminal's cursor, and cut to a length that fits a line.
func printable(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
