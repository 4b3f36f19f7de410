package appliance

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestWrongGroups(t *testing.T) {
	t.Parallel()
	own := Setup{Hostname: "first", Address: netip.MustParsePrefix("192.0.2.11/24")}
	good := GroupRequest{Address: "192.0.2.10", Members: []string{"192.0.2.11", "192.0.2.12"}}
	for name, c := range map[string]struct {
		change func(*GroupRequest, *Setup)
		path   string
	}{
		"by DHCP":          {func(_ *GroupRequest, s *Setup) { s.Address = netip.Prefix{} }, "address"},
		"no address":       {func(r *GroupRequest, _ *Setup) { r.Address = "" }, "address"},
		"another network":  {func(r *GroupRequest, _ *Setup) { r.Address = "198.51.100.1" }, "address"},
		"everyone":         {func(r *GroupRequest, _ *Setup) { r.Address = "192.0.2.255" }, "address"},
		"IPv6":             {func(r *GroupRequest, _ *Setup) { r.Address = "2001:db8::1" }, "address"},
		"one member":       {func(r *GroupRequest, _ *Setup) { r.Members = r.Members[:1] }, "members"},
		"without this one": {func(r *GroupRequest, _ *Setup) { r.Members[0] = "192.0.2.13" }, "members"},
		"twice":            {func(r *GroupRequest, _ *Setup) { r.Members[1] = "192.0.2.11" }, "members[1]"},
		"its address":      {func(r *GroupRequest, _ *Setup) { r.Members[1] = "192.0.2.10" }, "members[1]"},
		"a line":           {func(r *GroupRequest, _ *Setup) { r.Members[1] = "192.0.2.12\n}" }, "members[1]"},
		"router":           {func(r *GroupRequest, _ *Setup) { r.Router = 256 }, "router"},
		"no path":          {func(r *GroupRequest, _ *Setup) { r.Files = "nfs.example.net" }, "files"},
		"options":          {func(r *GroupRequest, _ *Setup) { r.Files = "-oexec:/x" }, "files"},
		"up":               {func(r *GroupRequest, _ *Setup) { r.Files = "nfs:/x/ y" }, "files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := good, own
			r.Members = append([]string(nil), good.Members...)
			c.change(&r, &s)
			_, err := NewGroup(r, s)
			fields := director.FieldsOf(err)
			if director.KindOf(err) != director.KindInvalid || len(fields) == 0 || fields[0].Path != c.path {
				t.Errorf("%v, %+v; want %s", err, fields, c.path)
			}
		})
	}
}

// member is an appliance of a group, with the setup of that address.
func member(t *testing.T, address string) Place {
	t.Helper()
	p := somewhere(t)
	s := Setup{
		Hostname: "director-" + address[strings.LastIndex(address, ".")+1:],
		Address:  netip.MustParsePrefix(address + "/8"),
	}
	if err := p.Save(s); err != nil {
		t.Fatal(err)
	}
	return p
}

// firstOf returns the first appliance of a group of two.
func firstOf(t *testing.T) (Place, Group) {
	t.Helper()
	p := member(t, "127.0.0.2")
	// NewGroup refuses addresses of loopback, where the members of this group are.
	g := Group{
		Address: netip.MustParseAddr("127.0.0.9"), Router: 9,
		Members: []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")},
	}
	if err := p.SaveGroup(g); director.KindOf(err) != director.KindInvalid {
		t.Fatalf("a group without a shared database: %v", err)
	}
	own := "database: postgres://director@db.example.net/director\n"
	if err := writeFile(p.data(OwnConfig), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	files(t, p, map[string]string{
		"etc/database.password": "secret\n", "director/sealing.key": "the key",
		"director/tls/ca.crt": "the certificate", "director/tls/ca.key": "its key", "director/instance": "first",
	})
	if err := p.SaveGroup(g); err != nil {
		t.Fatal(err)
	}
	return p, g
}

func TestWriteGroup(t *testing.T) {
	t.Parallel()
	p, g := firstOf(t)
	s, err := p.Load()
	if err != nil {
		t.Fatal(err)
	}
	keepalived, err := g.keepalived(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"interface eth0", "virtual_router_id 9", "priority 200", "unicast_src_ip 127.0.0.2", "        127.0.0.3\n    }",
		"        127.0.0.9/32\n", "https://127.0.0.1/readyz?changes=true",
	} {
		if !strings.Contains(keepalived, line) {
			t.Errorf("%q is missing in:\n%s", line, keepalived)
		}
	}
	if want := "add element inet director members { 127.0.0.2, 127.0.0.3 }\n"; !strings.HasSuffix(g.firewall(), want) {
		t.Errorf("got %q", g.firewall())
	}
	config, err := p.config(s, nil)
	if err != nil || !strings.Contains(config, "address: 127.0.0.9\n") ||
		!strings.Contains(config, "peerAddress: 127.0.0.2:443\n") {
		t.Errorf("%v\n%s", err, config)
	}
	files(t, p, map[string]string{OwnConfig: "database: postgres://db/director\naddress: 127.0.0.2\n"})
	if _, err := p.config(s, nil); director.KindOf(err) != director.KindInvalid {
		t.Errorf("an address of its own in a group: %v", err)
	}
}

// share runs Share on the first appliance, on a port that is free.
func share(t *testing.T, p Place, code director.Secret) (port string, ended chan error) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended = make(chan error, 1)
	go func() { ended <- p.Share(ctx, l, code, "0057", func(netip.Addr) {}) }()
	return l.Addr().String(), ended
}

