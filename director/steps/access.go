package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// How long certificates of SSH users live. sshd looks at a certificate when a connection is made, and not again.
const (
	sshMargin = 10 * time.Minute // over the deadline of what the certificate is for, and for clocks that are ahead
	sshUsual  = time.Hour        // of what has no deadline
)

// SSHAccess is how the director logs in to nodes. Each cluster has an authority of its own, whose certificates live as
// long as what they are made for. A node that was made before there were authorities accepts the one key that the
// director had for all nodes; a director that was installed later has none.
type SSHAccess struct {
	Installation
	Keys
}

// SSH returns how the director logs in to nodes.
func (e Env) SSH() SSHAccess {
	return SSHAccess{e.Installation, e.Keys}
}

// SSHLogin is what a run logs in with.
type SSHLogin struct {
	pki.SSHCredential
	Old director.Secret // the director's former key, if a node of the run may know nothing else
}

// trust says by whose certificates a machine is reached.
type trust struct {
	Cluster string `json:"cluster"` // uid, whose authority signs them
	// Adopted is set for a VM made by others: it need not know its own principal, and may know the director's former
	// key alone.
	Adopted bool `json:"adopted,omitempty"`
}

// ClusterPrincipal is the principal that every node of the cluster with that uid accepts.
func ClusterPrincipal(uid string) string { return "cluster-" + uid }

// MachinePrincipal is the principal that one machine alone accepts.
func MachinePrincipal(id string) string { return "machine-" + id }

// Authority returns the authority of the cluster with that uid that signs, and makes it at the first call. It is safe
// to call concurrently.
func (e Keys) Authority(ctx context.Context, uid string) (pki.SSHAuthority, error) {
	if uid == "" {
		return pki.SSHAuthority{}, director.Errorf(
			director.KindInternal, "steps.ssh", "the SSH authority of no cluster was asked for",
		)
	}
	s, err := e.sshAuthorities(ctx, uid)
	if err != nil {
		return pki.SSHAuthority{}, err
	}
	return s.first(), nil
}

// Guest returns what tells a machine of the cluster whom to let in.
func (e Keys) Guest(ctx context.Context, uid, machine string) (cloudinit.UserCA, error) {
	authority, err := e.Authority(ctx, uid)
	if err != nil {
		return cloudinit.UserCA{}, err
	}
	return cloudinit.UserCA{
		Public: authority.Public, Principals: []string{ClusterPrincipal(uid), MachinePrincipal(machine)},
	}, nil
}

// AuthorizedKey returns the line of authorized_keys with which a VM that others make lets the director of the cluster
// in.
func (a SSHAccess) AuthorizedKey(ctx context.Context, uid string) (string, error) {
	authority, err := a.Authority(ctx, uid)
	if err != nil {
		return "", err
	}
	return `cert-authority,principals="` + ClusterPrincipal(uid) + `" ` + authority.Public + " director@" +
		a.Director, nil
}

// trusted records by whose certificates the machine is reached from now on.
func (e Keys) trusted(ctx context.Context, machine string, t trust) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return keyring(e).write(ctx, machine, SecretTrust, text)
}

// trust returns by whose certificates the machine is reached; the zero value for one that was made before there were
// any.
func (e Keys) trust(ctx context.Context, machine string) (t trust, err error) {
	text, err := keyring(e).read(ctx, machine, SecretTrust)
	if err != nil || text == nil {
		return trust{}, err
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return trust{}, director.Errorf(
			director.KindInternal, "steps.ssh", "what machine %s trusts cannot be read: %w", machine, err,
		)
	}
	return t, nil
}

// former returns the key that the director had for all nodes, and "" if it never had one.
func (a SSHAccess) former(ctx context.Context) (director.Secret, error) {
	key, err := keyring(a.Keys).known(ctx, a.Director, SecretSSH)
	return key.Private, err
}

// Machine returns what the director logs in to that machine with, in the order of trying.
func (a SSHAccess) Machine(ctx context.Context, m director.Machine) ([]ssh.Signer, error) {
	return a.machine(ctx, m, pki.SSHUser{ID: "director " + a.Director + " " + m.Name})
}

// Person is Machine for a terminal that a person has. The machine's log names the person at the log-in.
func (a SSHAccess) Person(ctx context.Context, m director.Machine, person string) ([]ssh.Signer, error) {
	id := "director " + a.Director + " " + m.Name + " for " + person
	return a.machine(ctx, m, pki.SSHUser{ID: id, Terminal: true})
}

