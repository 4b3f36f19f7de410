package daemon

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/ldap/ldaptest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// An administrator adds a directory as a document, and its people log in with the role of their groups.
func TestPeopleOfADirectory(t *testing.T) {
	t.Parallel()
	const right = "correct horse battery"
	ann := "uid=ann," + ldaptest.People
	s := ldaptest.Start(t, ldaptest.Person("ann", right)+ldaptest.Group("ops", ann), time.Hour, "unlimited")
	c := simulating(t, demoDocuments)
	c.ProviderNetworks = confine.Networks{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, c, d)
	text := "apiVersion: kaas/v1\nkind: IdentityProvider\nmetadata: {name: corp}\nspec:\n  type: ldap\n" +
		"  servers: [" + s.URLS + "]\n  credentials: directory\n  userBase: " + ldaptest.People +
		"\n  groupBase: " + ldaptest.Groups + "\n  roles:\n  - {group: 'cn=ops," + ldaptest.Groups +
		"', role: operator}\n  ca: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(s.CA)), "\n", "\n    ") + "\n"
	bad := strings.Replace(text, "ldaps://", "ldap://", 1)
	if _, err := admin.Apply(t.Context(), []byte(bad), "x", false); err == nil ||
		!strings.Contains(err.Error(), "IdentityProvider/corp: spec.servers[0]") {
		t.Errorf("passwords in the clear: %v", err)
	}
	if _, err := admin.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Login(t.Context(), "ann", right); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("without credentials: %v", err)
	}
	_, err = admin.SetCredentials(t.Context(), "directory", ldaptest.BindDN, ldaptest.Password)
	if err != nil {
		t.Fatal(err)
	}
	found, err := admin.TestIdentityProvider(t.Context(), "corp", "ann")
	if err != nil || !found.OK || !strings.Contains(found.Probes[len(found.Probes)-1].Found, "operator") {
		t.Errorf("%+v, %v", found, err)
	}
	session, err := admin.Login(t.Context(), "Ann", right)
	if err != nil || session.User != "ann" || session.Role != "operator" {
		t.Fatalf("%+v, %v", session, err)
	}
	user, err := admin.User(t.Context(), "ann")
	if err != nil || user.Provider != "corp" || user.CheckedAt == nil {
		t.Errorf("%+v, %v", user, err)
	}
	if _, err := admin.ResetUser(t.Context(), "ann"); director.KindOf(err) != director.KindConflict {
		t.Errorf("the password of a directory was reset: %v", err)
	}
	if _, err := admin.SetUserRole(t.Context(), "ann", "admin"); director.KindOf(err) != director.KindConflict {
		t.Errorf("a role was set against the groups: %v", err)
	}
	if err := admin.DeleteCredentials(t.Context(), "directory"); err == nil ||
		!strings.Contains(err.Error(), "IdentityProvider/corp") {
		t.Errorf("credentials that are in use were deleted: %v", err)
	}
	// The password goes to no other server than those it was set for.
	moved := strings.Replace(text, "localhost", "127.0.0.1", 1)
	if _, err := admin.Apply(t.Context(), []byte(moved), "x", false); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.TestIdentityProvider(t.Context(), "corp", ""); director.KindOf(err) != director.KindConflict {
		t.Errorf("the credentials went elsewhere: %v", err)
	}
	if _, err := admin.CreateUser(t.Context(),
		wire.NewUser{Name: "ann"}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a local user took the name of a person: %v", err)
	}
}

// A grant for a group of a directory counts for its people from their login on. The group has no role of its own.
func TestGrantsForGroups(t *testing.T) {
	t.Parallel()
	const right = "correct horse battery"
	group := "cn=web," + ldaptest.Groups
	s := ldaptest.Start(t, ldaptest.Person("zoe", right)+ldaptest.Person("max", right)+
		ldaptest.Group("web", "uid=zoe,"+ldaptest.People)+ldaptest.Group("dev", "uid=max,"+ldaptest.People),
		time.Hour, "unlimited")
	c := simulating(t, grantDocuments)
	c.ProviderNetworks = confine.Networks{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin := t.Context(), connect(t, c, d)
	text := "apiVersion: kaas/v1\nkind: IdentityProvider\nmetadata: {name: corp}\nspec:\n  type: ldap\n" +
		"  servers: [" + s.URLS + "]\n  credentials: directory\n  userBase: " + ldaptest.People +
		"\n  groupBase: " + ldaptest.Groups + "\n  roles:\n  - {group: '" + group + "', role: none}\n" +
		"  - {group: 'cn=dev," + ldaptest.Groups + "', role: none}\n  ca: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(string(s.CA)), "\n", "\n    ") + "\n---\n" +
		"apiVersion: kaas/v1\nkind: Grant\nmetadata: {name: web}\n" +
		"spec: {groups: [{provider: corp, group: '" + group + "'}], role: operator, project: web}\n"
	if err := applied(ctx, admin, text); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.SetCredentials(ctx, "directory", ldaptest.BindDN, ldaptest.Password); err != nil {
		t.Fatal(err)
	}
	zoe := loginAs(t, c, d, "zoe", right)
	seesAlone(t, zoe, "shop")
	me, err := zoe.Me(ctx)
	if err != nil || me.Role != "none" || len(me.Grants) != 1 || me.Grants[0].Role != "operator" {
		t.Errorf("%+v, %v", me, err)
	}
	_, err = loginAs(t, c, d, "max", right).Clusters(ctx)
	wantKind(t, "a person in another group", err, director.KindForbidden)
	wantKind(t, "the provider of a grant is deleted",
		admin.DeleteDocument(ctx, model.Ref{Kind: model.KindIdentityProvider, Name: "corp"}), director.KindConflict,
		"Grant/web")
}
