package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/backup/s3test"
)

const (
	server     = "https://172.30.0.1:8443"
	configFile = "etc/director.yaml" // of the director
)

type suite struct {
	t        *testing.T
	root     string // of the repository
	dir      string // everything that the test makes
	bundle   string
	image    string
	sum      string   // of the image
	minors   []string // of Kubernetes, whose documents were written
	masters  int
	workers  int
	equipped bool   // the workers have all that a document can give to VMs
	drilled  bool   // there is a network of drills
	spec     string // lines of the cluster's spec besides those of the demo's documents
	pool     string // lines of its pool of workers besides those
	brief    bool   // what the cluster is made of ends within the hour
	certs    int    // seconds that certificates of nodes are good for; 0 is the default
	hosts    []host // that the VMs are on; nil for the one that the demo's documents name
	director *exec.Cmd
	log      *os.File
	server   string         // the URL of the director
	hostname string         // of the machine that the director is on; empty for the lab's own
	s3       *s3test.Server // nil before a part needs it
}

func need(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: run test/e2e/e2e.sh", name)
	}
	return v
}

// The two releases, by what begins the names of their variables behind KAAS_E2E_.
const (
	newer = ""
	older = "OLD_"
)

// begin sets the stage with the documents of a release. wanted says how many masters there are to be.
func begin(t *testing.T, release string, wanted suite) *suite {
	t.Helper()
	s := &wanted
	s.t, s.root, s.dir = t, need(t, "KAAS_E2E_ROOT"), need(t, "KAAS_E2E_DIR")
	s.masters, s.workers, s.server = max(s.masters, 1), max(s.workers, 1), server
	if s.masters > 1 {
		for _, h := range strings.Fields(need(t, "KAAS_E2E_HOSTS")) {
			name, uri, _ := strings.Cut(h, "=")
			s.hosts = append(s.hosts, host{name, uri})
		}
	}
	s.use(t, release)
	t.Cleanup(s.killDirector)
	return s
}

// use writes the documents of a release.
func (s *suite) use(t *testing.T, release string) {
	t.Helper()
	s.bundle, s.image = need(t, "KAAS_E2E_"+release+"BUNDLE"), need(t, "KAAS_E2E_"+release+"IMAGE")
	s.writeFiles()
}

// part is one act of a play; each stands on those before it.
type part struct {
	name string
	run  func(*testing.T)
}

// runParts runs the parts until one fails. KAAS_E2E_FROM names the part to begin with, on what an earlier run of the
// same play has left, and KAAS_E2E_LEAVE_OUT is an expression for the beginnings of those that are left out, where
// there is no time for the whole play.
func (s *suite) runParts(t *testing.T, parts []part) {
	if from := os.Getenv("KAAS_E2E_FROM"); from != "" {
		i := slices.IndexFunc(parts, func(p part) bool { return strings.HasPrefix(p.name, from) })
		if i < 0 {
			t.Fatalf("KAAS_E2E_FROM: no part of this play begins with %q", from)
		}
		parts = parts[i:]
		s.startDirector(t)
		left := s.newestPlan(t)
		if out, code := s.run(t, time.Minute, s.root+"/bin/directorctl", "cancel", left, "--now"); code == 0 {
			t.Logf("the plan that the earlier run has left is given up: %s", out)
		}
		s.run(t, 10*time.Minute, s.root+"/bin/directorctl", "follow", left) // to its end
	}
	for _, p := range parts {
		if left := os.Getenv(
			"KAAS_E2E_LEAVE_OUT",
		); left != "" && regexp.MustCompile("^(?:"+left+")").MatchString(p.name) {
			p.run = func(t *testing.T) { t.Skip("KAAS_E2E_LEAVE_OUT leaves it out") }
		}
		if !t.Run(p.name, p.run) {
			s.tellWhatHappened()
			t.FailNow()
		}
	}
}

