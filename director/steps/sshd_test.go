package steps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
)

// realNode is a real SSH server with the files that cloud-init writes on a node, below a directory.
type realNode struct {
	dir, port, user string
}

// startNode starts the server on what the seed says: its host key, and whom it lets in.
func startNode(t *testing.T, seed hypervisor.Seed) realNode {
	t.Helper()
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		t.Skip("no SSH server: run test/lab/need.sh openssh-server")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	n := realNode{dir: t.TempDir(), user: me.Username, port: steadyPort(t)}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rules := n.writeSeed(t, seed)
	n.writePrograms(t)
	n.put(t, "cloud/instance/obj.pkl", "", 0o600)
	n.put(t, "run/cloud-init/result.json", `{"v1": {"errors": []}}`, 0o644)
	n.put(t, "etc/ssh/sshd_config", fmt.Sprintf(`ListenAddress 127.0.0.1:%s
HostKey %[2]s/etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile %[2]s/authorized_keys
Include %[2]s/etc/ssh/sshd_config.d/20-kaas-host.conf
PidFile %[2]s/sshd.pid
SetEnv PATH=%[2]s/bin:/usr/bin:/bin
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
%[3]s`, n.port, n.dir, rules), 0o644)
	n.serve(t)
	return n
}

// ports counts the ports that steadyPort gave.
var ports atomic.Int32

// steadyPort returns a free port below those that the kernel gives to connections. sshd binds its port again when it
// reloads; a port of the kernel's choice could be another connection's by then.
func steadyPort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(20000 + (os.Getpid()*64+int(ports.Add(1)))%12000)
		listener, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// put writes a file of the node.
func (n realNode) put(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(n.dir, name)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode))
	if err != nil {
		t.Fatal(err)
	}
}

// writeSeed writes the files of the seed that are for sshd, and returns the settings among them.
func (n realNode) writeSeed(t *testing.T, seed hypervisor.Seed) (rules string) {
	t.Helper()
	var doc struct {
		Keys  map[string]string                             `yaml:"ssh_keys"`
		Files []struct{ Path, Content, Permissions string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal(seed.UserData, &doc); err != nil {
		t.Fatal(err)
	}
	n.put(t, "etc/ssh/ssh_host_ed25519_key", doc.Keys["ed25519_private"], 0o600)
	for _, f := range doc.Files {
		if !strings.HasPrefix(f.Path, "/etc/ssh/") {
			continue
		}
		name := strings.Replace(f.Path, "principals/"+cloudinit.DefaultUser, "principals/"+n.user, 1)
		n.put(t, name, f.Content, 0o644)
		if strings.HasPrefix(f.Path, "/etc/ssh/sshd_config.d/") {
			rules += strings.ReplaceAll(f.Content, "/etc/ssh", n.dir+"/etc/ssh")
		}
	}
	return rules
}

// writePrograms writes what the director runs on the node. The node's paths lead below the directory.
func (n realNode) writePrograms(t *testing.T) {
	t.Helper()
	n.put(t, "bin/sudo", fmt.Sprintf(
		"#!/bin/sh\n[ \"$1 $2 $3\" = '-n sh -c' ] || exit 9\nexec sh -c \"$(printf '%%s' \"$4\" | sed "+
			"'s|/etc/ssh|%[1]s/etc/ssh|g; s|/var/lib/cloud|%[1]s/cloud|g; s|/var/lib/kaas|%[1]s/kaas|g')\"\n", n.dir,
	), 0o755)
	n.put(t, "bin/systemctl", fmt.Sprintf(
		"#!/bin/sh\n[ \"$1 $2\" = 'reload ssh' ] && kill -HUP $(cat %s/sshd.pid)\n", n.dir,
	), 0o755)
}

// serve runs sshd until the test ends, and returns when it listens.
func (n realNode) serve(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(n.dir, "etc/ssh/sshd_config"))
	messages, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening, drained := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(messages); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "Server listening") {
				select {
				case listening <- true:
				default: // it listens again after a reload
				}
			}
			t.Log(lines.Text())
		}
		close(listening)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = messages.Close() // a session that continues holds the other end
		<-drained
		_ = cmd.Wait()
	})
	if !<-listening {
		t.Fatal("sshd does not listen")
	}
}

