package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/mirrors/mirrortest"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/simulate/pretend"
	"github.com/director-kaas/kaas/director/whole"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/loopback"
)

// simulatedScripts is where the scripts are, with the documents that they share.
var simulatedScripts = filepath.Join("testdata", "simulated")

// TestSimulatedScripts drives the command line against a whole director that pretends its hypervisors, nodes and
// playbooks. Every script has one of its own at $DIRECTOR_SERVER.
func TestSimulatedScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: simulatedScripts, UpdateScripts: *update, RequireExplicitExec: true,
		Setup: setupSimulated,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":            code,
			"newest":          newest,
			"expires":         expires,
			"letin":           letin,
			"newest-campaign": newestCampaign,
			"bundle":          makeBundle,
			"mirror":          startMirror,
			"newest-delivery": newestDelivery,
			"stray":           stray,
			"capture":         capture,
			"plays":           plays,
			"at-step":         atStep,
		},
	})
}

type (
	apiKey   struct{}
	stateKey struct{}
)

// simulated is a director that simulates, in this process.
type simulated struct {
	*daemon.Daemon
	state string // its directory
	url   string
	ca    []byte
}

// startSimulated starts a director that simulates. The caller ends it.
func startSimulated(ctx context.Context, adjust func(*daemon.Config)) (d simulated, err error) {
	if d.state, err = os.MkdirTemp("", "directorctl-"); err != nil { // a test's own path may be too long for a socket
		return d, err
	}
	cfg, err := simulatedConfig(d.state)
	if err != nil {
		return d, err
	}
	adjust(&cfg)
	quiet := slog.New(slog.DiscardHandler)
	if d.Daemon, err = daemon.Start(ctx, cfg, daemon.Build{Version: "v0.0.0-test"}, quiet, io.Discard); err != nil {
		return d, err
	}
	d.url = "https://" + d.Addr().String()
	d.ca, err = os.ReadFile(filepath.Join(d.state, "tls", "ca.crt"))
	return d, err
}

// end stops the director and removes what it has kept.
func (d simulated) end(ctx context.Context) error {
	var err error
	if d.Daemon != nil {
		err = d.Stop(ctx)
	}
	return errors.Join(err, os.RemoveAll(d.state))
}

func setupSimulated(env *testscript.Env) error {
	ctx := context.Background()
	oneTime := filepath.Base(env.WorkDir) == "script-one-time"
	d, err := startSimulated(ctx, func(cfg *daemon.Config) {
		env.Setenv("BACKUPS", cfg.BackupDirs[0])
		if oneTime {
			cfg.AdminPasswordFile = ""
		}
	})
	env.Defer(func() {
		if err := d.end(ctx); err != nil {
			env.T().Log(err)
		}
	})
	if err != nil {
		return err
	}
	text := []byte(password)
	if oneTime {
		if text, err = os.ReadFile(filepath.Join(d.state, "admin-password")); err != nil {
			return err
		}
	} else {
		api, err := login(ctx, client.Config{Server: d.url, CA: d.ca})
		if err != nil {
			return err
		}
		env.Defer(api.Close)
		env.Values[apiKey{}] = api
	}
	env.Values[stateKey{}] = d.state
	env.Setenv("DIRECTOR_SERVER", d.url)
	if err := setFingerprint(env, d.Addr().String()); err != nil {
		return err
	}
	return fillScript(env, d.ca, strings.TrimSpace(string(text)))
}

// setFingerprint tells a script the fingerprint of the director's certificate, as a person would be told it.
func setFingerprint(env *testscript.Env, addr string) error {
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // the test's own director
	if err != nil {
		return err
	}
	env.Setenv("FINGERPRINT", client.Fingerprint(conn.ConnectionState().PeerCertificates[0]))
	return conn.Close()
}