func (s *suite) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func (s *suite) write(name, text string, mode os.FileMode) string {
	s.t.Helper()
	p := s.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), mode)); err != nil {
		s.t.Fatal(err)
	}
	return p
}

const password = "a password for tests only"

// doors is what the documents of the suite may name: the sockets of the further hosts, bundles and images, and who
// signed them.
func (s *suite) doors() string {
	sockets := []string{}
	for _, h := range s.hosts {
		if _, socket, found := strings.Cut(h.uri, "?socket="); found {
			sockets = append(sockets, strconv.Quote(filepath.Dir(socket)))
		}
	}
	var bundles, images, keys []string
	for _, release := range []string{"", "OLD_"} { // upgrades begin with the old one
		if bundle, image := os.Getenv("KAAS_E2E_"+release+"BUNDLE"),
			os.Getenv("KAAS_E2E_"+release+"IMAGE"); bundle != "" && image != "" {
			bundles, images = append(bundles, strconv.Quote(filepath.Dir(bundle))),
				append(images, strconv.Quote(filepath.Dir(image)))
			keys = append(keys, strconv.Quote(bundle+".pub"), strconv.Quote(image+".pub"))
		}
	}
	list := func(key string, of []string) string { return key + ": [" + strings.Join(of, ", ") + "]\n" }
	return list("providerSockets", sockets) + list("bundleDirs", bundles) + list("imageDirs", images) +
		list("trustedKeys", keys) + list("backupDirs", []string{strconv.Quote(s.path("backups"))}) +
		list("providerNetworks", []string{"10.0.0.0/8", "172.16.0.0/12", "127.0.0.0/8"}) // step-ca is on loopback
}

