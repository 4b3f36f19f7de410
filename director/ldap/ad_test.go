package ldap_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/ldap/ldaptest"
)

// An Active Directory knows people by sAMAccountName in any case, groups in groups and the primary group, and lets
// neither disabled nor expired accounts in. Samba plays it.
func TestActiveDirectory(t *testing.T) {
	t.Parallel()
	const right = "Correct-horse-2026"
	ad := ldaptest.StartAD(t, func(tool func(args ...string)) {
		for _, name := range []string{"Ann", "bob", "carol"} {
			tool("user", "create", name, right)
		}
		tool("user", "disable", "bob")
		tool("user", "setexpiry", "carol", "--days=-1")
		for _, name := range []string{"core", "admins", "others"} {
			tool("group", "add", name)
		}
		tool("group", "addmembers", "core", "Ann")
		tool("group", "addmembers", "admins", "core")
	})
	group := func(cn string) string { return "CN=" + cn + "," + ldaptest.ADUsers }
	for _, c := range []ldap.Config{
		{Servers: []string{"ldaps://localhost"}}, {Servers: []string{"ldap://localhost"}, StartTLS: true},
	} {
		c.Kind, c.CA, c.BindDN, c.Password = ldap.ActiveDirectory, ad.CA, ldaptest.ADBindDN, ldaptest.ADPassword
		c.UserBase, c.Dial = ldaptest.ADSuffix, ad.Dial
		c.Groups = []string{group("admins"), group("others"), strings.ToLower(group("Domain Users"))}
		d := open(t, c)
		p, err := d.Login(t.Context(), "ann", right)
		want := []string{group("admins"), strings.ToLower(group("Domain Users"))}
		if err != nil || p.Name != "Ann" || p.Disabled || !cmp.Equal(p.Groups, want) {
			t.Errorf("%v: %+v, %v", c.Servers, p, err)
		}
		for name, password := range map[string]director.Secret{
			"ann": "wrong", "Ann": "", "bob": right, "carol": right, "nobody": right, "searcher$": right,
		} {
			if p, err := d.Login(t.Context(), name, password); director.KindOf(err) != director.KindUnauthenticated {
				t.Errorf("%v: %s got in: %+v, %v", c.Servers, name, p, err)
			}
		}
		for name, disabled := range map[string]bool{"ANN": false, "bob": true, "carol": true} {
			if p, err := d.Lookup(t.Context(), name); err != nil || p.Disabled != disabled {
				t.Errorf("%v: %+v, %v", c.Servers, p, err)
			}
		}
		for _, f := range d.Test(t.Context(), "ann") {
			if !f.Passed {
				t.Errorf("%+v", f)
			}
		}
	}
}
