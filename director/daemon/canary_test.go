package daemon

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/simulate/pretend"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// witnessDir is the directory beside the stand-in for ansible-playbook into which it writes what any process could see
// of it, if the directory is there.
const witnessDir = "witness"

// witness notes the command line and the environment of the process that plays ansible-playbook. Then it does what a
// careless playbook would: it prints the secrets that it was given.
func witness() error {
	dir := filepath.Join(filepath.Dir(os.Args[0]), witnessDir)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	var said bytes.Buffer
	for _, file := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile("/proc/self/" + file)
		if err != nil {
			return err
		}
		said.Write(bytes.ReplaceAll(text, []byte{0}, []byte{'\n'}))
	}
	for i, arg := range os.Args {
		_, value, glued := strings.Cut(arg, "=")
		if !glued {
			value = arg
		}
		text, err := os.ReadFile(strings.TrimPrefix(value, "@"))
		if i == 0 || err != nil {
			continue
		}
		var vars map[string]any
		if json.Unmarshal(text, &vars) != nil {
			vars = nil
			if strings.Contains(string(text), "PRIVATE KEY") {
				vars = map[string]any{"key": string(text)}
			}
		}
		for name, v := range vars {
			if s, ok := v.(string); ok {
				fmt.Printf("leak of %s: %q\n%s\n%s\n", name, s, s, base64.StdEncoding.EncodeToString([]byte(s)))
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprint(os.Getpid())), said.Bytes(), 0o600)
}

// canaries are secrets in all the forms in which they could be found.
type canaries map[string][]string

func (c canaries) add(name, secret string) {
	secret = strings.TrimSpace(secret)
	if len(secret) < 8 {
		return
	}
	quoted, _ := json.Marshal(secret) // a text always marshals
	c[name] = append(
		c[name], secret, string(quoted[1:len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
	)
	for line := range strings.Lines(secret) { // of a key, any line gives it away
		if line = strings.TrimSpace(line); line != secret && len(line) > 30 && !strings.HasPrefix(line, "-----") {
			c[name] = append(c[name], line)
		}
	}
}

// find returns the names of the secrets that the text holds.
func (c canaries) find(text []byte) []string {
	var found []string
	for name, forms := range c {
		if slices.ContainsFunc(forms, func(f string) bool { return bytes.Contains(text, []byte(f)) }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// private says which entries of a cluster's secret variables are secret: certificates are not.
func private(value string) bool {
	return !strings.HasPrefix(strings.TrimSpace(value), "-----BEGIN CERTIFICATE") &&
		!strings.HasPrefix(value, "-----BEGIN PUBLIC")
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) Bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// TestNoSecretGetsOut creates a cluster whose playbooks print every secret that they are given, and looks for the
// secrets wherever somebody could read them.
func TestNoSecretGetsOut(t *testing.T) {
	t.Parallel()
	c := careless(t)
	logs, out := &logBuffer{}, &logBuffer{}
	d, err := Start(
		t.Context(), c, Build{Version: "test", Commit: "c0ffee"},
		slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})), out,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(t.Context()) }) // below it is stopped with a look at the error
	playWitness(t, c)
	api := connect(t, c, d)
	session, err := api.Login(t.Context(), "admin", "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	id := failedPlan(t, api)
	seen := places{}
	seen.ask(t, d, api, id)
	seen.archive(t, api, id)
	secrets := secretsOf(t, c, d)
	secrets.add("token of a login", session.Token)
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen["log of the director"], seen["output of the director"] = logs.Bytes(), out.Bytes()
	seen.state(t, c.StateDir)
	for prefix, least := range map[string]int{
		"file director.db": 1, "file runs/": 2, "file simulation/witness/": 2, "archive ": 10, "stream": 1, "events": 1,
		"log of": 1,
	} {
		if n := seen.count(prefix); n < least {
			t.Errorf("%d places %q were looked at, want %d", n, prefix, least)
		}
	}
	seen.wantNone(t, secrets)
	seen.wantPrinted(t)
	wantFindable(t, secrets, filepath.Join(c.StateDir, "sealing.key"))
}

// careless returns the configuration of a director whose playbooks print what they are given, and fail in the end.
func careless(t *testing.T) Config {
	t.Helper()
	c := simulating(t, demoDocuments)
	c.LogLevel, c.LogFormat = slog.LevelDebug, "json"
	witnesses := filepath.Join(c.StateDir, "simulation", witnessDir)
	if err := os.MkdirAll(witnesses, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Playbook: "verify", Outcome: "failed", Percent: 100, Msg: "broken on purpose"},
	}
	return c
}

// playWitness has the test's own binary play ansible-playbook, from now on.
func playWitness(t *testing.T, c Config) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	playbook := filepath.Join(c.StateDir, "simulation", pretend.Name)
	if err := errors.Join(os.Remove(playbook), os.Symlink(self, playbook)); err != nil {
		t.Fatal(err)
	}
}

