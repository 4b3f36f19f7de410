// Package ldap finds people in a directory (LDAP or Active Directory): it checks their passwords and tells which of the
// mapped groups they belong to. It never asks for groups that no grant names, because a person may be in thousands.
package ldap

import (
	"context"
	"crypto/x509"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/director-kaas/kaas/director"
)

// Kind is how a directory keeps people and groups.
type Kind string

// The kinds of directories.
const (
	Plain           Kind = "ldap" // RFC 4519 and 2798, such as OpenLDAP and 389 Directory Server
	ActiveDirectory Kind = "ad"
)

// Bounds of what a directory may make the director do.
const (
	maxServers = 2
	maxGroups  = 500 // that are mapped
	maxName    = 256
)

// Config says where a directory is and what it calls things. Defaults depend on the kind.
type Config struct {
	Kind    Kind
	Servers []string // ldap://host[:389] or ldaps://host[:636]; the first one that answers is used
	// StartTLS turns TLS on after the connection is made. It is for ldap:// and required there: a password never
	// crosses the network in the clear.
	StartTLS bool
	CA       []byte // PEM; the only authorities that the server's certificate may be from. The system's if empty.
	BindDN   string // the account that searches
	Password director.Secret

	UserBase   string
	UserFilter string // who is a person; (objectClass=inetOrgPerson), or AD's users
	UserName   string // the attribute that a person logs in with; uid, or sAMAccountName
	FullName   string // cn, or displayName
	Mail       string // mail

	GroupBase   string // the user base if empty
	GroupFilter string // what is a group; groups of names, or AD's groups
	Member      string // the attribute of a group with the DNs of its members; member
	Groups      []string

	Timeout time.Duration // of every question to the server; 5 s
	// Dial connects to host:port. It is where addresses are allowed or refused; a plain dialer if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // the clock; time.Now if nil
}

// filled returns the configuration with the defaults of its kind.
func (c Config) filled() Config {
	set := func(field *string, plain, ad string) {
		switch {
		case *field != "":
		case c.Kind == ActiveDirectory:
			*field = ad
		default:
			*field = plain
		}
	}
	set(&c.UserFilter, "(objectClass=inetOrgPerson)", "(&(objectCategory=person)(objectClass=user))")
	set(&c.UserName, "uid", "sAMAccountName")
	set(&c.FullName, "cn", "displayName")
	set(&c.Mail, "mail", "mail")
	set(&c.GroupBase, c.UserBase, c.UserBase)
	set(&c.GroupFilter, "(|(objectClass=groupOfNames)(objectClass=groupOfUniqueNames))", "(objectCategory=group)")
	set(&c.Member, "member", "member")
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Check returns every field that is wrong. Paths are those of an IdentityProvider document's spec.
func (c Config) Check() []director.Field {
	var out []director.Field
	wrong := func(path, msg, hint string) { out = append(out, director.Field{Path: path, Msg: msg, Hint: hint}) }
	if c.Kind != Plain && c.Kind != ActiveDirectory {
		wrong("type", strconv.Quote(string(c.Kind))+" is no kind of directory", "write ldap or ad")
	}
	if len(c.Servers) == 0 || len(c.Servers) > maxServers {
		wrong("servers", "there are "+strconv.Itoa(len(c.Servers))+" servers", "name one or two")
	}
	for i, s := range c.Servers {
		if msg, hint := checkServer(s, c.StartTLS); msg != "" {
			wrong("servers["+strconv.Itoa(i)+"]", msg, hint)
		}
	}
	if len(c.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CA) {
		wrong("ca", "holds no certificate", "put the CA's certificate here as PEM text")
	}
	c = c.filled()
	for path, dn := range map[string]string{
		"credentials": c.BindDN, "userBase": c.UserBase, "groupBase": c.GroupBase,
	} {
		if _, err := ldap.ParseDN(dn); err != nil || dn == "" {
			wrong(path, strconv.Quote(dn)+" is no distinguished name", "write it like ou=people,dc=example,dc=org")
		}
	}
	if c.Password.Reveal() == "" {
		wrong("credentials", "their password is empty", "give the password of the account that searches")
	}
	for path, filter := range map[string]string{"userFilter": c.UserFilter, "groupFilter": c.GroupFilter} {
		if _, err := ldap.CompileFilter(filter); err != nil {
			wrong(path, "is no filter: "+err.Error(), "write it like (objectClass=person)")
		}
	}
	for path, name := range map[string]string{
		"userName": c.UserName, "fullName": c.FullName, "mail": c.Mail, "member": c.Member,
	} {
		if !attribute(name) {
			wrong(path, strconv.Quote(name)+" is no attribute", "attributes have letters, digits and dashes")
		}
	}
	if len(c.Groups) > maxGroups {
		wrong("groups", strconv.Itoa(len(c.Groups))+" groups are mapped", "map at most "+strconv.Itoa(maxGroups))
	}
	for i, dn := range c.Groups {
		if _, err := ldap.ParseDN(dn); err != nil || dn == "" {
			wrong("groups["+strconv.Itoa(i)+"]", strconv.Quote(dn)+" is no distinguished name",
				"write it like cn=admins,ou=groups,dc=example,dc=org")
		}
	}
	return out
}

func checkServer(server string, startTLS bool) (msg, hint string) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" ||
		u.Fragment != "" || u.Scheme != "ldap" && u.Scheme != "ldaps":
		return strconv.Quote(server) + " is no address of a directory", "write ldaps://host or ldap://host"
	case u.Scheme == "ldap" && !startTLS:
		return "passwords would cross the network in the clear", "write ldaps://" + u.Host + ", or set startTLS"
	case u.Scheme == "ldaps" && startTLS:
		return "ldaps:// has TLS from the start", "leave startTLS out, or write ldap://" + u.Host
	}
	return "", ""
}

// attribute reports whether the name can be one of an attribute (RFC 4512, section 1.4).
func attribute(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '-' || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}
