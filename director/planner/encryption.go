package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// KeyNames are the names of the keys of a cluster for one purpose, such as the encryption of Secrets at rest.
type KeyNames struct {
	Keys   []string // that its API servers have, the one that encrypts or signs first
	Former []string // that they had; older backups are encrypted with them
}

// RotateEncryptionKey returns the plan that gives the cluster another key for Secrets and encrypts all of them again.
// No API server restarts. A rotation that stopped half way is finished, with the key that it made. Errors: conflict for
// a cluster that is not installed, that waits for an upgrade, or of which a master is away: it would be left with keys
// that decrypt nothing.
func RotateEncryptionKey(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate_encryption_key"
	masters, all, err := w.rotatable(op)
	if err == nil {
		err = w.upgrades().upgraded(op)
	}
	if err != nil {
		return plan.Content{}, err
	}
	name := w.Cluster.Metadata.Name
	d := w.draft(plan.ClusterEncryptionKey)
	d.Request = r
	var needs []string
	if len(w.Cluster.Cluster.Backup.Targets) > 0 {
		needs = []string{d.backup("before "+string(plan.ClusterEncryptionKey), nil)}
	}
	key, begun := w.Encryption.next()
	if !begun {
		needs = []string{d.keys().encryptionKey(step.EncryptionAdd, "Make "+key+" for Secrets", []string{key}, needs)}
	}
	needs = d.backups().saveDirector("add", "has "+key, needs)
	needs = []string{d.keys().giveEncryptionKeys("read", "Have the masters decrypt with "+key, masters, needs)}
	needs = []string{d.keys().encryptionKey(step.EncryptionUse, "Choose "+key+" to encrypt with", []string{key}, needs)}
	needs = d.backups().saveDirector("use", "encrypts with "+key, needs)
	needs = []string{d.keys().giveEncryptionKeys("write", "Have the masters encrypt with "+key, masters, needs)}
	d.keys().encryptAgain(masters, needs)
	d.concerns(masters...)
	d.Facts = encode(w.facts(all))
	d.Summary = fmt.Sprintf("Encrypt the Secrets of cluster %s with another key, %s.", name, key)
	if begun {
		d.Summary = fmt.Sprintf("Finish the change of cluster %s to the key %s for Secrets.", name, key)
	}
	return d.done(), nil
}

// rotatable returns the masters and all nodes of a cluster whose keys may be changed now. Errors: conflict for a
// cluster that is not installed, that does not answer, or of which a master is away: it would come back with
// former keys.
func (w World) rotatable(op string) (masters, all []sized, err error) {
	name := w.Cluster.Metadata.Name
	if w.Installed == nil || len(w.masters()) == 0 {
		return nil, nil, notInstalled(op, name)
	}
	if w.Blind != "" {
		return nil, nil, conflict(op, "cluster "+name+" does not answer: "+w.Blind, "repair it, and plan again")
	}
	for _, m := range w.members() {
		if m.Role != director.RoleMaster {
			continue
		}
		if !w.up(m.Name) {
			return nil, nil, conflict(
				op, "master "+m.Name+" is not ready: it would come back without the new key",
				"repair it: directorctl node rejoin "+name+" "+m.Name,
			)
		}
		masters = append(masters, w.sized(m))
	}
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	return masters, all, nil
}

// encryptAgain encrypts all Secrets with the first key, and takes the others from the masters. It returns the last
// step.
func (d keyDraft) encryptAgain(masters []sized, needs []string) string {
	needs = []string{d.play(playbook{
		name: "encrypt_secrets", subject: d.Cluster, title: "Encrypt all Secrets again", limit: names(masters),
		effects: []plan.Effect{{
			Verb: "change", Object: "secret", Name: d.Cluster, Detail: "how each lies in etcd, not what is in it",
		}}, estimate: 20 * time.Second,
	}, needs, group{})}
	needs = []string{d.encryptionKey(step.EncryptionDrop, "Keep the former keys for older backups alone", nil, needs)}
	return d.giveEncryptionKeys("forget", "Take the former keys from the masters", masters, needs)
}

func (d keyDraft) encryptionKey(do step.EncryptionVerb, title string, keys, needs []string) string {
	return d.add(plan.Step{
		ID: step.EncryptionKey + "/" + string(do), Kind: step.EncryptionKey, Title: title, Needs: needs,
		Params: encode(step.EncryptionParams{UID: d.w.Cluster.UID, Cluster: d.Cluster, Do: do, Keys: keys}),
		Effects: []plan.Effect{
			{Verb: "change", Object: "secret", Name: "encryption keys of " + d.Cluster, Detail: "in the director"},
		},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
}

// giveEncryptionKeys gives the masters the keys that the director has then. API servers look for others once a minute;
// before a restore they may not run, and no one waits for them.
func (d keyDraft) giveEncryptionKeys(id, title string, masters []sized, needs []string) string {
	return d.play(playbook{
		name: "encryption_keys", id: "encryption_" + id, subject: d.Cluster, title: title, limit: names(masters),
		vars: map[string]any{"encryption_keys_wait": d.w.Restore == nil || id != "read"},
		effects: []plan.Effect{{
			Verb: "change", Object: "node", Name: "all masters", Detail: "the keys that their API servers have",
		}}, estimate: time.Minute,
	}, needs, group{})
}

// next returns the key that the cluster is to encrypt or sign with, and whether a rotation to it has begun.
func (n KeyNames) next() (key string, begun bool) {
	if len(n.Keys) > 1 {
		return slices.MaxFunc(n.Keys, func(a, b string) int { return keyNumber(a) - keyNumber(b) }), true
	}
	last := 1
	for _, name := range slices.Concat(n.Keys, n.Former) {
		last = max(last, keyNumber(name))
	}
	return fmt.Sprintf("key%d", last+1), false
}

func keyNumber(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "key")) // names are the director's own
	return n
}
