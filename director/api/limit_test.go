package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

type guesses struct {
	*loginLimit
	at time.Time
}

func newGuesses() *guesses {
	g := &guesses{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	g.loginLimit = newLoginLimit(func() time.Time { return g.at })
	return g
}

func (g *guesses) wrong(n int, user, address func(i int) string) (tried int) {
	for i := range n {
		if g.take(user(i), address(i)) == nil {
			tried++
		}
	}
	return tried
}

func always(s string) func(int) string { return func(int) string { return s } }

// What was counted for a user cannot be pushed out, by names or by addresses.
func TestTheLoginLimitCannotBeFlooded(t *testing.T) {
	t.Parallel()
	g := newGuesses()
	if n := g.wrong(10, always("admin"), always("192.0.2.1")); n != pairBurst {
		t.Fatalf("%d guesses from one address", n)
	}
	// Made-up users from the same address, more of them than any table holds.
	if n := g.wrong(
		3*maxSeen, func(i int) string { return fmt.Sprint("u", i) }, always("192.0.2.1"),
	); n > networkBurst {
		t.Errorf("%d guesses from one address over all users", n)
	}
	if g.pairs.Len() > networkBurst || g.networks.Len() != 1 {
		t.Errorf("who is refused takes up memory: %d and %d entries", g.pairs.Len(), g.networks.Len())
	}
	if g.take("admin", "192.0.2.1") == nil {
		t.Error("the flood has freed the way")
	}
	// One user from very many addresses, and then made-up users from very many addresses.
	addresses := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
	if n := g.wrong(3*maxSeen, always("admin"), addresses); n > userFree {
		t.Errorf("%d guesses for one user", n)
	}
	g.wrong(3*maxSeen, func(i int) string { return fmt.Sprint("v", i) }, addresses)
	if n := g.pairs.Len() + g.networks.Len(); n > 2*maxSeen {
		t.Errorf("%d entries", n)
	}
	if g.take("admin", "198.51.100.7") == nil {
		t.Error("the flood has freed the way to the user")
	}
}

// A user under attack gets in: at once from where the user has been before, and after a bounded time from elsewhere.
func TestNobodyIsLockedOut(t *testing.T) {
	t.Parallel()
	g := newGuesses()
	if err := g.take("admin", "198.51.100.7"); err != nil {
		t.Fatal(err)
	}
	g.succeeded("admin", "198.51.100.7")
	addresses := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i>>8, i&255) }
	for range 5 {
		g.wrong(1000, always("admin"), addresses)
		g.at = g.at.Add(time.Minute)
	}
	g.wrong(1000, always("admin"), addresses)
	if err := g.take("admin", "198.51.100.7"); err != nil {
		t.Errorf("from a known address: %v", err)
	}
	g.at = g.at.Add(userLongest)
	if err := g.take("admin", "203.0.113.9"); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	if err := g.takeOwn("admin"); err != nil {
		t.Errorf("the change of the own password: %v", err)
	}
	g.at = g.at.Add(time.Hour)
	if n := g.wrong(10, always("admin"), addresses); n != 10 {
		t.Errorf("an hour later, %d of 10", n)
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	g := newGuesses()
	within := func(i int) string { return fmt.Sprintf("2001:db8:0:1::%x", i) }
	if n := g.wrong(1000, always("admin"), within); n != pairBurst {
		t.Errorf("%d guesses from one /64", n)
	}
	if err := g.take("other", "2001:db8:0:2::1"); err != nil {
		t.Errorf("from another /64: %v", err)
	}
	for address, want := range map[string]string{
		"::ffff:192.0.2.1": "192.0.2.1", "192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::/64",
		"2001:db8::1": "2001:db8::/64", "password": "password",
	} {
		if got := networkOf(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	for name, tt := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"direct":              {"192.0.2.1:999", nil, "192.0.2.1"},
		"no trusted proxy":    {"192.0.2.1:999", []string{"1.2.3.4"}, "192.0.2.1"},
		"a proxy":             {"10.0.0.5:999", []string{"192.0.2.1"}, "192.0.2.1"},
		"a client that lies":  {"10.0.0.5:999", []string{"1.2.3.4, 192.0.2.1"}, "192.0.2.1"},
		"in lines of its own": {"10.0.0.5:999", []string{"1.2.3.4", "192.0.2.1"}, "192.0.2.1"},
		"two proxies":         {"10.0.0.5:999", []string{"192.0.2.1, 10.0.0.9"}, "192.0.2.1"},
		"proxies alone":       {"10.0.0.5:999", []string{"10.0.0.7, 10.0.0.9"}, "10.0.0.7"},
		"no header":           {"10.0.0.5:999", nil, "10.0.0.5"},
		"nonsense":            {"10.0.0.5:999", []string{"192.0.2.1, nonsense"}, "10.0.0.5"},
		"nonsense before":     {"10.0.0.5:999", []string{"nonsense, 192.0.2.1"}, "192.0.2.1"},
		"IPv6":                {"[2001:db8::5]:999", []string{"2001:db8:1::7"}, "2001:db8:1::7"},
		"with a port":         {"10.0.0.5:999", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		"mapped":              {"[::ffff:10.0.0.5]:999", []string{"192.0.2.1"}, "192.0.2.1"},
	} {
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
		if got := clientAddress(r, proxies); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
