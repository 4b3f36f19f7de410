package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// Read runs the script as root on a machine over SSH and returns what it printed. The machine proves itself with the
// host key that the director knows; without one it is unavailable. The script has to be one that changes nothing: it
// may run at any time, and more than once.
func (a SSHAccess) Read(ctx context.Context, m director.Machine, script string) (string, error) {
	key, err := a.adoptedKey(ctx, m.ID)
	if err == nil && key == "" {
		known, kerr := a.KnownHostKey(ctx, m.ID)
		key, err = known.Public, kerr
	}
	if err != nil {
		return "", err
	}
	if key == "" {
		return "", director.Errorf(director.KindUnavailable, "steps.read", "%s has no host key yet", m.Name)
	}
	return sshNodes{login: a.Machine}.output(ctx, m, key, script)
}

// output runs the script with sudo and returns what it printed.
func (s sshNodes) output(ctx context.Context, m director.Machine, hostKey, script string) (string, error) {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return "", err
	}
	out, err := node.run(ctx, asRoot(script))
	return out, hostKeyError(m, err)
}
