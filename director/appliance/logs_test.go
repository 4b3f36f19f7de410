package appliance

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/syslog/syslogtest"
)

// ownJournal is a systemd-journald with its own journal, in a mount namespace. It ends with the test.
type ownJournal struct {
	dir string
	pid string
}

func startJournal(t *testing.T) ownJournal {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"run/systemd/journal", "log/journal"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const script = `mount --bind "$0/run" /run && mount --bind "$0/log" /var/log && exec /lib/systemd/systemd-journald`
	cmd := exec.CommandContext(
		context.WithoutCancel(t.Context()), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, dir,
	)
	begin(t, cmd, t.Output())
	j := ownJournal{dir: dir, pid: strconv.Itoa(cmd.Process.Pid)}
	until(t, "journald listens", func() bool { return j.write("it begins") == nil })
	return j
}

// begin starts a program that ends with the test.
func begin(t *testing.T, cmd *exec.Cmd, out io.Writer) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it may have been waited for
	})
}

// until waits for what is looked at.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(2 * time.Minute); !is(); <-look.C {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// write has an SSH server write a message into the journal.
func (j ownJournal) write(text string) error {
	conn, err := net.Dial("unixgram", filepath.Join(j.dir, "run/systemd/journal/socket"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PRIORITY=6\nSYSLOG_FACILITY=4\nSYSLOG_IDENTIFIER=sshd\nMESSAGE=%s\n", text)
	return err
}

// rsyslogd runs it where the journal is. stop ends it as its unit does.
func (j ownJournal) rsyslogd(t *testing.T, p Place) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(
		context.WithoutCancel(t.Context()), "nsenter", "--target", j.pid, "--user", "--mount", "--preserve-credentials",
		"/usr/sbin/rsyslogd", "-n", "-iNONE", "-f", p.etc(logsConfig),
	)
	begin(t, cmd, t.Output())
	return func() {
		t.Helper()
		began := time.Now()
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("rsyslogd: %v", err)
		}
		_ = cmd.Wait() // it was killed
		t.Logf("rsyslogd has ended after %s", time.Since(began))
	}
}

// logServer takes messages of who shows a certificate for syslogtest.Peer.
type logServer struct {
	address string
	lines   chan string // messages
	ended   chan int    // bytes of each connection, when it ends
	stop    func()
}

// startServer starts a log server with the certificate of a name. use is what the certificate is for.
func startServer(t *testing.T, at string, ca *syslogtest.CA, signer *syslogtest.CA, name string,
	use x509.ExtKeyUsage,
) logServer {
	t.Helper()
	cert, key := signer.Issue(t, name, use)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := logServer{address: l.Addr().String(), lines: make(chan string, 10000), ended: make(chan int, 100)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.stop = func() { cancel(); _ = l.Close() }
	t.Cleanup(s.stop)
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(c tls.ConnectionState) error {
			if c.Version != tls.VersionTLS12 {
				return fmt.Errorf("TLS %#x hides the end of the connection from rsyslogd", c.Version)
			}
			return c.PeerCertificates[0].VerifyHostname(syslogtest.Peer)
		},
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			go s.take(tls.Server(conn, conf))
		}
	}()
	return s
}

