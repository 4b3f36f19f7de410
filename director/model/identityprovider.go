package model

// IdentityProvider is a directory with people who may use the director.
type IdentityProvider struct {
	Type        string   `json:"type" doc:"ad for Active Directory, ldap for any other directory." enum:"ldap,ad" required:"true"`
	Order       int      `json:"order,omitempty" doc:"Providers are asked in this order, the lowest first, for people who have not logged in before." default:"100" min:"1" max:"1000"`
	Servers     []string `json:"servers" doc:"ldaps://HOST[:PORT], or ldap://HOST[:PORT] with startTLS. The first one that answers is asked." required:"true" maxItems:"2"`
	StartTLS    bool     `json:"startTLS,omitempty" doc:"Turn TLS on after the connection is made. Servers with ldap:// need it."`
	CA          string   `json:"ca,omitempty" doc:"Certificates in PEM form that the servers' certificates must be from. Default: those that the director's machine trusts." text:"lines" maxLength:"65536"`
	Credentials string   `json:"credentials" doc:"Name of the credentials of the account that searches. Their user is its distinguished name." required:"true"`
	UserBase    string   `json:"userBase" doc:"Where people are, such as ou=people,dc=example,dc=org." required:"true"`
	UserFilter  string   `json:"userFilter,omitempty" doc:"Who is a person. Default: (objectClass=inetOrgPerson), or the users of Active Directory." maxLength:"1024"`
	UserName    string   `json:"userName,omitempty" doc:"Attribute with the name that people log in with. Default: uid, or sAMAccountName."`
	FullName    string   `json:"fullName,omitempty" doc:"Attribute with the name that is shown. Default: cn, or displayName."`
	Mail        string   `json:"mail,omitempty" doc:"Attribute with the mail address. Default: mail."`
	GroupBase   string   `json:"groupBase,omitempty" doc:"Where groups are. Default: userBase."`
	GroupFilter string   `json:"groupFilter,omitempty" doc:"What is a group. Default: groupOfNames and groupOfUniqueNames, or the groups of Active Directory." maxLength:"1024"`
	Member      string   `json:"member,omitempty" doc:"Attribute of a group with its members. Default: member."`

	Roles   []GroupRole `json:"roles" doc:"Which groups have which role. Only these groups are asked for. People in several of them have the strongest role: admin, operator, auditor, user, none. People in none of them cannot log in." required:"true" maxItems:"500"`
	Refresh Duration    `json:"refresh,omitempty" doc:"How often the director asks whether people who are logged in still may be, and with which role." default:"10m" min:"1m" max:"12h"`
}

// GroupRole gives a group of a directory a role.
type GroupRole struct {
	Group string `json:"group" doc:"Distinguished name of the group, such as cn=admins,ou=groups,dc=example,dc=org. Groups in it count, too." required:"true" maxLength:"1024"`
	Role  string `json:"role" doc:"What its people may do on the whole director. none: only what a Grant gives them." enum:"admin,operator,user,auditor,none" required:"true"`
}

func (v *validator) identityProvider(p *IdentityProvider) {
	v.match("spec.credentials", p.Credentials, labelPattern,
		"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	if p.CA != "" {
		v.pem("spec.ca", p.CA)
	}
	if len(p.Roles) == 0 {
		v.fail("spec.roles", "name a group and its role", "is empty: no one could log in")
	}
}
