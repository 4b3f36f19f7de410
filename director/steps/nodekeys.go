package steps

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director/plan"
)

// askedOfNodes are the secrets that a run of a playbook asks of every node.
var askedOfNodes = []string{SecretAdopted, SecretHostKey, SecretTrust}

// nodeSecrets are Secrets of which those that are asked of nodes were read at once.
type nodeSecrets struct {
	Secrets
	nodes  map[string]bool
	sealed map[[2]string][]byte
}

// ofNodes returns the keys with those of the nodes as they are now. They are for one run.
func (k Keys) ofNodes(ctx context.Context, nodes []plan.MachineSpec) (Keys, error) {
	read := nodeSecrets{Secrets: k.Secrets, nodes: map[string]bool{}}
	var ids []string
	for _, m := range nodes {
		read.nodes[m.ID] = true
		ids = append(ids, m.ID)
	}
	var err error
	read.sealed, err = k.Secrets.SecretsOf(ctx, ids, askedOfNodes)
	return Keys{Secrets: read, Sealer: k.Sealer}, err
}

// Secret returns what was read, also that there is nothing.
func (n nodeSecrets) Secret(ctx context.Context, owner, name string) ([]byte, error) {
	if n.nodes[owner] && slices.Contains(askedOfNodes, name) {
		return slices.Clone(n.sealed[[2]string{owner, name}]), nil
	}
	return n.Secrets.Secret(ctx, owner, name)
}