// take reads messages whose length is before them (RFC 5425).
func (s logServer) take(conn net.Conn) {
	defer conn.Close()
	r, all := bufio.NewReader(conn), 0
	defer func() { s.ended <- all }()
	for {
		head, err := r.ReadString(' ')
		all += len(head)
		n, wrong := strconv.Atoi(strings.TrimSuffix(head, " "))
		if err != nil || wrong != nil || n > 1<<20 {
			return
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(r, text); err != nil {
			return
		}
		all += n
		s.lines <- string(text)
	}
}

// gets waits for a message of the SSH server with the text, and returns it with the texts before it.
func (s logServer) gets(t *testing.T, text string) (line string, before []string) {
	t.Helper()
	end := time.After(2 * time.Minute)
	for {
		select {
		case line := <-s.lines:
			if strings.HasSuffix(line, "- "+text) {
				return line, before
			}
			before = append(before, line)
		case <-end:
			t.Fatalf("%q did not arrive, but %q", text, before)
		}
	}
}

// sending is an appliance that sends its journal to the server at an address.
func sending(t *testing.T, address string, ca *syslogtest.CA) (Place, Setup) {
	t.Helper()
	p := somewhere(t)
	s, err := Read(good())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Issue(t, syslogtest.Peer, x509.ExtKeyUsageClientAuth)
	files(t, p, map[string]string{
		"etc/logs/ca.crt": string(ca.PEM), "etc/logs/c.crt": string(cert), "etc/logs/c.key": string(key),
		OwnConfig: "forks: 3\nauditSyslog:\n  address: " + address + "\n  serverName: localhost\n  journal: true\n" +
			"  caFile: " + p.data("etc/logs/ca.crt") + "\n  certFile: " + p.data("etc/logs/c.crt") + "\n" +
			"  keyFile: " + p.data("etc/logs/c.key") + "\n",
	})
	if err := p.WriteLogs(s); err != nil {
		t.Fatal(err)
	}
	return p, s
}

// The journal reaches a log server that knows the appliance by its certificate, also what was written while rsyslogd
// did not run, and while the server was away.
func TestJournalIsSent(t *testing.T) {
	t.Parallel()
	j, ca := startJournal(t), syslogtest.NewCA(t)
	server := startServer(t, "127.0.0.1:0", ca, ca, "localhost", x509.ExtKeyUsageServerAuth)
	p, _ := sending(t, server.address, ca)
	checked := exec.CommandContext(t.Context(), "/usr/sbin/rsyslogd", "-N1", "-f", p.etc(logsConfig))
	if out, err := checked.CombinedOutput(); err != nil || strings.Contains(string(out), "rror") {
		t.Fatalf("rsyslogd does not take the configuration: %v\n%s", err, out)
	}
	stop := j.rsyslogd(t, p)
	until(t, "the first message arrives", func() bool {
		if err := j.write("is anyone there?"); err != nil {
			t.Fatal(err)
		}
		return len(server.lines) > 0
	})
	say := func(text string) {
		t.Helper()
		if err := j.write(text); err != nil {
			t.Fatal(err)
		}
	}
	say("Accepted publickey for admin")
	line, _ := server.gets(t, "Accepted publickey for admin")
	want := regexp.MustCompile(`^<38>1 \d+-\S+T\S+ director\.example\.org sshd \d+ - - Accepted publickey for admin$`)
	if !want.MatchString(line) {
		t.Errorf("got %q", line)
	}
	stop()
	say("while rsyslogd is stopped")
	stop = j.rsyslogd(t, p)
	server.gets(t, "while rsyslogd is stopped")
	server.stop()
	<-server.ended
	const waiting = 1000
	for i := range waiting {
		say(fmt.Sprintf("while the server is away: %d", i))
	}
	stop()
	say("the last one")
	stop = j.rsyslogd(t, p)
	server = startServer(t, server.address, ca, ca, "localhost", x509.ExtKeyUsageServerAuth)
	_, before := server.gets(t, "the last one")
	next := 0
	for _, line := range before {
		if strings.HasSuffix(line, fmt.Sprintf("while the server is away: %d", next)) {
			next++
		}
	}
	if next != waiting {
		t.Errorf("message %d was lost, or is not in order; %d have arrived", next, len(before))
	}
	stop()
}

// A server that is not the one of the settings gets nothing.
func TestJournalOfAnotherServer(t *testing.T) {
	t.Parallel()
	j, ca, other := startJournal(t), syslogtest.NewCA(t), syslogtest.NewCA(t)
	for what, c := range map[string]struct {
		signer *syslogtest.CA
		name   string
		use    x509.ExtKeyUsage
	}{
		"of another name":      {ca, "other.example.org", x509.ExtKeyUsageServerAuth},
		"of another authority": {other, "localhost", x509.ExtKeyUsageServerAuth},
		"of a client":          {ca, "localhost", x509.ExtKeyUsageClientAuth},
	} {
		server := startServer(t, "127.0.0.1:0", ca, c.signer, c.name, c.use)
		p, _ := sending(t, server.address, ca)
		stop := j.rsyslogd(t, p)
		n := -1
		until(t, "it tries a server with a certificate "+what, func() bool {
			if err := j.write("a secret"); err != nil {
				t.Fatal(err)
			}
			select {
			case n = <-server.ended:
			default:
			}
			return n >= 0
		})
		stop()
		if n != 0 || len(server.lines) != 0 {
			t.Errorf("a server with a certificate %s got %d bytes", what, n)
		}
	}
}

func TestWriteLogs(t *testing.T) {
	t.Parallel()
	ca := syslogtest.NewCA(t)
	p, s := sending(t, "logs.example.org", ca)
	config := content(t, Place{Data: p.Root}, "etc/"+logsConfig)["etc/"+logsConfig]
	for _, line := range []string{`target="logs.example.org" port="6514"`, `localHostname="director.example.org"`} {
		if !strings.Contains(config, line) {
			t.Errorf("%s is missing in:\n%s", line, config)
		}
	}
	if info, err := os.Stat(p.etc(logsKey)); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the key: %v, %v", info, err)
	}
	// As the umask of the service leaves it.
	if err := os.Chmod(p.etc(logsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteLogs(s); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{p.etc(logsDir): 0o755, p.data(logsState): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", path, info, err, want)
		}
	}
	for name, tt := range map[string]struct{ own, field string }{
		"not asked for": {"auditSyslog: {address: logs}", ""},
		"no settings":   {"", ""},
		"no server":     {"auditSyslog: {journal: true}", "auditSyslog.address"},
		"no file":       {"auditSyslog: {journal: true, address: logs, caFile: /none}", "auditSyslog.caFile"},
		"a device":      {"auditSyslog: {journal: true, address: logs, caFile: /dev/zero}", "auditSyslog.caFile"},
		"an action": {
			`auditSyslog: {journal: true, address: logs, hostName: "x\")\naction(type=\"omprog\" binary=\"/bin/sh\")"}`,
			"auditSyslog.hostName",
		},
		"a program": {`auditSyslog: {journal: true, address: "$(reboot)"}`, "auditSyslog.address"},
		"a list":    {"auditSyslog: {journal: true, address: [logs]}", "-"},
	} {
		good := content(t, p, OwnConfig)
		files(t, p, map[string]string{OwnConfig: tt.own + "\n"})
		err := p.WriteLogs(s)
		fields := director.FieldsOf(err)
		if (err == nil) != (tt.field == "") || tt.field != "" && director.KindOf(err) != director.KindInvalid ||
			len(tt.field) > 1 && (len(fields) != 1 || fields[0].Path != tt.field) {
			t.Errorf("%s: %v, %+v", name, err, fields)
		}
		if left, _ := filepath.Glob(p.etc(logsDir) + "/*"); len(left) > 0 {
			t.Errorf("%s leaves %v", name, left)
		}
		files(t, p, good)
		if err := p.WriteLogs(s); err != nil {
			t.Fatal(err)
		}
	}
	files(t, p, map[string]string{
		OwnConfig: "auditSyslog: {journal: true, address: '[::1]:1', serverName: logs, hostName: d9}\n",
	})
	if err := p.WriteLogs(s); err != nil {
		t.Fatal(err)
	}
	config = content(t, Place{Data: p.Root}, "etc/"+logsConfig)["etc/"+logsConfig]
	if strings.Contains(config, "KeyFile") || !strings.Contains(config, trustedCAs) ||
		!strings.Contains(config, `"d9"`) {
		t.Errorf("without files:\n%s", config)
	}
	s.Hostname = "x\"\n"
	files(t, p, map[string]string{OwnConfig: "auditSyslog: {journal: true, address: logs}\n"})
	if err := p.WriteLogs(s); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a host name that is none: %v", err)
	}
}