func (a SSHAccess) machine(ctx context.Context, m director.Machine, u pki.SSHUser) ([]ssh.Signer, error) {
	const op = "steps.ssh"
	t, err := a.trust(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	var signers []ssh.Signer
	if t.Cluster != "" {
		u.Principals, u.Until = []string{MachinePrincipal(m.ID)}, a.Now().Add(sshMargin)
		if t.Adopted {
			u.Principals = append(u.Principals, ClusterPrincipal(t.Cluster))
		}
		login, err := a.issue(ctx, t.Cluster, u)
		if err != nil {
			return nil, err
		}
		signer, err := login.Signer()
		if err != nil {
			return nil, err
		}
		signers = append(signers, signer)
	}
	if t.Cluster == "" || t.Adopted {
		old, err := a.former(ctx)
		if err != nil {
			return nil, err
		}
		if old != "" {
			signer, err := ssh.ParsePrivateKey([]byte(old.Reveal()))
			if err != nil {
				// the cause may quote the key
				return nil, director.Errorf(director.KindInternal, op, "the director's SSH key cannot be read")
			}
			signers = append(signers, signer)
		}
	}
	if len(signers) == 0 {
		return nil, director.Errorf(director.KindConflict, op, "the director has nothing to log in to %s with", m.Name).
			WithHint("the machine is not one that this director made; replace the node")
	}
	return signers, nil
}

// Play returns what a run on the nodes of the cluster with that uid logs in with. It is good until the context's
// deadline.
func (a SSHAccess) Play(ctx context.Context, uid, id string, nodes []plan.MachineSpec) (SSHLogin, error) {
	until := a.Now().Add(sshUsual)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline
	}
	login, err := a.issue(ctx, uid, pki.SSHUser{
		ID: "director " + a.Director + " " + id, Principals: []string{ClusterPrincipal(uid)},
		Until: until.Add(sshMargin), Terminal: true,
	})
	if err != nil {
		return SSHLogin{}, err
	}
	old, err := a.Old(ctx, nodes)
	if err != nil || len(old) == 0 {
		return SSHLogin{SSHCredential: login}, err
	}
	key, err := a.former(ctx)
	return SSHLogin{SSHCredential: login, Old: key}, err
}

// Export returns what a person runs playbooks of the cluster with, for that long.
func (a SSHAccess) Export(ctx context.Context, uid, user string, life time.Duration) (pki.SSHCredential, error) {
	return a.issue(ctx, uid, pki.SSHUser{
		ID: "director " + a.Director + " export " + user, Principals: []string{ClusterPrincipal(uid)},
		Until: a.Now().Add(life), Terminal: true,
	})
}

// Old returns the names of the machines that may not accept certificates.
func (a SSHAccess) Old(ctx context.Context, nodes []plan.MachineSpec) ([]string, error) {
	var names []string
	for _, m := range nodes {
		t, err := a.trust(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		if t.Cluster == "" || t.Adopted {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// PrivateKeys returns the lasting private keys that open nodes of the cluster with that uid, to keep them out of what
// people read. It makes none.
func (a SSHAccess) PrivateKeys(ctx context.Context, uid string) ([]director.Secret, error) {
	var out []director.Secret
	for _, k := range [][2]string{{a.Director, SecretSSH}, {uid, SecretSSHAuthority}} {
		key, err := keyring(a.Keys).known(ctx, k[0], k[1])
		if err != nil {
			return nil, err
		}
		if key.Private != "" {
			out = append(out, key.Private)
		}
	}
	plain, err := keyring(a.Keys).read(ctx, uid, secretSSHAuthorities)
	if err != nil || plain == nil {
		return out, err
	}
	s, err := a.sshAuthorities(ctx, uid)
	for _, k := range s.Keys {
		out = append(out, director.Secret(k.Private))
	}
	return out, err
}

func (a SSHAccess) issue(ctx context.Context, uid string, u pki.SSHUser) (pki.SSHCredential, error) {
	authority, err := a.Authority(ctx, uid)
	if err != nil {
		return pki.SSHCredential{}, err
	}
	return authority.Issue(u, a.Now())
}

// clusterUID returns the uid of the cluster that the machine of the plan is of.
func clusterUID(r plan.Run, m plan.MachineSpec) (string, error) {
	uid := m.ClusterUID
	if uid == "" && r.Plan != nil {
		uid = step.ClusterUID(r.Plan.Content)
	}
	if uid == "" {
		return "", plan.Abort(director.Errorf(
			director.KindInternal, "steps.facts", "the plan does not say which cluster %s is of", m.Name,
		).
			WithHint("the plan was made by another version: discard it and plan again"))
	}
	return uid, nil
}