func TestShare(t *testing.T) {
	t.Parallel()
	p, g := firstOf(t)
	code := NewCode()
	at, ended := share(t, p, code)
	asks := func(own, schema string) question { return question{Own: netip.MustParseAddr(own), Schema: schema} }
	joiner := asks("127.0.0.3", "0057")
	for name, c := range map[string]struct {
		code director.Secret
		q    question
		kind director.Kind
	}{
		"another code":     {NewCode(), joiner, director.KindUnavailable},
		"half of the code": {code[:20], joiner, director.KindInvalid},
		"a stranger":       {code, asks("127.0.0.4", "0057"), director.KindConflict},
		"another place":    {code, asks("127.0.0.2", "0057"), director.KindConflict},
		"another version":  {code, asks("127.0.0.3", "0056"), director.KindConflict},
	} {
		if a, err := askFrom(t, joiner.Own, at, c.code, c.q); director.KindOf(err) != c.kind || len(a.Files) > 0 {
			t.Errorf("%s: %v, %d files; want %s", name, err, len(a.Files), c.kind)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v, and no member has joined", err)
	default:
	}
	lower := director.Secret(strings.ToLower(strings.ReplaceAll(code.Reveal(), "-", " ")))
	a, err := askFrom(t, joiner.Own, at, lower, joiner)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(g.request(), a.Group.request()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var got []string
	for _, f := range a.Files {
		got = append(got, f.Path+" "+f.Mode.String())
	}
	want := []string{
		"director/sealing.key -rw-------", "director/tls/ca.crt -rw-------", "director/tls/ca.key -rw-------",
		"etc/database.password -rw-------", "etc/director.yaml -rw-r--r--",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := <-ended; err != nil {
		t.Errorf("all have joined: %v", err)
	}
}

// askFrom asks as the member with that address does.
func askFrom(t *testing.T, own netip.Addr, at string, code director.Secret, q question) (answer, error) {
	t.Helper()
	return askToJoin(t.Context(), net.Dialer{LocalAddr: &net.TCPAddr{IP: own.AsSlice()}}, at, code, q)
}

func TestBecome(t *testing.T) {
	t.Parallel()
	first, _ := firstOf(t)
	shared, err := first.group().collect()
	if err != nil {
		t.Fatal(err)
	}
	p := member(t, "127.0.0.3")
	files(t, p, map[string]string{"director/director.db": "of its own"})
	if err := os.MkdirAll(p.data(joining), 0o700); err != nil { // a former one was killed
		t.Fatal(err)
	}
	aside, err := p.group().become(shared, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(aside, "director.db")); err != nil || string(text) != "of its own" {
		t.Errorf("the former database has %q, %v", text, err)
	}
	want := map[string]string{
		"director/sealing.key": "the key", "director/tls/ca.key": "its key", "etc/database.password": "secret\n",
	}
	if diff := cmp.Diff(want, content(t, p, slices.Sorted(maps.Keys(want))...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := os.Stat(p.data("director/instance")); err == nil {
		t.Error("it has the other director's instance")
	}
	files(t, p, map[string]string{"director/instance": "second"})
	if again, err := p.group().become(shared, time.Now()); err != nil || again != "" {
		t.Errorf("again: %q, %v; want nothing moved", again, err)
	}
	if got := content(t, p, "director/instance")["director/instance"]; got != "second" {
		t.Errorf("again: the instance is %q", got)
	}
}

func TestUnused(t *testing.T) {
	t.Parallel()
	p := member(t, "127.0.0.3")
	if err := p.group().unused(); err != nil {
		t.Error(err)
	}
	files(t, p, map[string]string{"director/runs/plan/step.1.jsonl": "{}"})
	if err := p.group().unused(); director.KindOf(err) != director.KindConflict {
		t.Errorf("a director that has run plans: %v", err)
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"director/sealing.key": true, "etc/director.yaml": true, "etc/providers/lab": true,
		"director/director.db": false, "etc/../setup/setup.json": false, "/etc/shadow": false, "etc//x": false,
		"ssh/ssh_host_ed25519_key": false, "director/tls/../../x": false,
	} {
		if err := accepted(handover{Path: path, Mode: 0o600}); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := accepted(handover{Path: "etc/x", Mode: os.ModeSetuid | 0o755}); err == nil {
		t.Error("a file with set-user-id is taken")
	}
}