func simulatedConfig(state string) (daemon.Config, error) {
	cfg := daemon.DefaultConfig()
	cfg.StateDir, cfg.Listen, cfg.Address = state, "127.0.0.1:0", netip.MustParseAddr("127.0.0.1")
	cfg.Simulate, cfg.Simulation = true, simulate.Settings{Plays: simulate.Plays{
		Tasks: 1, Faults: []simulate.PlayFault{
			{
				Hosts: "bad-*", Playbook: "upgrade_master", Outcome: "failed", Percent: 100,
				Msg: "no space left on device",
			},
		},
	}}
	cfg.Simulation.Pods = []simulate.Pod{
		{Nodes: "two-worker-*", Namespace: "shop", Name: "cart-1", Owner: "ReplicaSet/cart"},
		{
			Nodes: "two-worker-1", Namespace: "shop", Name: "cache-0", Owner: "StatefulSet/cache",
			Blocked: kube.BlockedLocalData, Why: "what is in its emptyDir volume data would be lost",
		},
		{Nodes: "demo-worker-*", Namespace: "shop", Name: "cart-1", Owner: "ReplicaSet/cart"},
		{
			Nodes: "demo-worker-1", Namespace: "shop", Name: "db-0", Owner: "StatefulSet/db",
			Blocked: kube.BlockedByBudget,
			Why:     "disruption budget db allows no disruption: 1 of its pods are healthy and 1 have to be",
		},
	}
	// The simulation makes what these documents name; those of the scripts name nothing outside of the director.
	cfg.Simulation.Documents = []string{filepath.Join(simulatedScripts, "world.yaml")}
	cfg.MirrorNetworks = confine.Networks{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.BackupDirs = confine.Dirs{filepath.Join(state, "backups")}
	cfg.NodeShells, cfg.Notice = 2, "Everything here\nis for tests.\n"
	cfg.AdminPasswordFile = filepath.Join(state, "password")
	if err := os.WriteFile(cfg.AdminPasswordFile, []byte(password), 0o600); err != nil {
		return cfg, err
	}
	registry, err := loopback.Free()
	cfg.RegistryListen = registry.String() // pushing needs to know the port
	return cfg, err
}

func login(ctx context.Context, conf client.Config) (*client.Client, error) {
	api, err := client.New(conf)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	session, err := api.Login(ctx, "admin", password)
	if err != nil {
		return nil, err
	}
	conf.Token = director.Secret(session.Token)
	return client.New(conf)
}

// newest sets a variable to the id of the newest plan: newest VARIABLE.
func newest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: newest VARIABLE")
	}
	list, err := ts.Value(apiKey{}).(*client.Client).Plans(context.Background(), client.PlanFilter{Limit: 1})
	ts.Check(err)
	if len(list) != 1 {
		ts.Fatalf("%d plans, want one", len(list))
	}
	ts.Setenv(args[0], list[0].ID)
}

// newestCampaign sets a variable to the id of the newest campaign: newest-campaign VARIABLE.
func newestCampaign(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: newest-campaign VARIABLE")
	}
	list, err := ts.Value(apiKey{}).(*client.Client).Campaigns(context.Background())
	ts.Check(err)
	if len(list) == 0 {
		ts.Fatalf("there is no campaign")
	}
	ts.Setenv(args[0], list[0].ID)
}

// newestDelivery waits until a plan waits for a hook, and sets a variable to the id: newest-delivery VARIABLE.
func newestDelivery(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: newest-delivery VARIABLE")
	}
	id, err := awaitHook(context.Background(), ts.Value(apiKey{}).(*client.Client))
	ts.Check(err)
	ts.Setenv(args[0], id)
}

// awaitHook waits until a plan waits for a hook, and returns the id of what it waits for.
func awaitHook(ctx context.Context, api *client.Client) (string, error) {
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		v, err := api.HookDeliveries(ctx, "", "", true, 1)
		switch {
		case err != nil:
			return "", err
		case len(v.Items) > 0:
			return v.Items[0].ID, nil
		case time.Now().After(deadline):
			return "", errors.New("no plan waits for a hook")
		}
	}
}

// plays says how pretended playbooks go from now on:
//
//	plays fail HOSTS PLAYBOOK MESSAGE  they fail on the hosts, with the message
//	plays hold PLAYBOOK                the playbook begins, and waits
//	plays work                         they succeed, also those that waited
func plays(ts *testscript.TestScript, neg bool, args []string) {
	var faults []pretend.Fault
	var held []string
	switch {
	case !neg && len(args) == 4 && args[0] == "fail":
		faults = []pretend.Fault{
			{Hosts: args[1], Playbook: args[2], Outcome: "failed", Percent: 100, Msg: args[3]},
		}
	case !neg && len(args) == 2 && args[0] == "hold":
		held = args[1:]
	case neg || len(args) != 1 || args[0] != "work":
		ts.Fatalf("usage: plays fail HOSTS PLAYBOOK MESSAGE, plays hold PLAYBOOK, or: plays work")
	}
	file := filepath.Join(ts.Value(stateKey{}).(string), "simulation", pretend.SettingsFile)
	text, err := os.ReadFile(file)
	ts.Check(err)
	var settings pretend.Settings
	ts.Check(json.Unmarshal(text, &settings))
	settings.Faults, settings.Held = faults, held
	text, err = json.Marshal(settings)
	ts.Check(err)
	ts.Check(whole.Write(file, text, 0o600))
}

// atStep waits until the newest plan runs the step after another one is done, and sets a variable to the plan's id:
// at-step STEP VARIABLE.
func atStep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: at-step STEP VARIABLE")
	}
	api := ts.Value(apiKey{}).(*client.Client)
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		list, err := api.Plans(context.Background(), client.PlanFilter{Limit: 1})
		ts.Check(err)
		if len(list) == 1 {
			p, err := api.Plan(context.Background(), list[0].ID)
			ts.Check(err)
			if p.StepsDone > 0 && slices.ContainsFunc(p.Steps, func(s wire.Step) bool {
				return s.ID == args[0] && s.Status == string(plan.Running)
			}) {
				ts.Setenv(args[1], p.ID)
				return
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no plan runs %s", args[0])
		}
	}
}

var clientCertificate = regexp.MustCompile(`client-certificate-data: (\S+)`)

