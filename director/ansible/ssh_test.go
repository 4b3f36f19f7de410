package ansible_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/pki"
)

// sshd is a real SSH server on the loopback with a user that may log in.
type sshd struct {
	port            int
	user            string
	hostKey, client []byte // client: its private key
	dir             string // with ca, the authority that it trusts for the principal cluster-c1
}

func keygen(t *testing.T, dir, name string) (private, public []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if out, err := osexec.Command(
		"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path,
	).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	public, err = os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

func startSSHD(t *testing.T) sshd {
	t.Helper()
	need(t, "openssh-server", "openssh-client")
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	_, hostKey := keygen(t, dir, "host")
	client, authorized := keygen(t, dir, "client")
	write(t, filepath.Join(dir, "authorized"), string(authorized))
	keygen(t, dir, "ca")
	write(t, filepath.Join(dir, "principals"), "cluster-c1\nmachine-m1\n")
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The server cannot say which port it got, so it is given one that was free.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	config := filepath.Join(dir, "sshd_config")
	write(t, config, fmt.Sprintf(`
ListenAddress 127.0.0.1:%d
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/authorized
TrustedUserCAKeys %[2]s/ca.pub
AuthorizedPrincipalsFile %[2]s/principals
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
`, port, dir))
	cmd := osexec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config)
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
				listening <- true
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
	return sshd{port: port, user: me.Username, hostKey: hostKey, client: client, dir: dir}
}

// certificate returns a key with a certificate of the server's authority.
func (s sshd) certificate(t *testing.T, principal string) (private, certificate []byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "ca"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.SSHAuthority{Private: director.Secret(text)}.Issue(
		pki.SSHUser{ID: "test", Principals: []string{principal}, Until: time.Now().Add(time.Hour)}, time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(c.Private.Reveal()), []byte(c.Certificate)
}

// remote returns a play on the machine that sshd pretends to be.
func (b *bundle) remote(t *testing.T, s sshd, playbook string) ansible.Play {
	t.Helper()
	p := b.local(t, playbook)
	p.Inventory = map[string][]byte{"hosts.ini": fmt.Appendf(nil,
		"demo-worker-1 ansible_host=127.0.0.1 ansible_port=%d ansible_python_interpreter=/usr/bin/python3\n", s.port)}
	p.SSHKey, p.User, p.Limit = s.client, s.user, []string{"demo-worker-1"}
	p.KnownHosts = fmt.Appendf(nil, "[127.0.0.1]:%d %s", s.port, s.hostKey)
	p.Timeout = 5 * time.Minute
	return p
}

const ping = "- hosts: all\n  gather_facts: false\n  tasks:\n    - name: Ping\n      ansible.builtin.ping:\n"

func TestRealSSH(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	dir := t.TempDir()
	other, otherPublic := keygen(t, dir, "other")
	tests := map[string]struct {
		change func(*ansible.Play)
		class  ansible.Class
		person bool
		msg    string
	}{
		"all is well": {func(*ansible.Play) {}, "", false, ""},
		"another host key": {
			func(p *ansible.Play) { p.KnownHosts = fmt.Appendf(nil, "[127.0.0.1]:%d %s", s.port, otherPublic) },
			ansible.ClassUnreachable, true, "does not show the SSH host key that the director gave it",
		},
		"a host key that is not known": {
			func(p *ansible.Play) { p.KnownHosts = nil }, ansible.ClassUnreachable, true,
			"does not show the SSH host key",
		},
		"another client key": {
			func(p *ansible.Play) { p.SSHKey = other }, ansible.ClassUnreachable, false,
			"does not accept the director's SSH key",
		},
		"a certificate": {
			func(p *ansible.Play) { p.SSHKey, p.SSHCertificate = s.certificate(t, "cluster-c1") }, "", false, "",
		},
		"a certificate of another cluster": {
			func(p *ansible.Play) { p.SSHKey, p.SSHCertificate = s.certificate(t, "cluster-c2") },
			ansible.ClassUnreachable, false, "does not accept the director's SSH key",
		},
		"a host that takes the former key alone": {
			func(p *ansible.Play) {
				p.SSHKey, p.SSHCertificate = s.certificate(t, "cluster-c2")
				p.OldSSHKey = s.client
			}, "", false, "",
		},
		"nobody listens": {
			func(p *ansible.Play) {
				p.Inventory["hosts.ini"] = []byte("demo-worker-1 ansible_host=127.0.0.1 ansible_port=1\n")
			},
			ansible.ClassUnreachable, false, "Connection refused (the machine does not answer on its SSH port)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupReal(t)
			p := b.remote(t, s, ping)
			tt.change(&p)
			res, err := b.Play(t.Context(), p)
			// If ssh takes more than a millisecond to end while ansible-core writes to it, its reason is lost: ask
			// again.
			for try := 1; try < 20 && err != nil && strings.Contains(shown(err), "[Errno 32]"); try++ {
				res, err = b.Play(t.Context(), p)
			}
			switch {
			case tt.class == "" && err != nil:
				t.Fatal(err)
			case tt.class == "":
				if res.Stats["demo-worker-1"].OK != 1 {
					t.Errorf("result %+v", res)
				}
			default:
				question, person := ansible.Question(err)
				if playError(t, err).Class != tt.class || director.KindOf(err) != director.KindUnavailable ||
					person != tt.person {
					t.Errorf("got %v, question %q", err, question)
				}
				if !strings.HasPrefix(shown(err), "host demo-worker-1: task 'Ping' could not reach the machine: ") ||
					!strings.Contains(shown(err), tt.msg) {
					t.Errorf("message %q", shown(err))
				}
			}
			b.clean(t)
			for pid, p := range processes(t) {
				if strings.Contains(p, b.state) {
					t.Errorf("process %s is left: %s", pid, p)
				}
			}
		})
	}
}