func (s *suite) writeFiles() {
	s.write("admin.password", password+"\n", 0o600)
	s.write(configFile, fmt.Sprintf("stateDir: %s\nlisten: 172.30.0.1:8443\naddress: "+
		"172.30.0.1\nadminPasswordFile: %s\nnodeShells: 1\n%s",
		s.path("state"), s.path("admin.password"), s.doors()), 0o644)
	sum, err := os.ReadFile(s.image + ".sha256")
	if err != nil {
		s.t.Fatal(err)
	}
	release, err := os.ReadFile(filepath.Join(s.bundle, "release.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^ *kubernetes: "?(v[0-9.]+)`).FindStringSubmatch(string(release))[1]
	s.sum = strings.Fields(string(sum))[0]
	minor := strings.TrimPrefix(version[:strings.LastIndexByte(version, '.')], "v")
	if !slices.Contains(s.minors, minor) {
		s.minors = append(s.minors, minor)
	}
	fill := strings.NewReplacer(
		"@BUNDLE@", s.bundle, "@IMAGE@", s.image, "@SHA256@", s.sum, "@KUBERNETES@", version, "k8s-1.37", "k8s-"+minor,
	)
	examples, err := filepath.Glob(filepath.Join(s.root, "docs/examples/demo/*.yaml*"))
	if err != nil || len(examples) < 5 {
		s.t.Fatalf("%d examples, %v", len(examples), err)
	}
	for _, e := range examples {
		text, err := os.ReadFile(e)
		if err != nil {
			s.t.Fatal(err)
		}
		s.write("models/"+strings.TrimSuffix(filepath.Base(e), ".in"), s.sized(fill.Replace(string(text))), 0o644)
	}
	if s.equipped {
		s.write("models/storage.yaml", storage, 0o644)
	}
}

// storage is the network of the second adapter of workers that are equipped, and equipment what they have besides.
const (
	storage = `apiVersion: kaas/v1
kind: Network
metadata: {name: storage}
spec:
  provider: lab
  mode: isolated
  cidr: 10.89.0.0/24
  gateway: 10.89.0.1
  pool:
    ranges: [10.89.0.8/29, 10.89.0.32-10.89.0.39]
    exclude: [10.89.0.8-10.89.0.14]
`
	equipment = `      dataDisk: 2GiB
      persist: [/var/lib/kept]
      interfaces: [{role: storage, network: storage}]
      hostAliases: [{address: 10.89.0.1, names: [nfs, nfs.storage]}]
      scripts:
        - name: tune
          content: |
            echo vm.max_map_count=262143 > /etc/sysctl.d/95-tune.conf && sysctl -p /etc/sysctl.d/95-tune.conf
            mkdir -p /var/lib/kept && date > /var/lib/kept/tuned
      health: {command: systemctl is-active --quiet containerd, timeout: 5m}
      reserved: {system: {memory: 192MiB}}
`
)

// strategy is that of upgrades; empty for the documents' own.
var strategy = os.Getenv("KAAS_E2E_STRATEGY")

// emulated reports whether the guests are VMs whose processors are emulated.
func emulated() bool { return os.Getenv("KAAS_E2E_GUESTS") == "tcg" }

var slowEtcd = regexp.MustCompile(`(?m)^  # The emulated hosts.*\n  etcd:\n(?:    .*\n)+`)

// sized gives the demo's cluster as many nodes as the play wants: several masters behind a virtual address, on several
// hosts that share a bridge.
func (s *suite) sized(text string) string {
	if !emulated() { // only there etcd needs more time than it takes by itself
		text = slowEtcd.ReplaceAllString(text, "")
	}
	text = strings.Replace(
		text, "    - name: worker\n      count: 1\n", fmt.Sprintf("    - name: worker\n      count: %d\n", s.workers),
		1,
	)
	var care []string
	if strategy != "" {
		care = append(care, "strategy: "+strategy)
	}
	if os.Getenv("KAAS_E2E_GUESTS") == "container" { // libvirt takes no snapshots of such guests while they run
		care = append(care, "rollback: recreate")
	}
	if len(care) > 0 {
		maintenance := "\n  maintenance: {" + strings.Join(care, ", ") + "}\n  masters:\n"
		text = strings.Replace(text, "\n  masters:\n", maintenance, 1)
	}
	if s.equipped {
		text = strings.Replace(text, "      disk: 30GiB\n", "      disk: 30GiB\n"+equipment, 1)
	}
	if s.pool != "" {
		text = strings.Replace(text, "      disk: 30GiB\n", "      disk: 30GiB\n"+s.pool, 1)
	}
	if s.certs > 0 {
		vars := fmt.Sprintf("\n  vars: {certificate_seconds: %d}\n  masters:\n", s.certs)
		text = strings.Replace(text, "\n  masters:\n", vars, 1)
	}
	if s.spec != "" {
		text = strings.Replace(text, "\n  masters:\n", "\n"+s.spec+"  masters:\n", 1)
	}
	if s.masters == 1 {
		return text
	}
	var hosts strings.Builder
	for _, h := range s.hosts {
		fmt.Fprintf(&hosts, "      - {name: %s, uri: %q, pool: default}\n", h.name, h.uri)
	}
	return strings.NewReplacer(
		"  masters:\n    count: 1\n    cpus: 2\n    memory: 4GiB",
		fmt.Sprintf("  api: {vip: %s}\n  masters:\n    count: %d\n    cpus: 2\n    memory: 3GiB", vip, s.masters),
		"      - name: lab\n        uri: qemu:///system\n        pool: default\n", hosts.String(),
		"  mode: open\n", "  mode: bridge\n  bridge: "+bridge+"\n",
	).Replace(text)
}

func (s *suite) masterNames() []string { return numbered("demo-master-", s.masters) }

// nodeNames are the nodes that the documents ask for.
func (s *suite) nodeNames() []string {
	return append(s.masterNames(), numbered("demo-worker-", s.workers)...)
}

func numbered(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s%d", prefix, i+1))
	}
	return names
}

// run executes a command and returns its output and exit code.
func (s *suite) run(t *testing.T, limit time.Duration, name string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DIRECTOR_CONFIG="+s.path("cli.yaml"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func (s *suite) ok(t *testing.T, limit time.Duration, name string, args ...string) string {
	t.Helper()
	out, code := s.run(t, limit, name, args...)
	if code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s", filepath.Base(name), strings.Join(args, " "), code, out)
	}
	return out
}

func (s *suite) ctl(t *testing.T, args ...string) string {
	t.Helper()
	return s.ok(t, 90*time.Minute, s.root+"/bin/directorctl", args...)
}

// refused runs the CLI and wants it to fail with all of the words.
func (s *suite) refused(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, code := s.run(t, 20*time.Minute, s.root+"/bin/directorctl", args...)
	if code == 0 {
		t.Errorf("%v was accepted:\n%s", args, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("%v: the error does not say %q:\n%s", args, w, out)
		}
	}
}

func (s *suite) startDirector(t *testing.T) {
	t.Helper()
	var err error
	if s.log, err = os.OpenFile(s.path("director.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{s.root + "/bin/director", "-config", s.path(configFile)}
	if s.hostname != "" {
		command = append([]string{"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, s.hostname}, command...)
	}
	s.director = exec.Command(command[0], command[1:]...)
	s.director.Stdout, s.director.Stderr = s.log, s.log
	if err := s.director.Start(); err != nil {
		t.Fatal(err)
	}
	s.await(t, time.Minute, "the director answers", func() bool {
		_, code := s.run(
			t, 5*time.Second, "curl", "-fsS", "--cacert", s.path("state/tls/ca.crt"), s.server+"/api/v1/readyz",
		)
		return code == 0
	})
}

// killDirector ends the process as a power cut would, and waits for it.
func (s *suite) killDirector() {
	if s.director == nil {
		return
	}
	_ = s.director.Process.Kill()
	_ = s.director.Wait()
	_ = s.log.Close()
	s.director = nil
}

// await polls a condition of the outside world.
func (s *suite) await(t *testing.T, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

// variant applies the demo's documents with changes, under other names where they would collide.
func (s *suite) variant(name string, replace ...string) string {
	var text strings.Builder
	files, err := filepath.Glob(s.path("models/*.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			s.t.Fatal(err)
		}
		text.WriteString("---\n")
		text.Write(b)
	}
	return s.write("variants/"+name+".yaml", strings.NewReplacer(replace...).Replace(text.String()), 0o644)
}

type planView struct {
	ID     string     `json:"id"`
	Status string     `json:"status"`
	Steps  []stepView `json:"steps"`
}

type stepView struct {
	ID         string    `json:"id"`
	Status     string    `json:"status"`
	Attempt    int       `json:"attempt"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	Message    string    `json:"message"`
}

func (s *suite) plan(t *testing.T, id string) planView {
	t.Helper()
	var v planView
	if err := json.Unmarshal([]byte(s.ctl(t, "plans", "show", id, "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// newest returns the id of the first plan of a list, or "".
func newest(list []byte) string {
	var v struct {
		Items []planView `json:"items"`
	}
	if json.Unmarshal(list, &v) != nil || len(v.Items) == 0 {
		return ""
	}
	return v.Items[0].ID
}

func (s *suite) newestPlan(t *testing.T) string {
	t.Helper()
	id := newest([]byte(s.ctl(t, "plans", "list", "--limit", "1", "-o", "json")))
	if id == "" {
		t.Fatal("there is no plan")
	}
	return id
}

func (s *suite) logSteps(t *testing.T, v planView) {
	t.Helper()
	for _, st := range v.Steps {
		t.Logf("%-32s %8.1f s  attempt %d", st.ID, st.FinishedAt.Sub(st.StartedAt).Seconds(), st.Attempt)
	}
}

// processes returns the ids of processes of this lab whose command line has the word as its program.
func processes(word string) []string {
	var out []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, arg := range bytes.SplitN(b, []byte{0}, 4) {
			if filepath.Base(string(arg)) == word {
				out = append(out, filepath.Base(filepath.Dir(f)))
				break
			}
		}
	}
	return out
}

func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, code := s.tryKubectl(t, args...)
	if code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func (s *suite) tryKubectl(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return s.run(
		t, 12*time.Minute, filepath.Join(s.bundle, "bin/kubectl"),
		append([]string{"--kubeconfig", s.path("kubeconfig")}, args...)...,
	)
}

// onNode runs a shell command on a node as root and returns what it prints.
func (s *suite) onNode(t *testing.T, node, command string) string {
	t.Helper()
	out := s.ansible(t, node, "ansible.builtin.shell", command)
	_, said, ok := strings.Cut(out, "(stdout) ")
	if !ok {
		t.Fatalf("%s on %s: %s", command, node, out)
	}
	said, _, _ = strings.Cut(said, " (stderr) ") // ansible puts it behind, on the same line
	return strings.ReplaceAll(strings.TrimSpace(said), `\n`, "\n")
}

// ansible runs a module on a node as root and returns what it says on one line.
func (s *suite) ansible(t *testing.T, node, module, arguments string) string {
	t.Helper()
	dir := s.path("inventory")
	s.ctl(t, "inventory", "demo", "export", "--dir", dir, "--secrets", "--password-file", s.path("admin.password"))
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}()
	return s.ok(t, 5*time.Minute, "env", "ANSIBLE_CONFIG="+s.root+"/playbooks/ansible.cfg",
		"ansible", node, "-o", "-i", filepath.Join(dir, "hosts.ini"), "--private-key", filepath.Join(dir, "id_ed25519"),
		"--become", "-m", module, "-a", arguments)
}

// host is a hypervisor of the lab.
type host struct{ name, uri string }

func (s *suite) allHosts() []host {
	if s.hosts == nil {
		return []host{{"lab", "qemu:///system"}}
	}
	return s.hosts
}

// virsh runs a command on every host and returns what it says, without empty lines.
func (s *suite) virsh(t *testing.T, args ...string) string {
	t.Helper()
	var out []string
	for _, h := range s.allHosts() {
		for line := range strings.Lines(
			s.ok(t, time.Minute, "virsh", append([]string{"-q", "-c", h.uri}, args...)...),
		) {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
	}
	return strings.Join(out, "\n")
}

// domains returns the names of the host's VMs, or of those that run.
func (s *suite) domains(t *testing.T, h host, which ...string) []string {
	t.Helper()
	return strings.Fields(
		s.ok(t, time.Minute, "virsh", append([]string{"-q", "-c", h.uri, "list", "--name"}, which...)...),
	)
}

// vm runs a command of virsh on the VM, on the host that it is on.
func (s *suite) vm(t *testing.T, verb, name string, args ...string) string {
	t.Helper()
	for _, h := range s.allHosts() {
		if slices.Contains(s.domains(t, h, "--all"), name) {
			return s.ok(t, time.Minute, "virsh", append([]string{"-q", "-c", h.uri, verb, name}, args...)...)
		}
	}
	t.Fatalf("no host has the VM %s", name)
	return ""
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// tellWhatHappened prints what a person would look at first.
func (s *suite) tellWhatHappened() {
	s.t.Log("what a person would look at first")
	if b, err := os.ReadFile(s.path("director.log")); err == nil {
		requests := regexp.MustCompile(`(?m)^.* msg=request .*\n`)
		s.t.Logf("the director's log without requests ends with:\n%s", tail(requests.ReplaceAll(b, nil), 6000))
	}
	if s.director != nil {
		if out, code := s.run(
			s.t, time.Minute, s.root+"/bin/directorctl", "plans", "list", "--limit", "1", "-o", "json",
		); code == 0 {
			if id := newest([]byte(out)); id != "" {
				out, _ = s.run(s.t, time.Minute, s.root+"/bin/directorctl", "logs", id, "--failed")
				s.t.Logf("failed steps of plan %s:\n%s", id, tail([]byte(out), 8000))
			}
		}
	}
}