// as returns how the node is reached with what env logs in with.
func (n realNode) as(env Env) sshNodes {
	return sshNodes{login: env.SSH().Machine, port: n.port, user: n.user}
}

func sshEnv(t *testing.T) Env {
	t.Helper()
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	return Env{
		Installation: Installation{Director: "d1", Now: time.Now},
		Clusters:     Clusters{Keys: Keys{Secrets: vault{}, Sealer: box}},
	}
}

// localMachine is a machine at the address of the tests' SSH servers.
func localMachine(id string) step.VMParams {
	return step.VMParams{
		Machine: plan.MachineSpec{ID: id, Name: "demo-" + id, Address: "127.0.0.1", MAC: "52:54:00:00:00:01"},
		Network: model.Network{CIDR: netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// born makes the machine's seed and starts its server.
func (e Env) born(t *testing.T, cluster, machine string) realNode {
	t.Helper()
	spec, err := e.vms().vmSpec(t.Context(), cluster, localMachine(machine))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SSH().trusted(t.Context(), machine, trust{Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	return startNode(t, spec.Seed)
}

// A real SSH server with the files of a node's seed lets in who has a certificate of its cluster for it, as long as
// that is good, and nobody else.
func TestCertificatesOpenOneNode(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	key, err := env.HostKey(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		machine string
		trust   trust
		now     func() time.Time
		open    bool
	}{
		"its own":           {"m1", trust{Cluster: "c1"}, time.Now, true},
		"another machine's": {"m2", trust{Cluster: "c1"}, time.Now, false},
		"another cluster's": {"m1", trust{Cluster: "c2"}, time.Now, false},
		"one that has ended": {
			"m1", trust{Cluster: "c1"}, func() time.Time { return time.Now().Add(-sshMargin - time.Minute) }, false,
		},
		"of a VM that somebody made":    {"m3", trust{Cluster: "c1", Adopted: true}, time.Now, true},
		"of another cluster's such one": {"m3", trust{Cluster: "c2", Adopted: true}, time.Now, false},
	} {
		env := env
		env.Now = tt.now
		if err := env.SSH().trusted(t.Context(), tt.machine, tt.trust); err != nil {
			t.Fatal(err)
		}
		m := localMachine(tt.machine).Machine.Row()
		out, err := n.as(env).CloudInit(t.Context(), m, key.Public)
		if tt.open != (err == nil) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// The lasting key that the director had for all nodes is offered to machines alone that know nothing else, and a
// director that never had one makes none.
func TestFormerKey(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	old, err := keyring(env.Keys).ensure(t.Context(), "d1", SecretSSH)
	if err != nil {
		t.Fatal(err)
	}
	n := env.born(t, "c1", "m1")
	if err := os.WriteFile(filepath.Join(n.dir, "authorized_keys"), []byte(old.Public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := env.HostKey(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	reach := func(machine string) error {
		_, err := n.as(env).CloudInit(t.Context(), localMachine(machine).Machine.Row(), key.Public)
		return err
	}
	if err := reach("m9"); err != nil { // nothing is known of it: it is from before
		t.Errorf("a node from before: %v", err)
	}
	if signers, err := env.SSH().Machine(t.Context(), localMachine("m1").Machine.Row()); err != nil ||
		len(signers) != 1 {
		t.Errorf("a new node is offered %d keys, %v", len(signers), err)
	}
	nodes := []plan.MachineSpec{localMachine("m1").Machine}
	if login, err := env.SSH().Play(
		t.Context(), "c1", "p/s", nodes,
	); err != nil || login.Old != "" || login.Certificate == "" {
		t.Errorf("a run on new nodes gets the former key: %t, %v", login.Old != "", err)
	}
	nodes = append(nodes, localMachine("m9").Machine)
	if login, err := env.SSH().Play(t.Context(), "c1", "p/s", nodes); err != nil || login.Old != old.Private {
		t.Errorf("a run with a node from before does not get it: %v", err)
	}
	env.Secrets = vault{}
	if err := reach("m9"); director.KindOf(err) != director.KindConflict {
		t.Errorf("a director without a former key: %v", err)
	}
}

// dying is a node whose director dies at one of the calls, before it or after it.
type dying struct {
	sshNodes
	calls, at *int
}

var errDied = errors.New("the director died")

func (d dying) step(act func() error) error {
	*d.calls++
	if *d.calls*2-1 == *d.at {
		return errDied
	}
	err := act()
	if *d.calls*2 == *d.at {
		return errDied
	}
	return err
}

func (d dying) NextHostKey(ctx context.Context, m director.Machine, hostKey string) (key string, err error) {
	err = d.step(func() (err error) { key, err = d.sshNodes.NextHostKey(ctx, m, hostKey); return err })
	return key, err
}

func (d dying) TakeHostKey(ctx context.Context, m director.Machine, hostKey, certificate string) error {
	return d.step(func() error { return d.sshNodes.TakeHostKey(ctx, m, hostKey, certificate) })
}

func (d dying) Script(ctx context.Context, m director.Machine, hostKey, script string) error {
	return d.step(func() error { return d.sshNodes.Script(ctx, m, hostKey, script) })
}

// At the first contact the node makes a host key of its own, wherever the director dies meanwhile, and what was in its
// seed is worth nothing any more.
func TestHostKeyIsRotated(t *testing.T) {
	t.Parallel()
	for at := range 9 { // four calls, before and after each, and a life without death
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			t.Parallel()
			env := sshEnv(t)
			n := env.born(t, "c1", "m1")
			given, err := env.HostKey(t.Context(), "m1")
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			env.Nodes = dying{n.as(env), &calls, &at}
			died := false
			m := localMachine("m1").Machine.Row()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			own := ""
			for tries := 0; own == ""; tries++ {
				_, own, _, err = env.vms().contact(t.Context(), m)
				if err != nil {
					died = died || errors.Is(err, errDied)
					if director.KindOf(err) == director.KindConflict && !errors.Is(err, errDied) || tries > 500 {
						t.Fatal(err)
					}
					own = ""
					<-tick.C
				}
			}
			if !died && at > 0 && at <= 2*calls {
				t.Error("it did not die")
			}
			kept, err := env.HostKey(t.Context(), "m1")
			if err != nil || own == given.Public || kept.Public != own || kept.Private != "" {
				t.Errorf("the director keeps %+v of %s, given was %s: %v", kept, own, given.Public, err)
			}
			if _, err := n.as(env).CloudInit(
				t.Context(), m, given.Public,
			); director.KindOf(err) != director.KindConflict {
				t.Errorf("the node still shows the key of its seed: %v", err)
			}
			n.wantCertificate(t, env, own)
			if key, _, err := env.nodeKey(t.Context(), "m1"); key != own || err != nil {
				t.Errorf("known_hosts gets %s: %v", key, err)
			}
			if left, err := filepath.Glob(
				filepath.Join(n.dir, "etc/ssh/ssh_host_ed25519_key.next*"),
			); err != nil || len(left) > 0 {
				t.Errorf("left on the node: %v", left)
			}
		})
	}
}

// wantCertificate wants the node to show a certificate by which a director knows its host key that knows nothing but
// the authority of the cluster. Programs that know the key alone still accept it.
func (n realNode) wantCertificate(t *testing.T, env Env, own string) {
	t.Helper()
	m := localMachine("m1").Machine.Row()
	certificate, err := n.as(env).HostCertificate(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	restored := env
	restored.Secrets = vault{{"c1", SecretSSHAuthority}: env.Secrets.(vault)[[2]string{"c1", SecretSSHAuthority}]}
	err = restored.keys().takeVouched(t.Context(), "c1", "m2", certificate)
	if director.KindOf(err) != director.KindConflict {
		t.Errorf("it is a certificate of another machine: %v", err)
	}
	if err := restored.keys().takeVouched(t.Context(), "c1", "m1", certificate); err != nil {
		t.Fatalf("the certificate %q: %v", certificate, err)
	}
	if key, err := restored.KnownHostKey(t.Context(), "m1"); err != nil || key.Public != own || key.Private != "" {
		t.Errorf("a restored director learns %+v, the key is %s: %v", key, own, err)
	}
	if out, err := n.as(restored).CloudInit(t.Context(), m, own); err != nil || out == "" {
		t.Errorf("it does not reach the node: %v", err)
	}
	n.put(t, "known_hosts", "["+m.Address+"]:"+n.port+" "+own+"\n", 0o600)
	out, _ := exec.Command(
		"ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o",
		"GlobalKnownHostsFile=none",
		"-o", "UserKnownHostsFile="+filepath.Join(n.dir, "known_hosts"), "-o", "IdentityFile=none", "-o",
		"IdentityAgent=none", "-p", n.port, "-l", n.user, m.Address, "true",
	).CombinedOutput()
	if !strings.Contains(string(out), "Permission denied") { // it is past the check of the host key
		t.Errorf("ssh with the key in known_hosts says %s", out)
	}
}

// A node without a certificate shows none. One that cannot be reached is told from it.
func TestHostCertificateIsNoneOrUnknown(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	m := localMachine("m1").Machine.Row()
	if got, err := n.as(env).HostCertificate(t.Context(), m); got != "" || err != nil {
		t.Errorf("a node shows before its first contact %q: %v", got, err)
	}
	away := n.as(env)
	away.port = steadyPort(t)
	if got, err := away.HostCertificate(t.Context(), m); got != "" || err == nil {
		t.Errorf("what does not answer shows %q", got)
	}
}

// Another host at the address is told from a node that has switched its key.
func TestRotationSeesAnotherHost(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	// the server keeps the one that was there
	if err := env.Secrets.SetSecret(t.Context(), "m1", SecretHostKey, nil); err != nil {
		t.Fatal(err)
	}
	env.Nodes = n.as(env)
	if _, _, _, err := env.vms().contact(
		t.Context(), localMachine("m1").Machine.Row(),
	); director.KindOf(err) != director.KindConflict {
		t.Errorf("before the rotation: %v", err)
	}
	if err := keyring(env.Keys).write(
		t.Context(), "m1", SecretNextHostKey, []byte(otherKey(t)),
	); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := env.vms().contact(
		t.Context(), localMachine("m1").Machine.Row(),
	); director.KindOf(err) != director.KindConflict {
		t.Errorf("in the middle of it: %v", err)
	}
}

func otherKey(t *testing.T) string {
	t.Helper()
	key, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	return key.Public
}

// A node that has booted is asked for once more without a seed; the next VM of the machine gets a seed with a fresh
// key.
func TestSeedOfTheNextVM(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	if err := keyring(env.Keys).set(
		t.Context(), "m1", SecretHostKey, cloudinit.HostKey{Public: otherKey(t)},
	); err != nil {
		t.Fatal(err)
	}
	spec, err := env.vms().vmSpec(t.Context(), "c1", localMachine("m1"))
	if err != nil || !spec.Seed.Empty() {
		t.Fatalf("a VM that has booted is given a seed, or %v", err)
	}
	if err := env.disown(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	if spec, err = env.vms().vmSpec(t.Context(), "c1", localMachine("m1")); err != nil || spec.Seed.Empty() {
		t.Fatalf("the next VM is given no seed: %v", err)
	}
	if key, err := env.HostKey(t.Context(), "m1"); err != nil || key.Private == "" {
		t.Errorf("its host key: %v", err)
	}
}
