package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// RotateServiceAccountKey returns the plan that gives the cluster another key for service account tokens: all masters
// accept it, then they sign with it, and they refuse the former one when nothing uses it any more. API servers restart
// one by one behind gates. A rotation that stopped half way is finished, with the key that it made. Errors: conflict
// for a cluster that is not installed, that waits for an upgrade, or of which a master is away.
func RotateServiceAccountKey(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate_service_account_key"
	masters, all, err := w.rotatable(op)
	if err != nil {
		return plan.Content{}, err
	}
	name := w.Cluster.Metadata.Name
	if err := w.upgrades().upgraded(op); err != nil {
		return plan.Content{}, err
	}
	d := w.draft(plan.ClusterSigningKey)
	d.Request = r
	var needs []string
	key, begun := w.Signing.next()
	if !begun {
		needs = []string{d.keys().signingKey(step.SigningAdd, "Make "+key+" for service account tokens", key, needs)}
	}
	needs = d.backups().saveDirector("add", "has "+key, needs)
	needs = d.keys().giveSigningKeys("accept", "Have %s accept tokens of "+key, masters, needs)
	needs = []string{d.keys().signingKey(step.SigningUse, "Choose "+key+" to sign tokens with", key, needs)}
	needs = d.backups().saveDirector("use", "signs with "+key, needs)
	needs = d.keys().giveSigningKeys("sign", "Have %s sign tokens with "+key, masters, needs)
	needs = []string{d.play(playbook{
		name: "service_account_tokens", subject: name, title: "Wait until no token of the former key is in use",
		limit: names(masters), estimate: time.Hour,
		effects: []plan.Effect{{Verb: "read", Object: "api", Name: name, Detail: "who may have tokens of which key"}},
	}, needs, group{})}
	needs = []string{d.keys().signingKey(step.SigningDrop, "Forget the former key", "", needs)}
	needs = d.keys().giveSigningKeys("refuse", "Have %s refuse tokens of the former key", masters, needs)
	up := slices.DeleteFunc(slices.Clone(all), func(m sized) bool { return !w.up(m.Name) })
	d.allReady(w.params().clusterParams(w.endpoint(masters), up), 20*time.Second, needs)
	d.warn("kubelets renew the tokens of pods, mostly within the hour, and the plan waits for it; pods that start " +
		"after the change need no wait")
	d.warn("tokens that were asked for by hand (kubectl create token) end with the former key, and the director " +
		"cannot see who has them; tokens in Secrets have to be made again, and the plan waits for a person " +
		"and names them")
	d.concerns(masters...)
	d.Facts = encode(w.facts(all))
	d.Summary = fmt.Sprintf("Sign the service account tokens of cluster %s with another key, %s.", name, key)
	if begun {
		d.Summary = fmt.Sprintf("Finish the change of cluster %s to the key %s for service account tokens.", name, key)
	}
	return d.done(), nil
}

func (d keyDraft) signingKey(do step.SigningVerb, title, key string, needs []string) string {
	return d.add(plan.Step{
		ID: step.SigningKey + "/" + string(do), Kind: step.SigningKey, Title: title, Needs: needs,
		Params: encode(step.SigningParams{UID: d.w.Cluster.UID, Cluster: d.Cluster, Do: do, Key: key}),
		Effects: []plan.Effect{{
			Verb: "change", Object: "secret", Name: "service account keys of " + d.Cluster, Detail: "in the director",
		}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
}

// giveSigningKeys gives the masters, one after another, the keys that the director has then. It returns the last step.
func (d keyDraft) giveSigningKeys(id, title string, masters []sized, needs []string) []string {
	needs = slices.Clone(needs)
	for _, m := range masters {
		needs = []string{d.play(playbook{
			name: "service_account_keys", id: "service_account_" + id, title: fmt.Sprintf(title, m.Name),
			limit: []string{m.Name}, estimate: 30 * time.Second,
			effects: []plan.Effect{{
				Verb: "restart", Object: "api", Name: "node/" + m.Name,
				Detail: "the API server, and the controller manager if it signs with another key; no pod of yours",
			}},
		}, needs, group{})}
	}
	return needs
}
