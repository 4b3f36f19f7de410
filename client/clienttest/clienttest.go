// Package clienttest runs programs of other languages against a director that simulates.
package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/rootdisk/rootdisktest"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/test/loopback"
	"github.com/director-kaas/kaas/test/program"
)

// Main runs the tests of a package. Call it from TestMain: the director runs a substitute instead of Ansible.
func Main(m *testing.M) {
	if _, err := program.Build(context.Background(), "pretend-ansible"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Director is one that simulates.
type Director struct {
	URL          string
	CAFile       string
	PasswordFile string // of admin
	Documents    string // file with a provider, a network and the cluster demo
	Upgrade      string // archive of the version that its appliance runs, if it has one
}

// Start starts a director that ends with the test. root is the root of the repository.
func Start(t *testing.T, root string) Director {
	t.Helper()
	return start(t, root, func(*daemon.Config) {})
}

// StartAppliance starts a director that runs on an appliance, and uses nothing that is not signed.
func StartAppliance(t *testing.T, root string) Director {
	t.Helper()
	upgrade := ""
	d := start(t, root, func(c *daemon.Config) { upgrade = appliance(t, c) })
	d.Upgrade = upgrade
	return d
}

func start(t *testing.T, root string, change func(*daemon.Config)) Director {
	t.Helper()
	state, err := os.MkdirTemp("", "clienttest-") // a socket's path below a test's directory may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	world := filepath.Join(root, "cmd", "directorctl", "testdata", "simulated")
	cfg := daemon.DefaultConfig()
	cfg.StateDir, cfg.Listen, cfg.Address = state, "127.0.0.1:0", netip.MustParseAddr("127.0.0.1")
	cfg.Simulate, cfg.Simulation = true, simulate.Settings{Plays: simulate.Plays{Tasks: 1}}
	cfg.Simulation.Documents = []string{filepath.Join(world, "world.yaml")}
	cfg.AdminPasswordFile = filepath.Join(state, "password")
	if err := os.WriteFile(cfg.AdminPasswordFile, []byte("correct horse battery staple"), 0o600); err != nil {
		t.Fatal(err)
	}
	change(&cfg)
	cfg.RegistryListen = loopback.FreeFor(t).String() // pushing needs to know the port
	ctx := context.WithoutCancel(t.Context())
	d, err := daemon.Start(ctx, cfg, daemon.Build{Version: "v0.0.0-test"}, slog.New(slog.DiscardHandler), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return Director{
		URL: "https://" + d.Addr().String(), CAFile: filepath.Join(state, "tls", "ca.crt"),
		PasswordFile: cfg.AdminPasswordFile, Documents: filepath.Join(world, "documents.yaml"),
	}
}

// appliance has the director run on an appliance, and returns the archive of the version that runs there.
func appliance(t *testing.T, cfg *daemon.Config) string {
	t.Helper()
	root := rootdisk.Root{Version: "v7", Built: 1000, Schema: "0054"}
	archive := filepath.Join(t.TempDir(), "director-upgrade.tar")
	cfg.TrustedKeys = []string{rootdisktest.Archive(t, archive, root)}
	cfg.UpgradeDir = filepath.Dir(archive)
	text, err := json.Marshal(rootdisk.State{Running: rootdisk.Held{Slot: rootdisk.A, Root: root}})
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.UpgradeDir, rootdisk.StateFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

// Run runs a program in the directory that finds the director by its environment, and fails the test if it does.
func (d Director) Run(t *testing.T, dir string, environment []string, program ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), environment...),
		"DIRECTOR_URL="+d.URL, "DIRECTOR_CA_FILE="+d.CAFile, "DIRECTOR_PASSWORD_FILE="+d.PasswordFile,
		"DIRECTOR_DOCUMENTS="+d.Documents, "DIRECTOR_UPGRADE="+d.Upgrade, "PYTHONDONTWRITEBYTECODE=1",
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", program, err, out)
	}
	return string(out)
}

// Token returns a token of admin.
func (d Director) Token(t *testing.T) string {
	t.Helper()
	ca, err := os.ReadFile(d.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	password, err := os.ReadFile(d.PasswordFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Server: d.URL, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session, err := c.Login(t.Context(), "admin", director.Secret(password))
	if err != nil {
		t.Fatal(err)
	}
	return session.Token
}
