package daemon

import (
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A second director on the database needs the first one's sealing key, and is told so. The password comes by file.
func TestTwoDirectorsOnOneDatabase(t *testing.T) {
	t.Parallel()
	server := storetest.Shared(t)
	address, password := server.TCP(server.Database(t)), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(storetest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := testConfig(t), testConfig(t)
	two.RegistryListen = "127.0.0.3:0"
	for _, c := range []*Config{&one, &two} {
		c.Database, c.DatabasePasswordFile = address, password
	}
	if _, err := start(t, one, io.Discard); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(two.StateDir, "sealing.key")
	if _, err := start(t, two, io.Discard); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without a key: %v, want not_found: no second key may be made", err)
	}
	other := Daemon{cfg: testConfig(t), log: slog.New(slog.DiscardHandler)}
	if d, err := start(t, other.cfg, io.Discard); err != nil || d == nil { // a director of its own makes another key
		t.Fatal(err)
	}
	copyFile(t, other.path("sealing.key"), key)
	_, err := start(t, two, io.Discard)
	if director.KindOf(err) != director.KindConflict || !strings.Contains(director.HintOf(err), "copy sealing.key") {
		t.Errorf("with another key: %v, hint %q", err, director.HintOf(err))
	}
	copyFile(t, filepath.Join(one.StateDir, "sealing.key"), key)
	authority := filepath.Join(two.StateDir, "tls")
	if err := os.MkdirAll(authority, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := start(
		t, two, io.Discard,
	); director.KindOf(err) != director.KindNotFound || !strings.Contains(director.HintOf(err), "copy tls/ca.crt") {
		t.Errorf("without the authority: %v, hint %q", err, director.HintOf(err))
	}
	for _, c := range []Config{other.cfg, one} { // the right one comes last
		for _, file := range []string{"ca.crt", "ca.key"} {
			copyFile(t, filepath.Join(c.StateDir, "tls", file), filepath.Join(authority, file))
		}
		if _, err := start(
			t, two, io.Discard,
		); (err == nil) != (c.StateDir == one.StateDir) || err != nil && director.KindOf(err) != director.KindConflict {
			t.Errorf("with the authority of %s: %v", c.StateDir, err)
		}
	}
	ids := map[string]bool{}
	for _, c := range []Config{one, two} {
		text, err := os.ReadFile(filepath.Join(c.StateDir, "instance"))
		if err != nil {
			t.Fatal(err)
		}
		ids[strings.Fields(string(text))[0]] = true
	}
	if len(ids) != 2 {
		t.Errorf("two state directories have the instances %v", ids)
	}
}

// A rehearsal keeps off the database of a real director, and the other way round.
func TestDatabasesOfSimulationsAndRealityKeepApart(t *testing.T) {
	t.Parallel()
	for name, simulate := range map[string]bool{"real": false, "simulated": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := storetest.Postgres(t)
			for _, first := range []bool{true, false} {
				c := testConfig(t)
				c.Database, c.Simulate, c.Simulation.Worlds = database, simulate == first, t.TempDir()
				d, err := start(t, c, io.Discard)
				if first && err == nil {
					err = d.Stop(t.Context())
				}
				if first && err != nil ||
					!first &&
						(director.KindOf(err) != director.KindConflict ||
							!strings.Contains(director.HintOf(err), "a database of its own")) {
					t.Errorf("simulate %t: %v", c.Simulate, err)
				}
			}
		})
	}
}

func TestInstanceID(t *testing.T) {
	t.Parallel()
	d := &Daemon{cfg: Config{StateDir: t.TempDir()}}
	first, host, err := d.state().instanceID()
	if err != nil || first == "" || host == "" {
		t.Fatal(first, host, err)
	}
	if again, _, err := d.state().instanceID(); err != nil || again != first {
		t.Errorf("%q became %q, %v", first, again, err)
	}
	// A copy elsewhere is another instance.
	moved := &Daemon{cfg: Config{StateDir: t.TempDir()}}
	copyFile(t, d.path("instance"), moved.path("instance"))
	if id, _, err := moved.state().instanceID(); err != nil || id == first {
		t.Errorf("a copy has the id %q of its original, %v", id, err)
	}
}

func TestDatabaseConfig(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		database, file, want string
	}{
		"sqlite": {"", "", ""},
		"postgres": {
			"postgres://director@db/director?sslmode=verify-full", "/etc/director/db.password", "",
		},
		"a password in it":         {"postgres://director:hunter2@db/director", "", "holds a password"},
		"password without address": {"", "/etc/director/db.password", "without database"},
	} {
		c := testConfig(t)
		c.Database, c.DatabasePasswordFile = tt.database, tt.file
		err := c.Validate()
		if (err == nil) != (tt.want == "") ||
			err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLocalAddress(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]string{"127.0.0.1": "127.0.0.1", "127.9.9.9": "127.0.0.1"} {
		if got, ok := localAddress(netip.MustParseAddr(other)); !ok || got.String() != want {
			t.Errorf("%s is reached from %v, %v; want %s", other, got, ok, want)
		}
	}
	for _, other := range []netip.Addr{{}, netip.IPv4Unspecified()} {
		if got, ok := localAddress(other); ok {
			t.Errorf("%v is reached from %v", other, got)
		}
	}
}

// A member of a group is asked at its own address, too: an upgrade of it begins there.
func TestCertificateHasTheOwnAddress(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.PeerAddress = "192.0.2.11:443"
	if _, err := start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "server.crt"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCert(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"192.0.2.11", c.Address.String()} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}