// expires wants the client certificate of a kubeconfig to end in about that time: expires FILE DURATION.
func expires(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: expires FILE DURATION")
	}
	want, err := time.ParseDuration(args[1])
	ts.Check(err)
	found := clientCertificate.FindStringSubmatch(ts.ReadFile(args[0]))
	if found == nil {
		ts.Fatalf("%s has no client certificate", args[0])
	}
	text, err := base64.StdEncoding.DecodeString(found[1])
	ts.Check(err)
	block, _ := pem.Decode(text)
	if block == nil {
		ts.Fatalf("the client certificate of %s is not PEM", args[0])
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	ts.Check(err)
	if left := time.Until(cert.NotAfter); left > want || left < want-2*time.Minute {
		ts.Fatalf("the client certificate of %s ends in %s, want %s", args[0], left, want)
	}
}

// letin runs a login with a code to its end, and plays the person at a browser: letin allow|refuse LOGIN-ARGS.
func letin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: letin allow|refuse ARGS")
	}
	var program string
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, "directorctl"); program == "" {
			if _, err := os.Stat(p); err == nil {
				program = p
			}
		}
	}
	cmd := exec.Command(program, append([]string{"login", "--device"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "DIRECTOR_SERVER", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	errs, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	defer func() { _ = cmd.Wait() }()
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		if _, code, ok := strings.Cut(lines.Text(), "type this code there: "); ok {
			ts.Check(answerLogin(ts.Getenv("DIRECTOR_SERVER"), code, args[0]))
		}
	}
}

// answerLogin is what the page of the console does.
func answerLogin(server, code, answer string) error {
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test's own director
	}}
	post := func(path, body string) (map[string]any, error) {
		resp, err := browser.Post(server+"/api/v1"+path, "application/json", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		var out map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s: %s: %v, %w", path, resp.Status, out, err)
		}
		return out, nil
	}
	if _, err := post("/session", `{"user":"admin","password":"`+password+`"}`); err != nil {
		return err
	}
	found, err := post("/logins/find", `{"code":"`+code+`"}`)
	if err != nil {
		return err
	}
	_, err = post("/logins/"+found["id"].(string)+"/"+answer, "")
	return err
}

// makeBundle makes a release bundle of empty images: bundle NAME VERSION.
func makeBundle(ts *testscript.TestScript, _ bool, args []string) {
	_, err := simulate.Bundle(context.Background(), ts.MkAbs("."), args[0], args[1])
	ts.Check(err)
}

// startMirror serves a file over HTTPS, in answers that break off after 50,000 bytes of it, to ann with the password
// hunter2, and sets $MIRROR to its address: mirror FILE CA-FILE.
func startMirror(ts *testscript.TestScript, _ bool, args []string) {
	file, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	m, end := mirrortest.New(file)
	ts.Defer(end)
	m.Cut(50_000)
	m.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user == "ann" && password == "hunter2" {
			return true
		}
		w.WriteHeader(http.StatusUnauthorized)
		return false
	})
	ts.Setenv("MIRROR", m.URL)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(m.CA), 0o600))
}

// stray does to a simulated hypervisor what the director does not know of, and sets $ID to the VM's id:
//
//	stray orphan PROVIDER VM MACHINE  another VM with the director's stamp, of that machine
//	stray stranger PROVIDER VM        a VM without one
//	stray ghost PROVIDER VM           somebody deletes the VM
//	stray off PROVIDER VM             somebody switches the VM off
//	stray volume PROVIDER VM          somebody attaches a disk pvc-7 to the VM
func stray(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || (args[0] == "orphan") != (len(args) == 4) {
		ts.Fatalf("usage: stray KIND PROVIDER VM [MACHINE]")
	}
	ctx := context.Background()
	dir := filepath.Join(ts.Value(stateKey{}).(string), "simulation")
	world, err := sim.OpenWorld(simulate.WorldFile(dir, args[1]))
	ts.Check(err)
	defer func() { _ = world.Close() }()
	backend := sim.Open(world)
	vms, err := backend.List(ctx, hypervisor.Filter{Strangers: true})
	ts.Check(err)
	var id hypervisor.ID
	var stamp director.Stamp
	for _, vm := range vms {
		if vm.Stamp.Director != "" && id == "" {
			stamp = vm.Stamp
		}
		if vm.Name == args[2] {
			id = vm.ID
		}
	}
	switch args[0] {
	case "orphan":
		id = world.AddStray(args[2], director.Stamp{Director: stamp.Director, Machine: args[3]})
	case "stranger":
		id = world.AddStranger(args[2])
	case "ghost":
		ts.Check(backend.Delete(ctx, id, hypervisor.DeleteOptions{Owner: stamp}))
	case "off":
		ts.Check(backend.SetPower(ctx, id, hypervisor.PowerOff))
	case "volume":
		world.AttachForeign(id, "pvc-7", 20<<30)
	default:
		ts.Fatalf("there is no stray %s", args[0])
	}
	ts.Setenv("ID", string(id))
}

// capture sets a variable to the first group of a regular expression in what the last command wrote: capture VARIABLE
// REGEXP.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture VARIABLE REGEXP")
	}
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("nothing matches %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}
