package daemon

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/steps"
)

// meeting is a director that plans for the cluster demo.
type meeting struct{ services }

// try plans the operation and starts the plan.
func (m meeting) try(t *testing.T, r plan.Request) (string, error) {
	t.Helper()
	p, err := m.planning.MakePlan(t.Context(), "ann", "demo", r)
	if err == nil {
		_, err = m.planning.StartPlan(t.Context(), "ann", p.Plan.ID, p.Plan.Hash)
	}
	return p.Plan.ID, err
}

// refused wants the operation to be refused, with the words.
func (m meeting) refused(t *testing.T, r plan.Request, says string) {
	t.Helper()
	if _, err := m.try(t, r); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), says) {
		t.Errorf("%s %+v: %v, want %q", r.Operation, r.Certificates, err, says)
	}
}

func allLeaves() plan.Request {
	return plan.Request{Operation: plan.ClusterRotateCerts, Certificates: plan.Certificates{MadeBefore: time.Now()}}
}

// Of rotations that people ask for at the same moment one works on the cluster. While its change of an authority is
// half done, no other rotation and no upgrade starts. In the middle of an upgrade no rotation does.
func TestRotationsMeet(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Hosts: "demo-master-2", Playbook: "upgrade_master", Outcome: "failed", Percent: 100},
	}
	d, api := created(t, c)
	m := meeting{d.services}
	var people sync.WaitGroup
	started := make(chan string, 8)
	for range cap(started) {
		people.Go(func() {
			id, err := m.try(t, plan.Request{Operation: plan.ClusterCA})
			switch {
			case err == nil:
				started <- id
			case director.KindOf(err) != director.KindConflict || director.HintOf(err) == "":
				t.Errorf("a rotation beside another one: %v (%s)", err, director.HintOf(err))
			}
		})
	}
	people.Wait()
	if len(started) != 1 {
		t.Fatalf("%d of %d rotations were started", len(started), cap(started))
	}
	id := <-started
	wantStatus(t, ended(t, d.services, id), plan.StatusParked) // it asks whether the former authority may go

	// While it waits it holds the cluster, and when it was given up, what it has begun comes first.
	const half = "in the middle of the change of its cluster authority"
	for _, says := range []string{"plan " + id + " holds cluster demo", half} {
		m.refused(t, plan.Request{Operation: plan.ClusterEtcdCA}, says)
		m.refused(t, allLeaves(), says)
		if v, err := d.services.journal.Plan(t.Context(), id); err == nil && v.State.Status == plan.StatusParked {
			if _, err := d.services.planning.MovePlan(t.Context(), "ann", id, planning.Move{
				Verb: planning.VerbDiscard, Reason: "another one",
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := api.Apply(t.Context(), []byte(nextRelease()), "next.yaml", false); err != nil {
		t.Fatal(err)
	}
	m.refused(t, plan.Request{}, half)
	id = begin(t, d.services, plan.Request{Operation: plan.ClusterCA}).Plan.ID
	wantAgreement(t, d, api, id)
	if keys := keysOf(t, d, steps.SecretAuthorities); strings.Contains(keys.text, "key3") {
		t.Error("another rotation has made a further authority")
	}

	wantStatus(t, ended(t, d.services, begin(t, d.services, plan.Request{}).Plan.ID), plan.StatusFailed)
	m.refused(t, plan.Request{Operation: plan.ClusterCA}, "its document wants")
	m.refused(t, allLeaves(), "its document wants")
}

// ends writes down that the certificates of the first master of each cluster end then.
func (m meeting) ends(t *testing.T, clusters []string, at time.Time) {
	t.Helper()
	for _, name := range clusters {
		doc, err := m.db.Document(t.Context(), model.Ref{Kind: model.KindCluster, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.db.PutCertificates(t.Context(), []director.CertificateSight{{
			ClusterUID: doc.UID, Cluster: name, Node: name + "-master-1", Source: director.CertificateFile,
			At: time.Now(), Certificates: []director.Certificate{{
				ClusterUID: doc.UID, Cluster: name, Node: name + "-master-1", Source: director.CertificateFile,
				Place: "/etc/kubernetes/pki/apiserver.crt", Name: "apiserver", Fingerprint: name,
				Begins: at.AddDate(-1, 0, 0), Ends: at, Seen: time.Now(), Asked: time.Now(),
			}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
}

// The job certificates renews those of several clusters that end soon, one cluster after another, and says so when
// there is nothing to do.
func TestCertificatesOfSeveralClusters(t *testing.T) {
	t.Parallel()
	clusters := []string{"a", "b", "c"}
	shared, demo := demoDocuments[:strings.LastIndex(demoDocuments, "apiVersion")], demoDocument()
	demo = strings.Replace(demo[strings.LastIndex(demo, "apiVersion"):], "count: 3", "count: 1", 1)
	text := shared
	for _, name := range clusters {
		text += strings.Replace(demo, "name: demo", "name: "+name, 1) + "---\n"
	}
	c := simulating(t, strings.TrimSuffix(text, "---\n"))
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	m, api := meeting{d.services}, connect(t, c, d)
	for _, name := range clusters {
		p, err := m.planning.MakePlan(t.Context(), "admin", name, plan.Request{})
		if err == nil {
			_, err = m.planning.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash)
		}
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, ended(t, d.services, p.Plan.ID), plan.StatusDone)
	}
	m.ends(t, clusters, time.Now().AddDate(0, 0, 10))
	certificates := "apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: away}\n" +
		"spec: {cron: \"@yearly\", job: {name: certificates, params: {start: true}}}\n"
	if said := runAway(t, api, certificates); strings.Count(said, "renewed its certificates") != len(clusters) {
		t.Fatal(said)
	}
	plans, err := api.Plans(t.Context(), client.PlanFilter{Operations: []string{string(plan.ClusterRotateCerts)}})
	if err != nil || len(plans) != len(clusters) {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	for i, later := range plans[:len(clusters)-1] { // the newest is the first
		former := plans[i+1]
		if later.Cluster != clusters[len(clusters)-1-i] || later.CreatedAt.Before(*former.FinishedAt) {
			t.Errorf("%s of %s was made at %s, before the end of that of %s at %s", later.ID, later.Cluster,
				later.CreatedAt, former.Cluster, former.FinishedAt)
		}
	}
	m.ends(t, clusters, time.Now().AddDate(1, 0, 0))
	said := runAway(t, api, certificates)
	if !strings.HasPrefix(said, "done: nothing to do: no certificate of 3 clusters") {
		t.Error(said)
	}
}
