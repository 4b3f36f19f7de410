package model

import (
	"strings"
	"unicode"
)

// IdentityOIDC is the type of providers where people log in with a browser.
const IdentityOIDC = "oidc"

// IdentityProvider is a directory, or another service, with people who may use the director.
type IdentityProvider struct {
	Type        string   `json:"type" doc:"ad for Active Directory, ldap for any other directory, oidc for an OpenID Connect provider where people log in with a browser." enum:"ldap,ad,oidc" required:"true"`
	Title       string   `json:"title,omitempty" doc:"What the login page calls an OpenID Connect provider. Default: its name." maxLength:"64"`
	Order       int      `json:"order,omitempty" doc:"Providers are asked in this order, the lowest first, for people who have not logged in before." default:"100" min:"1" max:"1000"`
	Servers     []string `json:"servers,omitempty" doc:"ldaps://HOST[:PORT], or ldap://HOST[:PORT] with startTLS. The first one that answers is asked. Required for ldap and ad." maxItems:"2"`
	StartTLS    bool     `json:"startTLS,omitempty" doc:"Turn TLS on after the connection is made. Servers with ldap:// need it."`
	CA          string   `json:"ca,omitempty" doc:"Certificates in PEM form that the servers' certificates must be from. Default: those that the director's machine trusts." text:"lines" maxLength:"65536"`
	Credentials string   `json:"credentials" doc:"Name of the credentials of the account that searches, whose user is its distinguished name; or of the OpenID Connect client, whose user is its id and whose password is its secret." required:"true"`
	UserBase    string   `json:"userBase,omitempty" doc:"Where people are, such as ou=people,dc=example,dc=org. Required for ldap and ad."`
	UserFilter  string   `json:"userFilter,omitempty" doc:"Who is a person. Default: (objectClass=inetOrgPerson), or the users of Active Directory." maxLength:"1024"`
	UserName    string   `json:"userName,omitempty" doc:"Attribute with the name that people log in with, or claim with it. Default: uid, sAMAccountName, or preferred_username."`
	FullName    string   `json:"fullName,omitempty" doc:"Attribute or claim with the name that is shown. Default: cn, displayName, or name."`
	Mail        string   `json:"mail,omitempty" doc:"Attribute with the mail address. Default: mail."`
	GroupBase   string   `json:"groupBase,omitempty" doc:"Where groups are. Default: userBase."`
	GroupFilter string   `json:"groupFilter,omitempty" doc:"What is a group. Default: groupOfNames and groupOfUniqueNames, or the groups of Active Directory." maxLength:"1024"`
	Member      string   `json:"member,omitempty" doc:"Attribute of a group with its members. Default: member."`
	Issuer      string   `json:"issuer,omitempty" doc:"Issuer of an OpenID Connect provider, https://HOST[:PORT][/PATH]. Required for oidc."`
	Scopes      []string `json:"scopes,omitempty" doc:"What an OpenID Connect provider is asked for. Default: openid, profile, email, groups and offline_access. Without offline_access, people have to log in again after refresh." maxItems:"20" maxLength:"128"`
	GroupsClaim string   `json:"groupsClaim,omitempty" doc:"Claim with the groups of a person. Default: groups."`

	Roles   []GroupRole `json:"roles" doc:"Which groups have which role. Only these groups are asked for. People in several of them have the strongest role: admin, operator, auditor, user, none. People in none of them cannot log in." required:"true" maxItems:"500"`
	Refresh Duration    `json:"refresh,omitempty" doc:"How often the director asks whether people who are logged in still may be, and with which role." default:"10m" min:"1m" max:"12h"`
}

// GroupRole gives a group of a directory a role.
type GroupRole struct {
	Group string `json:"group" doc:"Distinguished name of the group, such as cn=admins,ou=groups,dc=example,dc=org; groups in it count, too. With oidc: the group as the claim has it." required:"true" maxLength:"1024"`
	Role  string `json:"role" doc:"What its people may do on the whole director. none: only what a Grant gives them." enum:"admin,operator,user,auditor,none" required:"true"`
}

// identityProviderKind is what the model knows of the kind IdentityProvider.
var identityProviderKind = kind{
	name: KindIdentityProvider,
	meaning: "People who may log in; see [LDAP](../operate/ldap.md) and " +
		"[OpenID Connect](../operate/oidc.md).",
	spec: func(d *Document) any { return ensure(&d.IdentityProvider) },
	validate: func(v *validator, d *Document) {
		v.identityProvider(d.IdentityProvider)
	},
	credentials: func(d *Document) []string { return []string{d.IdentityProvider.Credentials} },
	columns:     [][2]string{{"TYPE", "type"}, {"ORDER", "order"}, {"SERVERS", "servers"}},
	effects: of(Later, "no machine depends on it; people are asked for by it from then on", "spec.type",
		"spec.order", "spec.servers", "spec.startTLS", "spec.ca", "spec.credentials", "spec.userBase",
		"spec.userFilter", "spec.userName", "spec.fullName", "spec.mail", "spec.groupBase", "spec.groupFilter",
		"spec.member", "spec.roles", "spec.refresh", "spec.title", "spec.issuer", "spec.scopes",
		"spec.groupsClaim"),
}

func (v *validator) identityProvider(p *IdentityProvider) {
	v.match("spec.credentials", p.Credentials, labelPattern,
		"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	if p.CA != "" {
		v.content().pem("spec.ca", p.CA)
	}
	if strings.ContainsFunc(p.Title, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		v.fail("spec.title", "write plain text", "holds characters that cannot be shown")
	}
	oidc := p.Type == IdentityOIDC
	for _, f := range []struct {
		path       string
		set, other bool // it is for the other types
		required   bool
	}{
		{"spec.servers", len(p.Servers) > 0, oidc, true},
		{"spec.userBase", p.UserBase != "", oidc, true},
		{"spec.startTLS", p.StartTLS, oidc, false},
		{"spec.userFilter", p.UserFilter != "", oidc, false},
		{"spec.mail", p.Mail != "", oidc, false},
		{"spec.groupBase", p.GroupBase != "", oidc, false},
		{"spec.groupFilter", p.GroupFilter != "", oidc, false},
		{"spec.member", p.Member != "", oidc, false},
		{"spec.issuer", p.Issuer != "", !oidc, true},
		{"spec.scopes", len(p.Scopes) > 0, !oidc, false},
		{"spec.groupsClaim", p.GroupsClaim != "", !oidc, false},
		{"spec.title", p.Title != "", !oidc, false},
	} {
		switch {
		case f.set && f.other:
			v.fail(f.path, "leave it out", "is not for type %s", p.Type)
		case f.required && !f.set && !f.other:
			v.fail(f.path, "", "is missing")
		}
	}
	if len(p.Roles) == 0 {
		v.fail("spec.roles", "name a group and its role", "is empty: no one could log in")
	}
}
