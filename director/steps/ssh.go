package steps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

var errHostKey = errors.New("host key mismatch")

// sshNodes looks at machines over TCP and SSH.
type sshNodes struct {
	login func(ctx context.Context, m director.Machine) ([]ssh.Signer, error)
	port  string // 22 if empty
	user  string // cloudinit.DefaultUser if empty
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
func (e Machines) Answers(ctx context.Context, m director.Machine) (bool, error) {
	if e.Nodes == nil {
		return sshNodes{}.Answers(ctx, m)
	}
	return e.Nodes.Answers(ctx, m)
}

// CloudInit reads cloud-init's result file.
func (s sshNodes) CloudInit(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return "", err
	}
	// A machine made by others need not have a cloud-init: that makes its directory before anything else runs.
	out, err := node.run(
		ctx, `test -d /run/cloud-init || echo '{"v1": {}}'; cat /run/cloud-init/result.json 2>/dev/null || true`,
	)
	return out, hostKeyError(m, err)
}

func hostKeyError(m director.Machine, err error) error {
	if !errors.Is(err, errHostKey) {
		return err
	}
	return director.Errorf(
		director.KindConflict, "vm.boot", "%s answers with a host key that the director does not know as its own: %w",
		m.Address, err,
	).
		WithHint(
			"another host has the address, or others have recreated the VM: look at its console; if it is so, " +
				"rejoin it with its --host-key",
		)
}

// Script runs the script with sudo.
func (s sshNodes) Script(ctx context.Context, m director.Machine, hostKey, script string) error {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return err
	}
	out, err := node.run(ctx, asRoot(script)+" 2>&1")
	if _, failed := errors.AsType[*ssh.ExitError](err); failed {
		return director.Errorf(
			director.KindConflict, "vm.script", "a script failed on %s: %s", m.Name, strings.TrimSpace(out),
		).
			WithHint(
				"mend that on the machine and retry; the user %s must have sudo without a password",
				cloudinit.DefaultUser,
			)
	}
	return hostKeyError(m, err)
}

// NextHostKey runs the script for it with sudo.
func (s sshNodes) NextHostKey(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return "", err
	}
	out, err := node.run(ctx, asRoot(cloudinit.NextHostKeyScript))
	if err != nil {
		return "", hostKeyError(m, err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(out))
	if err != nil {
		return "", director.Errorf(
			director.KindUnavailable, "vm.boot", "%s made no host key: %s", m.Name, strings.TrimSpace(out),
		)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}

// TakeHostKey runs the script for it with sudo.
func (s sshNodes) TakeHostKey(ctx context.Context, m director.Machine, hostKey, certificate string) error {
	return s.Script(ctx, m, hostKey, cloudinit.TakeHostKeyScript(certificate))
}

// HostCertificate reads it from a handshake, which ends before a log-in: the other side has proven by then that it has
// the key.
func (s sshNodes) HostCertificate(ctx context.Context, m director.Machine) (string, error) {
	node := sshNode{address: m.Address, port: cmp.Or(s.port, "22"), user: cmp.Or(s.user, cloudinit.DefaultUser)}
	certificate, errSeen := "", errors.New("the certificate was seen")
	_, err := node.handshake(ctx, ssh.CertAlgoED25519v01, func(_ string, _ net.Addr, key ssh.PublicKey) error {
		certificate = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
		return errSeen
	})
	if _, none := errors.AsType[*ssh.AlgorithmNegotiationError](err); none || certificate != "" {
		return certificate, nil
	}
	return "", err
}

// FirstBoot asks the machine's own runner.
func (s sshNodes) FirstBoot(
	ctx context.Context, m director.Machine, hostKey string, again bool,
) (cloudinit.Report, error) {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return cloudinit.Report{}, err
	}
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

func (s sshNodes) node(ctx context.Context, m director.Machine, hostKey string) (sshNode, error) {
	signers, err := s.login(ctx, m)
	return sshNode{
		address: m.Address, port: cmp.Or(s.port, "22"), user: cmp.Or(s.user, cloudinit.DefaultUser), hostKey: hostKey,
		signers: signers,
	}, err
}

// asRoot is the script as one command of the director's account.
func asRoot(script string) string {
	return "sudo -n sh -c '" + strings.ReplaceAll(script, "'", `'\''`) + "'"
}

// sshNode is a node as the director reaches it.
type sshNode struct {
	address string
	port    string
	user    string
	hostKey string // authorized_keys form
	signers []ssh.Signer
}

// run executes one command and returns what it printed. The host key is checked; a wrong one is errHostKey.
func (n sshNode) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := n.stream(ctx, command, nil, &out)
	return out.String(), err
}

// stream executes one command, which reads in and prints to out.
func (n sshNode) stream(ctx context.Context, command string, in io.Reader, out io.Writer) error {
	client, err := n.connect(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	defer func() { _ = client.Close() }()
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	session.Stdin, session.Stdout = in, out
	return session.Run(command)
}

// connect logs in. ctx bounds the log-in alone. The host key is checked; a wrong one is errHostKey.
func (n sshNode) connect(ctx context.Context) (*ssh.Client, error) {
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.hostKey))
	if err != nil {
		return nil, fmt.Errorf("the node's host key cannot be read: %w", err)
	}
	mismatch := false
	client, err := n.handshake(ctx, want.Type(), func(_ string, _ net.Addr, got ssh.PublicKey) error {
		if string(got.Marshal()) != string(want.Marshal()) {
			mismatch = true
			return errHostKey
		}
		return nil
	})
	if mismatch {
		return nil, errHostKey
	}
	return client, err
}

// handshake logs in to what has a host key by that algorithm, and which check accepts.
func (n sshNode) handshake(ctx context.Context, algorithm string, check ssh.HostKeyCallback) (*ssh.Client, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.address, n.port))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c, chans, reqs, err := ssh.NewClientConn(conn, n.address, &ssh.ClientConfig{
		User: n.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(n.signers...)}, HostKeyAlgorithms: []string{algorithm},
		HostKeyCallback: check,
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return ssh.NewClient(c, chans, reqs), nil
}
