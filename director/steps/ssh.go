package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

// SSHIdentity is the key pair that the director logs in to its nodes with.
type SSHIdentity struct {
	Private director.Secret // OpenSSH PEM
	Public  string          // authorized_keys line
}

var errHostKey = errors.New("host key mismatch")

// sshNodes looks at machines over TCP and SSH.
type sshNodes struct {
	identity SSHIdentity
	port     string // 22 if empty
}

// Answers knocks at the SSH port: a refusal is an answer too.
func (sshNodes) Answers(ctx context.Context, m director.Machine) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(m.Address, "22"))
	if err == nil {
		return true, conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED), nil
}

// Answers knocks at the address of the machine.
func (e Env) Answers(ctx context.Context, m director.Machine) (bool, error) {
	if e.Nodes == nil {
		return sshNodes{identity: e.SSH}.Answers(ctx, m)
	}
	return e.Nodes.Answers(ctx, m)
}

// CloudInit reads cloud-init's result file.
func (s sshNodes) CloudInit(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	node := s.node(m, hostKey)
	// A machine that somebody else has made need not have a cloud-init: that makes its directory before anything else runs.
	out, err := node.run(ctx, `test -d /run/cloud-init || echo '{"v1": {}}'; cat /run/cloud-init/result.json 2>/dev/null || true`)
	return out, hostKeyError(m, err)
}

func hostKeyError(m director.Machine, err error) error {
	if !errors.Is(err, errHostKey) {
		return err
	}
	return director.Errorf(director.KindConflict, "vm.boot", "%s answers with a host key that the director does not know as its own: %w", m.Address, err).
		WithHint("another host has the address, or somebody has made the VM anew: look at its console; if it is so, rejoin it with its --host-key")
}

// Script runs the script with sudo.
func (s sshNodes) Script(ctx context.Context, m director.Machine, hostKey, script string) error {
	out, err := s.node(m, hostKey).run(ctx, asRoot(script)+" 2>&1")
	if _, failed := errors.AsType[*ssh.ExitError](err); failed {
		return director.Errorf(director.KindConflict, "vm.script", "a script failed on %s: %s", m.Name, strings.TrimSpace(out)).
			WithHint("mend that on the machine and retry; the user %s must have sudo without a password", cloudinit.DefaultUser)
	}
	return hostKeyError(m, err)
}

// FirstBoot asks the machine's own runner.
func (s sshNodes) FirstBoot(ctx context.Context, m director.Machine, hostKey string, again bool) (cloudinit.Report, error) {
	node := s.node(m, hostKey)
	if again {
		if _, err := node.run(ctx, asRoot(cloudinit.AgainCommand)); err != nil {
			return cloudinit.Report{}, hostKeyError(m, err)
		}
	}
	out, err := node.run(ctx, asRoot(cloudinit.ReportCommand))
	if err != nil {
		return cloudinit.Report{}, hostKeyError(m, err)
	}
	return cloudinit.ParseReport(out)
}

func (s sshNodes) node(m director.Machine, hostKey string) sshNode {
	return sshNode{address: m.Address, port: cmp.Or(s.port, "22"), user: cloudinit.DefaultUser, hostKey: hostKey, identity: s.identity}
}

// asRoot is the script as one command of the director's account.
func asRoot(script string) string {
	return "sudo -n sh -c '" + strings.ReplaceAll(script, "'", `'\''`) + "'"
}

// sshNode is a node as the director reaches it.
type sshNode struct {
	address  string
	port     string
	user     string
	hostKey  string // authorized_keys form
	identity SSHIdentity
}

// run executes one command and returns what it printed. The host key is checked; a wrong one is errHostKey.
func (n sshNode) run(ctx context.Context, command string) (string, error) {
	signer, err := ssh.ParsePrivateKey([]byte(n.identity.Private.Reveal()))
	if err != nil {
		return "", errors.New("the director's SSH key cannot be read") // the cause may quote the key
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.hostKey))
	if err != nil {
		return "", fmt.Errorf("the node's host key cannot be read: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.address, n.port))
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	mismatch := false
	c, chans, reqs, err := ssh.NewClientConn(conn, n.address, &ssh.ClientConfig{
		User: n.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: []string{want.Type()},
		HostKeyCallback: func(_ string, _ net.Addr, got ssh.PublicKey) error {
			if string(got.Marshal()) != string(want.Marshal()) {
				mismatch = true
				return errHostKey
			}
			return nil
		},
	})
	if err != nil {
		_ = conn.Close()
		if mismatch {
			return "", errHostKey
		}
		return "", err
	}
	client := ssh.NewClient(c, chans, reqs)
	defer func() { _ = client.Close() }()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	out, err := session.Output(command)
	return string(out), err
}

// EnsureSSH returns the director's own key pair, and makes it at the first start.
func (e Env) EnsureSSH(ctx context.Context) (SSHIdentity, error) {
	key, err := e.keyPair(ctx, e.Director, SecretSSH)
	return SSHIdentity{Private: key.Private, Public: key.Public + " director@" + e.Director}, err
}