// failedPlan creates the cluster, which fails on purpose.
func failedPlan(t *testing.T, api *client.Client) string {
	t.Helper()
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterCreate})
	if err == nil {
		p, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	status, err := api.Follow(t.Context(), p.ID, 0, func(wire.Event) error { return nil }, nil, nil)
	if err != nil || status != string(plan.StatusFailed) {
		t.Fatalf("the plan is %s, %v; its playbook was to fail", status, err)
	}
	return p.ID
}

// places hold what could be read from outside, by name.
type places map[string][]byte

func (p places) add(t *testing.T, name string, v any, err error) {
	t.Helper()
	text, merr := json.Marshal(v)
	if err := errors.Join(err, merr); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p[name] = text
}

// ask adds what the API tells.
func (p places) ask(t *testing.T, d *Daemon, api *client.Client, id string) {
	t.Helper()
	shown, err := api.Plan(t.Context(), id)
	p.add(t, "plan", shown, err)
	stream, err := api.Stream(t.Context(), client.StreamFilter{})
	p.add(t, "stream", stream, err)
	var events []wire.Event
	_, err = api.Follow(
		t.Context(), id, 0, func(e wire.Event) error { events = append(events, e); return nil }, nil, nil,
	)
	p.add(t, "events", events, err)
	keepADisk(t, d)
	kept, err := api.Disks(t.Context(), client.DiskFilter{})
	p.add(t, "kept disks", kept, err)
	if len(kept.Items) == 0 {
		t.Error("no disk is kept, so their names prove nothing")
	}
	audit, err := api.Audit(t.Context())
	p.add(t, "audit of VMs", audit, err)
	vms, err := api.VMs(t.Context(), true)
	p.add(t, "VMs", vms, err)
	files, err := api.Inventory(t.Context(), "demo")
	p.add(t, "inventory", files, err)
}

// archive adds the archive of the plan, and looks for what belongs into it.
func (p places) archive(t *testing.T, api *client.Client, id string) {
	t.Helper()
	body, err := api.Archive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	names := unpack(t, body, p)
	for _, want := range []string{
		"plan.json", "content.json", "events.jsonl", "versions.json", "config.yaml", "inventory/", "logs/control_plane",
	} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("the archive has no %s: %q", want, names)
		}
	}
	versions := string(p["archive plan-"+id+"/versions.json"])
	for _, want := range []string{
		`"director": "test"`, `"commit": "c0ffee"`, `"database": "sqlite"`, `"schema": "00`, `"go": "go`,
		`"playbooks": "`, `"ansible": "`,
	} {
		if !strings.Contains(versions, want) {
			t.Errorf("the archive's versions have no %s: %s", want, versions)
		}
	}
}

