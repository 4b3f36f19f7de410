package daemon

import (
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
)

// The director is lost after it has changed a key of a cluster, and made again from the newest bundle that there is:
// the one that the plan itself has made. It has the key that the nodes ask for, in use, and finishes what the bundle
// had of the plan.
func TestLostDirectorHasTheKeysOfNodes(t *testing.T) {
	t.Parallel()
	for operation, secret := range map[plan.Operation]string{
		plan.ClusterCA: steps.SecretAuthorities, plan.ClusterSSHAuthority: "ssh-user-cas",
	} {
		t.Run(string(operation), func(t *testing.T) {
			t.Parallel()
			l, d := makeLost(t, "")
			api := connect(t, l.Config, d)
			run(t, api, plan.ClusterCreate)
			runBackup(t, api, "near") // of before the change
			id := begin(t, d.services, plan.Request{Operation: operation}).Plan.ID
			wantAgreement(t, d, api, id)
			nodes := keysOf(t, d, secret)
			if nodes.first == "" || !strings.Contains(nodes.text, "key2") {
				t.Fatal("the key was not changed")
			}
			if err := d.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}

			fresh := l.Config
			fresh.StateDir, fresh.Held = filepath.Join(t.TempDir(), "state"), true // it is looked at before it works
			if err := l.unpack(t, slices.Max(l.bundles(t)), fresh.StateDir).Place(); err != nil {
				t.Fatal(err)
			}
			again, err := start(t, fresh, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if got := keysOf(t, again, secret); got.first != nodes.first || !got.both() {
				t.Error("the bundle does not have both keys, with that of the nodes in use")
			}
			if err := again.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			fresh.Held = false
			if again, err = start(t, fresh, io.Discard); err != nil {
				t.Fatal(err)
			}
			wantAgreement(t, again, connect(t, fresh, again), id)
			if got := keysOf(t, again, secret); got != nodes {
				t.Error("the former key was not dropped again")
			}
		})
	}
}

// wantAgreement brings the plan to its end. The change of a cluster's authority waits for a person before the former
// one goes, with a question.
func wantAgreement(t *testing.T, d *Daemon, api *client.Client, id string) {
	t.Helper()
	v := ended(t, d.services, id)
	if v.Plan.Operation == plan.ClusterCA {
		drop := v.State.Step(step.AuthorityAgree + "/drop")
		if v.State.Status != plan.StatusParked || drop == nil || drop.Status != plan.Parked ||
			!strings.Contains(drop.Message, "nothing uses the former cluster authority") {
			t.Fatalf("the plan is %s: %+v", v.State.Status, drop)
		}
		if _, err := d.services.planning.MovePlan(
			t.Context(), "ann", id, planning.Move{Verb: planning.VerbRetry},
		); err != nil {
			t.Fatal(err)
		}
	}
	wantPlanDone(t, api, id)
}

// A backup of the director that cannot be made stops the plan before a node is touched; a person may go on without it.
func TestNodesAreNotTouchedWithoutABackupOfTheDirector(t *testing.T) {
	t.Parallel()
	l, d := makeLost(t, "")
	api := connect(t, l.Config, d)
	run(t, api, plan.ClusterCreate)
	if said := runBackup(t, api, "open"); !strings.Contains(said, "has no recipients") {
		t.Fatal(said)
	}
	id := begin(t, d.services, plan.Request{Operation: plan.ClusterSSHAuthority}).Plan.ID
	for _, when := range []string{"add", "use"} {
		v := ended(t, d.services, id)
		for i, st := range v.State.Steps {
			saves := st.ID == step.DirectorBackup+"/"+when+"-open"
			switch {
			case saves && (st.Status != plan.Parked || !strings.Contains(st.Message, "has no recipients") ||
				!strings.Contains(st.Message, "directorctl skip "+id+" --step "+st.ID)):
				t.Errorf("%s is %s: %s", st.ID, st.Status, st.Message)
			case v.Plan.Steps[i].Kind == step.Play && when == "add" && st.Status != plan.Pending:
				t.Errorf("%s is %s though the director was not backed up", st.ID, st.Status)
			case strings.HasPrefix(st.ID, "ssh_login/") && st.Status != plan.Pending:
				t.Errorf("%s is %s though no backup has the key in use", st.ID, st.Status)
			}
		}
		if _, err := d.services.planning.MovePlan(t.Context(), "admin", id, planning.Move{
			Verb: planning.VerbSkip, Step: step.DirectorBackup + "/" + when + "-open", Reason: "there is another one",
		}); err != nil {
			t.Fatal(err)
		}
	}
	wantPlanDone(t, api, id)

	// A target that is not there is said before.
	gone := strings.Replace(awaySchedule, "TARGET", "gone", 1)
	if _, err := api.Apply(t.Context(), []byte(gone), "away.yaml", false); err != nil {
		t.Fatal(err)
	}
	_, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterCA})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "BackupTarget/gone") {
		t.Errorf("a plan without its target: %v", err)
	}
}

// keyring is what a director has of the keys of a cluster for one purpose.
type keyring struct {
	text  string // as it is sealed
	first string // the public half of the one in use
}

func (k keyring) both() bool {
	return strings.Contains(k.text, `"name":"key1"`) && strings.Contains(k.text, `"name":"key2"`)
}

var publicHalf = regexp.MustCompile(`"(?:cert|public)":"([^"]+)"`)

func keysOf(t *testing.T, d *Daemon, secret string) keyring {
	t.Helper()
	doc, err := d.services.db.Document(t.Context(), model.Ref{Kind: model.KindCluster, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := d.services.db.Secret(t.Context(), doc.UID, secret)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.services.env.Sealer.Unseal(doc.UID, secret, sealed)
	if err != nil {
		t.Fatal(err)
	}
	found := publicHalf.FindSubmatch(text)
	if found == nil {
		t.Fatal("there is no key")
	}
	return keyring{string(text), string(found[1])}
}
