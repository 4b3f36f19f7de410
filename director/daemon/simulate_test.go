package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/simulate/pretend"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/test/loopback"
	"github.com/director-kaas/kaas/test/program"
)

// Directors that simulate have the small substitute for ansible-playbook, or, as a witness, the test's binary.
func TestMain(m *testing.M) {
	if pretend.Called(os.Args[0]) {
		if err := witness(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(pretend.Main(os.Args, os.Stderr))
	}
	if _, err := program.Build(context.Background(), "pretend-ansible"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(storetest.Main(m))
}

const demoDocuments = `
apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: libvirt, libvirt: {hosts: [{name: h1, uri: "qemu:///system"}, {name: h2, uri: "qemu:///system"}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec: {provider: lab, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: node}
spec: {source: /nowhere/image, sha256: "0000000000000000000000000000000000000000000000000000000000000000", ` +
	`kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s}
spec: {bundle: /nowhere/bundle, kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo}
spec: {release: k8s, provider: lab, image: node, network: net, workers: [{name: w, count: 3}]}
`

// simulating returns the configuration of a director that simulates without delays.
func simulating(t *testing.T, documents string) Config {
	t.Helper()
	c := testConfig(t)
	c.Simulate, c.Simulation = true, simulate.Settings{Plays: simulate.Plays{Tasks: 1}}
	file := filepath.Join(t.TempDir(), "documents.yaml")
	password := filepath.Join(t.TempDir(), "password")
	for name, text := range map[string]string{file: documents, password: "correct horse battery"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Simulation.Documents, c.AdminPasswordFile = []string{file}, password
	c.RegistryListen = loopback.FreeFor(t).String() // pushing needs to know the port
	return c
}

// connect logs in as admin.
func connect(t testing.TB, c Config, d *Daemon) *client.Client {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	conf := client.Config{Server: "https://" + d.Addr().String(), CA: ca}
	for range 2 {
		api, err := client.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Close)
		if conf.Token != "" {
			return api
		}
		session, err := api.Login(t.Context(), "admin", "correct horse battery")
		if err != nil {
			t.Fatal(err)
		}
		conf.Token = director.Secret(session.Token)
	}
	return nil
}

// opened is a director that runs, with a client that is logged in.
func opened(t *testing.T, c Config) (*Daemon, *client.Client) {
	t.Helper()
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return d, connect(t, c, d)
}

// created is a director that has created the cluster "demo" of its documents.
func created(t *testing.T, c Config) (*Daemon, *client.Client) {
	t.Helper()
	d, api := opened(t, c)
	run(t, api, plan.ClusterCreate)
	return d, api
}

// started plans the operation on the cluster "demo", or what its document asks for, starts it, and returns the plan.
func started(t testing.TB, api *client.Client, operation plan.Operation) string {
	t.Helper()
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: operation})
	if err == nil {
		_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.ID
}

// run plans the operation, starts it and waits for its end.
func run(t *testing.T, api *client.Client, operation plan.Operation) {
	t.Helper()
	id := started(t, api, operation)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		now, err := api.Plan(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if status := plan.Status(now.Status); status.Ended() || status == plan.StatusParked {
			if status != plan.StatusDone {
				t.Fatalf("the plan is %s: %s", status, now.Message)
			}
			return
		}
	}
}

func TestSimulatedCluster(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	var out strings.Builder
	d, err := start(t, c, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{
		"Image/node: /nowhere/image is not here", "Release/k8s: there is no bundle in /nowhere/bundle",
	} {
		if !strings.Contains(out.String(), note) {
			t.Errorf("it does not say %q: %s", note, out.String())
		}
	}
	api := connect(t, c, d)
	run(t, api, plan.ClusterCreate)
	if got, err := api.Cluster(t.Context(), "demo"); err != nil || got.Status != "ready" || len(got.Machines) != 4 {
		t.Errorf("the cluster is %+v, %v", got, err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	api = connect(t, c, d)
	run(t, api, plan.ClusterDelete) // finds the VMs that the earlier process made, or fails
	world, err := os.ReadFile(simulate.WorldFile(filepath.Join(c.StateDir, "simulation"), "lab"))
	if n := strings.Count(string(world), `"no_vm"`); n != 4 || err != nil {
		t.Errorf("%d VMs were deleted, want 4; %v", n, err)
	}
}

func TestSimulationAndRealityKeepApart(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Stop(t.Context())
	c.Simulate = true
	if _, err := start(
		t, c, io.Discard,
	); director.KindOf(err) != director.KindConflict || !strings.Contains(fmt.Sprint(err), "real director") {
		t.Errorf("a simulation on a real director's state: %v", err)
	}
	c = simulating(t, demoDocuments)
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	_ = d.Stop(t.Context())
	c.Simulate = false
	if _, err := start(t, c, io.Discard); director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
		t.Errorf("a real director on a simulation's state: %v", err)
	}
}

const simProvider = `
apiVersion: kaas/v1
kind: Provider
metadata: {name: pretended}
spec: {type: sim, sim: {hosts: [{name: h1}], verbs: [{verb: ensure, latency: 10ms, faults: 1}]}}
`

func TestOnlySimulationsTakeSimProviders(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		simulate bool
		want     director.Kind
	}{"real": {false, director.KindInvalid}, "simulating": {true, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := simulating(t, demoDocuments)
			c.Simulate = tt.simulate
			d, err := start(t, c, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			_, err = connect(t, c, d).Apply(t.Context(), []byte(simProvider), "x", false)
			if tt.want == "" && err != nil || tt.want != "" && director.KindOf(err) != tt.want {
				t.Fatalf("got %v", err)
			}
			if err != nil && !strings.Contains(fmt.Sprintf("%v %+v", err, err), "does not simulate") {
				t.Errorf("the error does not say why: %v", err)
			}
		})
	}
}

func TestBadSimulation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "director.yaml")
	text := `
stateDir: /x
address: 10.0.0.1
simulate: true
database: postgres://director@db/director
simulation:
  verbs: [{verb: fly}, {verb: list, faults: 101}]
  plays: {changed: 200, faults: [{outcome: sad, percent: -1}]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadConfig(path)
	for _, want := range []string{
		"simulation.worlds: is missing", "simulation.verbs", "simulation.plays.changed", "plays.faults[0].outcome",
		"plays.faults[0].percent",
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}
