package ldaptest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What every Active Directory has.
const (
	ADSuffix   = "DC=ex,DC=test"
	ADUsers    = "CN=Users," + ADSuffix
	ADBindDN   = "CN=searcher," + ADUsers
	ADPassword = "Search-er-2026" // Active Directory wants several kinds of characters
)

// AD is Samba as an Active Directory. It listens in a network namespace of its own, because its ports are fixed.
type AD struct {
	CA []byte // of its certificate, which is for localhost; PEM

	namespace, conf string
}

// StartAD makes a domain, lets prepare add people and groups by samba-tool's commands, and starts its server, which
// runs as long as the test. It needs root.
func StartAD(tb testing.TB, prepare func(tool func(args ...string))) *AD {
	tb.Helper()
	for _, program := range []string{"samba", "samba-tool", "ip"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			if os.Getenv("KAAS_REQUIRE_REAL") != "" {
				tb.Fatalf("root and %s are needed: apt-get install samba-ad-dc samba-ad-provision", program)
			}
			tb.Skipf("root and %s are needed: apt-get install samba-ad-dc samba-ad-provision", program)
		}
	}
	dir := tb.TempDir()
	a := &AD{namespace: fmt.Sprintf("director-ad-%d", os.Getpid()), conf: filepath.Join(dir, "smb.conf")}
	a.run(tb, "ip", "netns", "add", a.namespace)
	tb.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "delete", a.namespace).Run() })
	a.run(tb, "ip", "-n", a.namespace, "link", "set", "lo", "up")
	domain := filepath.Join(dir, "domain")
	a.run(tb, "ip", "netns", "exec", a.namespace, "samba-tool", "domain", "provision", "--targetdir="+domain,
		"--realm=EX.TEST", "--domain=EX", "--server-role=dc", "--dns-backend=NONE", "--host-name=dc",
		"--host-ip=127.0.0.1", "--adminpass=Adm-in-2026", "--option=interfaces=lo",
		"--option=bind interfaces only=yes")
	a.CA = certificate(tb, dir, time.Hour)
	write(tb, dir, "smb.conf", strings.NewReplacer("@DIR@", dir, "@DOMAIN@", domain).Replace(sambaConfig))
	tool := func(args ...string) {
		tb.Helper()
		a.run(tb, "ip", append([]string{"netns", "exec", a.namespace, "samba-tool"}, append(args, "-s", a.conf)...)...)
	}
	tool("user", "create", "searcher", ADPassword)
	prepare(tool)
	a.serve(tb)
	return a
}

func (a *AD) run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), program, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

func (a *AD) serve(tb testing.TB) {
	tb.Helper()
	cmd := exec.CommandContext(
		context.WithoutCancel(tb.Context()), "ip", "netns", "exec", a.namespace,
		"samba", "-i", "-M", "single", "--debug-stdout", "-d0", "-s", a.conf,
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	_, err := cmd.StdinPipe() // samba ends when its input does
	must(tb, err)
	must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; {
		conn, err := a.Dial(tb.Context(), "tcp", "localhost:636")
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("samba does not listen: %v", err)
		}
	}
}

// Dial connects to the port of the address in the namespace of the server.
func (a *AD) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	// The thread comes back to where it was. It must not end: that would kill the servers that it has started.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = home.Close() }()
	there, err := os.Open(filepath.Join("/run/netns", a.namespace))
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	if home := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); home != nil {
		panic(home) // other goroutines would run in the wrong namespace
	}
	return conn, err
}

const sambaConfig = `[global]
netbios name = DC
realm = EX.TEST
workgroup = EX
server role = active directory domain controller
server services = ldap
interfaces = lo
bind interfaces only = Yes
private dir = @DOMAIN@/private
state directory = @DOMAIN@/state
cache directory = @DOMAIN@/cache
lock directory = @DOMAIN@
binddns dir = @DOMAIN@/bind-dns
pid directory = @DIR@
ncalrpc dir = @DIR@/ncalrpc
winbindd socket directory = @DIR@/winbindd
ntp signd socket directory = @DIR@/ntp
log file = @DIR@/log.%m
tls enabled = yes
tls cafile = @DIR@/ca.crt
tls certfile = @DIR@/server.crt
tls keyfile = @DIR@/server.key
`
