package ldap_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/ldap/ldaptest"
)

const (
	alice = "uid=alice," + ldaptest.People
	right = "correct horse battery"
)

// unlimited is a server that gives all that it is asked for, in pages of at most 700.
const unlimited = "unlimited"

func group(cn string) string { return "cn=" + cn + "," + ldaptest.Groups }

// example has people, groups in groups, and groups that hold each other.
func example() string {
	return ldaptest.Person("alice", right) +
		ldaptest.Person("bob", right, "objectClass: lockable", "nsAccountLock: TRUE") +
		ldaptest.Person("carol", right) +
		"dn: cn=another," + ldaptest.People +
		"\nobjectClass: inetOrgPerson\nuid: carol\ncn: another\nsn: carol\nuserPassword: " +
		right + "\n\n" +
		ldaptest.Group("direct", alice) + ldaptest.Group("team", alice) + ldaptest.Group("department", group("team")) +
		ldaptest.Group("company", group("department"), group("circle")) + ldaptest.Group("circle", group("company")) +
		ldaptest.Group("others", "uid=carol,"+ldaptest.People)
}

func config(s *ldaptest.Server, change ...func(*ldap.Config)) ldap.Config {
	c := ldap.Config{
		Kind: ldap.Plain, Servers: []string{s.URLS}, CA: s.CA, BindDN: ldaptest.BindDN, Password: ldaptest.Password,
		UserBase: ldaptest.People, GroupBase: ldaptest.Groups,
		Groups: []string{group("direct"), "CN=Circle, " + ldaptest.Groups, group("others"), group("gone")},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func open(t testing.TB, c ldap.Config) *ldap.Directory {
	t.Helper()
	d, err := ldap.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLogin(t *testing.T) {
	t.Parallel()
	s := ldaptest.Start(t, example(), time.Hour, unlimited)
	wrong := director.KindUnauthenticated
	tests := map[string]struct {
		name     string
		password director.Secret
		change   func(*ldap.Config)
		kind     director.Kind
		groups   []string
	}{
		"right": {
			name: "alice", password: right,
			groups: []string{"CN=Circle, " + ldaptest.Groups, group("direct")},
		},
		"over StartTLS": {
			name: "alice", password: right, change: startTLS(s),
			groups: []string{"CN=Circle, " + ldaptest.Groups, group("direct")},
		},
		"in another case": {
			name: "ALICE", password: right,
			groups: []string{"CN=Circle, " + ldaptest.Groups, group("direct")},
		},
		"no group is mapped": {name: "alice", password: right, change: func(c *ldap.Config) { c.Groups = nil }},
		"wrong password":     {name: "alice", password: "wrong", kind: wrong},
		"empty password":     {name: "alice", password: "", kind: wrong},
		"empty name":         {name: "", password: right, kind: wrong},
		"unknown":            {name: "mallory", password: right, kind: wrong},
		"disabled":           {name: "bob", password: right, kind: wrong},
		"any name":           {name: "*", password: right, kind: wrong},
		"injection":          {name: "alice)(uid=*", password: right, kind: wrong},
		"two of a name":      {name: "carol", password: right, kind: director.KindConflict},
		"line break":         {name: "alice\n", password: right, kind: wrong},
		"zero byte":          {name: "alice\x00", password: right, kind: wrong},
		"a very long name":   {name: strings.Repeat("a", 1<<16), password: right, kind: wrong},
		"a DN":               {name: alice, password: right, kind: wrong},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			if tt.change != nil {
				tt.change(&c)
			}
			got, err := open(t, c).Login(t.Context(), tt.name, tt.password)
			if tt.kind != "" {
				if director.KindOf(err) != tt.kind || got.DN != "" {
					t.Fatalf("got %+v, %v; want %s", got, err, tt.kind)
				}
				return
			}
			want := ldap.Person{
				DN: alice, Name: "alice", FullName: "alice of Example", Mail: "alice@example.org", Groups: tt.groups,
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func startTLS(s *ldaptest.Server) func(*ldap.Config) {
	return func(c *ldap.Config) { c.Servers, c.StartTLS = []string{s.URL}, true }
}

// What an administrator disables is told at the next look, without a password.
func TestLookup(t *testing.T) {
	t.Parallel()
	d := open(t, config(ldaptest.Start(t, example(), time.Hour, unlimited)))
	if p, err := d.Lookup(t.Context(), "bob"); err != nil || !p.Disabled {
		t.Errorf("got %+v, %v; want somebody who is disabled", p, err)
	}
	if p, err := d.Lookup(t.Context(), "alice"); err != nil || p.Disabled || len(p.Groups) != 2 {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := d.Lookup(t.Context(), "mallory"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("got %v, want not_found", err)
	}
}

// silent listens and never says a word.
func silent(t *testing.T) (address string, accepted *atomic.Int32) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	accepted = &atomic.Int32{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return l.Addr().String(), accepted
}

// A server that hangs costs one time-out; the next login begins with the other one.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	s := ldaptest.Start(t, example(), time.Hour, unlimited)
	hung, accepted := silent(t)
	d := open(t, config(s, func(c *ldap.Config) {
		c.Servers = []string{"ldaps://" + hung, s.URLS}
		c.Timeout = 3 * time.Second
	}))
	for range 3 {
		if p, err := d.Login(t.Context(), "alice", right); err != nil || p.DN != alice {
			t.Fatalf("got %+v, %v", p, err)
		}
	}
	if n := accepted.Load(); n != 1 {
		t.Errorf("the server that hangs was asked %d times, want once", n)
	}
}

// Who gives up waits no longer than that.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	hung, accepted := silent(t)
	s := ldaptest.Server{URLS: "ldaps://" + hung}
	d := open(t, config(&s, func(c *ldap.Config) { c.Timeout = time.Hour }))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for accepted.Load() == 0 && t.Context().Err() == nil {
			continue
		}
		cancel()
	}()
	if _, err := d.Login(ctx, "alice", right); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestTestTellsTheStage(t *testing.T) {
	t.Parallel()
	s, other := ldaptest.Start(t, example(), time.Hour, unlimited), ldaptest.Start(t, "", time.Hour, unlimited)
	old := ldaptest.Start(t, "", -time.Hour, unlimited)
	hung, _ := silent(t)
	tests := map[string]struct {
		change func(*ldap.Config)
		name   string
		stage  ldap.Stage
		words  string // of message and hint
	}{
		"name of the server": {
			func(c *ldap.Config) { c.Servers = []string{"ldaps://no.such.invalid"} },
			"", ldap.StageResolve, "DNS",
		},
		"port": {
			func(c *ldap.Config) { c.Servers = []string{"ldaps://127.0.0.1:1"} }, "",
			ldap.StageConnect, "refused",
		},
		"no TLS at all": {
			func(c *ldap.Config) { c.Servers = []string{"ldaps://" + hung}; c.Timeout = time.Second },
			"", ldap.StageTLS, "speaks TLS",
		},
		"another CA": {func(c *ldap.Config) { c.CA = other.CA }, "", ldap.StageTLS, "put its CA"},
		"another name": {
			func(c *ldap.Config) { c.Servers[0] = strings.Replace(s.URLS, "localhost", "127.0.0.1", 1) },
			"", ldap.StageTLS, "127.0.0.1",
		},
		"expired": {func(c *ldap.Config) { c.Servers, c.CA = []string{old.URLS}, old.CA }, "", ldap.StageTLS, "renew"},
		"password": {
			func(c *ldap.Config) { c.Password = "wrong" }, "", ldap.StageBind,
			"user and the password of the credentials",
		},
		"base": {
			func(c *ldap.Config) { c.UserBase = "ou=nowhere," + ldaptest.Suffix }, "alice",
			ldap.StageSearch, "userBase",
		},
		"person": {nil, "mallory", ldap.StageSearch, "uid=mallory"},
		"filter": {
			func(c *ldap.Config) { c.UserFilter = "(objectClass=device)" }, "", ldap.StageSearch,
			"finds no one",
		},
		"group": {nil, "alice", ldap.StageGroups, group("gone")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(s)
			if tt.change != nil {
				tt.change(&c)
			}
			got := open(t, c).Test(t.Context(), tt.name)
			last := got[len(got)-1]
			if last.Passed || last.Stage != tt.stage || !strings.Contains(last.Msg+last.Hint, tt.words) {
				t.Errorf("got %+v, want a failure of %s with %q", last, tt.stage, tt.words)
			}
			for _, f := range got[:len(got)-1] {
				if !f.Passed {
					t.Errorf("got %+v before the failure", f)
				}
			}
		})
	}
	well := open(t, config(s, func(c *ldap.Config) { c.Groups = []string{group("direct"), group("company")} }))
	got := well.Test(t.Context(), "alice")
	last := got[len(got)-1]
	if len(got) != 6 || !last.Passed || !strings.Contains(last.Msg, "in 2 of them") {
		t.Errorf("got %+v, want six stages that passed", got)
	}
}

// crowd is a person in n groups, of which each belongs to the last one.
func crowd(n int) string {
	var b strings.Builder
	b.WriteString(ldaptest.Person("alice", right))
	var all []string
	for i := range n {
		cn := fmt.Sprintf("g%04d", i)
		b.WriteString(ldaptest.Group(cn, alice))
		all = append(all, group(cn))
	}
	b.WriteString(ldaptest.Group("all", all...))
	return b.String()
}

// A page holds fewer groups than the person is in.
func TestMoreGroupsThanAPageHolds(t *testing.T) {
	t.Parallel()
	s := ldaptest.Start(t, crowd(1000), time.Hour, unlimited)
	d := open(t, config(s, func(c *ldap.Config) { c.Groups = []string{group("all"), group("g0999"), group("gone")} }))
	p, err := d.Login(t.Context(), "alice", right)
	if diff := cmp.Diff([]string{group("all"), group("g0999")}, p.Groups); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A server that cuts its answers off does not make somebody lose the groups that were cut.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	s := ldaptest.Start(t, crowd(100), time.Hour, "50")
	d := open(t, config(s, func(c *ldap.Config) { c.Groups = []string{group("all")} }))
	_, err := d.Login(t.Context(), "alice", right)
	if e, ok := errors.AsType[*director.Error](err); !ok || !strings.Contains(e.Hint, "size limit") {
		t.Errorf("got %v, want a word about the size limit", err)
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*ldap.Config)
		path   string
	}{
		"no server": {func(c *ldap.Config) { c.Servers = nil }, "servers"},
		"three servers": {
			func(c *ldap.Config) { c.Servers = []string{"ldaps://a", "ldaps://b", "ldaps://c"} },
			"servers",
		},
		"in the clear":      {func(c *ldap.Config) { c.Servers = []string{"ldap://a"} }, "servers[0]"},
		"TLS twice":         {func(c *ldap.Config) { c.StartTLS = true }, "servers[0]"},
		"another scheme":    {func(c *ldap.Config) { c.Servers = []string{"ldapi:///run/slapd"} }, "servers[0]"},
		"a path":            {func(c *ldap.Config) { c.Servers = []string{"ldaps://a/dc=b"} }, "servers[0]"},
		"a user":            {func(c *ldap.Config) { c.Servers = []string{"ldaps://a@b"} }, "servers[0]"},
		"no certificate":    {func(c *ldap.Config) { c.CA = []byte("x") }, "ca"},
		"kind":              {func(c *ldap.Config) { c.Kind = "nis" }, "type"},
		"bind DN":           {func(c *ldap.Config) { c.BindDN = "director" }, "credentials"},
		"no password":       {func(c *ldap.Config) { c.Password = "" }, "credentials"},
		"filter":            {func(c *ldap.Config) { c.UserFilter = "(uid=x" }, "userFilter"},
		"two filters":       {func(c *ldap.Config) { c.GroupFilter = "(a=b)(c=d)" }, "groupFilter"},
		"attribute":         {func(c *ldap.Config) { c.UserName = "uid=*)(x" }, "userName"},
		"group":             {func(c *ldap.Config) { c.Groups = []string{"admins"} }, "groups[0]"},
		"too many groups":   {func(c *ldap.Config) { c.Groups = make([]string, 501) }, "groups"},
		"member's name":     {func(c *ldap.Config) { c.Member = "member:1.2:" }, "member"},
		"no place of users": {func(c *ldap.Config) { c.UserBase = "" }, "userBase"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(&ldaptest.Server{URLS: "ldaps://a"}, tt.change)
			var paths []string
			for _, f := range c.Check() {
				paths = append(paths, f.Path)
				if f.Msg == "" || f.Hint == "" {
					t.Errorf("%s says nothing", f.Path)
				}
			}
			if !strings.Contains(strings.Join(paths, " "), tt.path) {
				t.Errorf("got %v, want %s", paths, tt.path)
			}
		})
	}
	if got := config(&ldaptest.Server{URLS: "ldaps://a:1636"}).Check(); got != nil {
		t.Errorf("got %v for a good one", got)
	}
}

func BenchmarkLoginInThousandGroups(b *testing.B) {
	s := ldaptest.Start(b, crowd(1000), time.Hour, unlimited)
	d := open(b, config(s, func(c *ldap.Config) { c.Groups = []string{group("all"), group("gone")} }))
	for b.Loop() {
		if p, err := d.Login(b.Context(), "alice", right); err != nil || len(p.Groups) != 1 {
			b.Fatalf("got %+v, %v", p, err)
		}
	}
}