// processes returns the command line and the environment of each process, as far as they can be read.
func processes(t *testing.T) map[string]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, dir := range dirs {
		argv, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		all[filepath.Base(dir)] = string(bytes.ReplaceAll(append(argv, env...), []byte{0}, []byte{'\n'}))
	}
	return all
}

// While modules run on the other side of SSH, the secret is in no process' arguments or environment; when the run is
// cancelled, nothing of it stays, not even ssh's master connection.
func TestRealSecretsAndCancel(t *testing.T) {
	t.Parallel()
	s := startSSHD(t)
	b := setupReal(t)
	dir := t.TempDir()
	gate := fifo(t)
	p := b.remote(t, s, `
- hosts: all
  gather_facts: false
  tasks:
    - name: Use the secret
      ansible.builtin.copy: {content: "{{ password }}", dest: "`+dir+`/used", mode: "0600"}
      no_log: true
    - name: Hold
      ansible.builtin.slurp: {src: "`+gate+`"}
      vars: {x: "{{ password }}"}
`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := b.begin(ctx, p)
	b.await(t, func(e ansible.Event) bool { return e.Type == ansible.TaskStart && e.Task == "Hold" })
	// Opening the other end of the gate waits until the module is there.
	opened := make(chan *os.File, 1)
	go func() {
		f, err := os.OpenFile(gate, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
		}
		opened <- f
	}()
	var held *os.File
	select {
	case held = <-opened:
	case o := <-done:
		t.Fatalf("the run ended: %v", o.err)
	}
	found, masters := 0, 0
	master := regexp.MustCompile(`^ssh: \S+ \[mux\]`)
	for pid, text := range processes(t) {
		if strings.Contains(text, canary) {
			t.Errorf("the secret is seen in process %s", pid)
		}
		if strings.Contains(text, b.state) {
			found++
		}
		if master.MatchString(text) {
			masters++
		}
	}
	if found < 2 || masters < 1 {
		t.Errorf("only %d processes of the run and %d master connections were looked at", found, masters)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "used")); string(data) != canary {
		t.Errorf("the secret did not arrive: %q %v", data, err)
	}
	sockets := controlSockets(t, b)
	cancel()
	o := <-done
	held.Close()
	if playError(t, o.err).Class != ansible.ClassCancelled ||
		!strings.Contains(shown(o.err), "waiting for host demo-worker-1") {
		t.Errorf("got %v", o.err)
	}
	for pid, text := range processes(t) {
		if strings.Contains(text, b.state) || strings.Contains(text, "ssh: "+sockets) {
			t.Errorf("process %s is left: %s", pid, text)
		}
	}
	if _, err := os.Stat(sockets); err == nil {
		t.Errorf("%s is left", sockets)
	}
	noCanary(t, b, o.err, o.res)
	b.clean(t)
}

// controlSockets returns the directory of the run's control sockets and fails the test if there is none in it.
func controlSockets(t *testing.T, b *bundle) string {
	t.Helper()
	for _, text := range processes(t) {
		if !strings.Contains(text, "KAAS_RUN="+b.state) {
			continue
		}
		for line := range strings.Lines(text) {
			if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "ANSIBLE_SSH_CONTROL_PATH_DIR="); ok {
				if sockets, err := os.ReadDir(dir); err != nil || len(sockets) != 1 {
					t.Errorf("control sockets: %v %v", sockets, err)
				}
				return dir
			}
		}
	}
	t.Error("no process of the run names the control sockets")
	return "none"
}