// state adds the files of the state directory, but for those that may hold secrets and are for the director's user
// alone.
func (p places) state(t *testing.T, dir string) {
	t.Helper()
	sealed := map[string]bool{"sealing.key": true, "tls": true}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || sealed[name] || !e.Type().IsRegular() {
			if sealed[name] && e.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		p["file "+name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// count returns how many places with text begin with prefix.
func (p places) count(prefix string) (n int) {
	for name, text := range p {
		if strings.HasPrefix(name, prefix) && len(text) > 0 {
			n++
		}
	}
	return n
}

func (p places) wantNone(t *testing.T, secrets canaries) {
	t.Helper()
	for name, text := range p {
		if found := secrets.find(text); len(found) > 0 {
			t.Errorf("%s holds %q", name, found)
		}
		for _, what := range neverKept {
			if bytes.Contains(text, []byte(what)) {
				t.Errorf("%s holds what begins with %q", name, what)
			}
		}
	}
}

// wantPrinted proves that the careless playbooks did print the secrets, or nothing was proved.
func (p places) wantPrinted(t *testing.T) {
	t.Helper()
	has := func(part string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(p)), func(text []byte) bool {
			return bytes.Contains(text, []byte(part))
		})
	}
	if !has(`leak of bootstrap_token: \"\u003csecret\u003e\"`) {
		t.Error("the playbooks did not print what they were given, so nothing was proved")
	}
	if !has("leak of key: ") {
		t.Error("the playbooks did not print the key that they log in with")
	}
}

// wantFindable proves that the search finds each secret in each of its forms, and the sealing key in its own file.
func wantFindable(t *testing.T, secrets canaries, sealingKey string) {
	t.Helper()
	if len(secrets) < 10 {
		t.Errorf("only %d secrets were looked for: %v", len(secrets), slices.Sorted(maps.Keys(secrets)))
	}
	for name, forms := range secrets {
		for _, form := range forms {
			if found := secrets.find([]byte("planted " + form + " here")); !slices.Contains(found, name) {
				t.Errorf("%s would not be found as %q", name, form)
			}
		}
	}
	key, err := os.ReadFile(sealingKey)
	if err != nil || len(secrets.find(key)) == 0 {
		t.Errorf("the sealing key is not found in its own file: %v", err)
	}
}

// neverKept begin what is made for one use, so that no store has it to look for: the keys and certificates of logins,
// and what a VM is given at its first boot.
var neverKept = []string{"PRIVATE KEY-----\n", `PRIVATE KEY-----\n`, "-cert-v01@openssh.com AAAA", "#cloud-config"}

// keepADisk has the ledger keep the data disk of a node.
func keepADisk(t *testing.T, d *Daemon) {
	t.Helper()
	rows, err := d.services.db.Machines(t.Context(), store.MachineFilter{Cluster: "demo"})
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d machines, %v", len(rows), err)
	}
	m := rows[0]
	id := director.DiskID(m.ID, director.DataDiskSerial)
	err = d.services.db.KeepDisks(t.Context(), []director.KeptDisk{{
		ID: id, Name: id, Provider: m.Provider, Host: m.Host, Machine: m.ID, Serial: director.DataDiskSerial,
		ClusterUID: m.ClusterUID, Cluster: m.Cluster,
		Pool: m.Pool, Node: m.Name, Kept: time.Now(),
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// unpack adds the files of the archive to the places, and returns their names.
func unpack(t *testing.T, body io.ReadCloser, places map[string][]byte) []string {
	t.Helper()
	defer func() { _ = body.Close() }()
	zip, err := gzip.NewReader(body)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if places["archive "+h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if _, err := io.Copy(io.Discard, zip); err != nil {
		t.Errorf("the archive is not whole: %v", err)
	}
	return names
}

// secretsOf opens everything that the director has sealed, and returns what is secret of it and of its files.
func secretsOf(t *testing.T, c Config, d *Daemon) canaries {
	t.Helper()
	found := canaries{}
	found.add("password of admin", "correct horse battery")
	db, err := store.Open(t.Context(), filepath.Join(c.StateDir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	box, err := d.state().openSeal(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	env := steps.Env{
		Installation: steps.Installation{Director: db.DirectorID(), Now: time.Now},
		Clusters:     steps.Clusters{Keys: steps.Keys{Secrets: db, Sealer: box}},
	}
	doc, err := db.Document(t.Context(), model.Ref{Kind: model.KindCluster, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := env.SSH().Authority(t.Context(), doc.UID)
	if err != nil {
		t.Fatal(err)
	}
	found.add("SSH authority of the cluster", authority.Private.Reveal())
	pulls, err := env.PullPasswords(t.Context(), doc.UID)
	if err != nil || len(pulls) == 0 {
		t.Fatalf("%d pull passwords, %v", len(pulls), err)
	}
	for i, password := range pulls {
		found.add(fmt.Sprintf("pull password %d", i), password.Reveal())
	}
	text, err := env.SecretVars(t.Context(), step.Facts{UID: doc.UID})
	if err != nil {
		t.Fatal(err)
	}
	var vars map[string]any
	if err := json.Unmarshal(text, &vars); err != nil {
		t.Fatal(err)
	}
	delete(vars, "ssh_authorities") // public keys, which seeds and inventories have as well
	collect(found, "cluster", vars)
	machines, err := db.Machines(t.Context(), store.MachineFilter{Cluster: "demo"})
	if err != nil || len(machines) == 0 {
		t.Fatalf("%d machines, %v", len(machines), err)
	}
	for _, m := range machines {
		key, err := env.KnownHostKey(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		if key.Private != "" { // or the machine has made its own
			found.add("host key of "+m.Name, key.Private.Reveal())
		}
	}
	key, err := os.ReadFile(filepath.Join(c.StateDir, "sealing.key"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(key)) {
		if strings.HasPrefix(line, "AGE-SECRET-KEY") {
			found.add("sealing key", line)
		}
	}
	keys, err := filepath.Glob(filepath.Join(c.StateDir, "tls", "*.key"))
	if err != nil || len(keys) == 0 {
		t.Fatalf("no keys of the director's certificates: %v", err)
	}
	for _, file := range keys {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found.add(filepath.Base(file), string(text))
	}
	return found
}

// collect adds the texts of the variables that are secret, and what makes up structured ones.
func collect(found canaries, name string, v any) {
	switch v := v.(type) {
	case string:
		if private(v) {
			found.add(name, v)
		}
	case []any:
		for i, e := range v {
			collect(found, fmt.Sprintf("%s[%d]", name, i), e)
		}
	case map[string]any:
		for k, e := range v {
			collect(found, name+"."+k, e)
		}
	}
}
