package schedule

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// rotations is clusters whose certificates end at certain times. What is run takes an hour.
type rotations struct {
	ends    map[string]time.Time
	ca      map[string]map[plan.Operation]time.Time
	parks   bool
	waiting map[string]plan.Operation
	fails   map[string]bool
	now     time.Time
	did     []string
}

func (r *rotations) CertificateEnds(context.Context) (map[string]time.Time, error) {
	return r.ends, nil
}

func (r *rotations) AuthorityEnds(context.Context) (map[string]map[plan.Operation]time.Time, error) {
	return r.ca, nil
}

func (r *rotations) MakePlanOf(_ context.Context, _, cluster string, op plan.Operation) (string, error) {
	r.did = append(r.did, "make "+string(op)+" "+cluster)
	return "a-" + cluster, nil
}

func (r *rotations) WaitingPlan(_ context.Context, cluster string) (string, plan.Operation, error) {
	if op, ok := r.waiting[cluster]; ok {
		return "w-" + cluster, op, nil
	}
	return "", "", nil
}

func (r *rotations) MakeRotation(_ context.Context, _, cluster string, _ time.Time) (string, error) {
	r.did = append(r.did, "make "+cluster)
	if cluster == "dead" {
		return "", errors.New("it does not answer")
	}
	return "p-" + cluster, nil
}

func (r *rotations) RunPlan(_ context.Context, _, id string) (plan.Status, error) {
	r.did = append(r.did, "run "+id)
	r.now = r.now.Add(time.Hour)
	if r.fails[id] {
		return plan.StatusFailed, nil
	}
	if r.parks && strings.HasPrefix(id, "a-") {
		return plan.StatusParked, nil
	}
	return plan.StatusDone, nil
}

func TestCertificatesJob(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, late := at.AddDate(0, 0, 10), at.AddDate(0, 0, 40)
	for name, c := range map[string]struct {
		params  map[string]any
		ends    map[string]time.Time
		waiting map[string]plan.Operation
		fails   map[string]bool
		did     []string
		says    string
		err     string
	}{
		"nothing": {
			ends: map[string]time.Time{"a": late, "b": late},
			says: "nothing to do: no certificate of 2 clusters ends before 2030-02-01T03:04:05Z",
		},
		"planning only": {
			ends:    map[string]time.Time{"a": soon, "b": late, "c": soon, "d": soon, "e": {}, "dead": soon},
			waiting: map[string]plan.Operation{"c": plan.ClusterUpgrade, "d": plan.ClusterRotateCerts},
			did:     []string{"make a", "make dead"},
			says: "a: plan p-a was made and waits: directorctl start p-a\n" +
				"c: left alone, because plan w-c waits for its " +
				"start\nd: plan w-d waits for its start\ne: its certificates were not seen yet",
			err: "dead",
		},
		"within": {
			params: map[string]any{"within": "50d"}, ends: map[string]time.Time{"b": late}, did: []string{"make b"},
			says: "b: plan p-b was made and waits: directorctl start p-b",
		},
		"one after another": {
			params: map[string]any{"start": true, "window": "90m"},
			ends:   map[string]time.Time{"a": soon, "b": soon, "c": soon},
			did:    []string{"make a", "run p-a", "make b", "run p-b"},
			says: "a: plan p-a renewed its certificates\nb: plan p-b renewed its certificates\n" +
				"c: left to the next run, because the time of this one is over",
		},
		"a failure stops": {
			params: map[string]any{"start": true}, ends: map[string]time.Time{"a": soon, "b": soon},
			fails: map[string]bool{"p-a": true}, did: []string{"make a", "run p-a"}, err: "plan p-a is failed",
		},
	} {
		r := &rotations{ends: c.ends, waiting: c.waiting, fails: c.fails, now: at}
		p := NewParams(c.params)
		work := CertificatesJob(r, func() time.Time { return r.now }).Prepare(p)
		if problems := p.problems(); len(problems) > 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		got, err := work(t.Context(), director.ScheduleRun{Schedule: "certificates"})
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if diff := cmp.Diff(c.did, r.did); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.Message != c.says {
			t.Errorf("%s says %q, want %q", name, got.Message, c.says)
		}
	}
	p := NewParams(map[string]any{"start": "yes", "within": "soon"})
	CertificatesJob(&rotations{}, time.Now).Prepare(p)
	if n := len(p.problems()); n != 2 {
		t.Errorf("%d problems, want 2", n)
	}
}

// An authority that ends is named with the command that changes it. Its change is planned where the schedule says so,
// instead of what renews certificates, and started only where plans are.
func TestCertificatesJobOfAuthorities(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, late := at.AddDate(0, 0, 10), at.AddDate(0, 0, 400)
	ends := map[string]time.Time{"a": soon, "b": late}
	ca := map[string]map[plan.Operation]time.Time{
		"a": {
			plan.ClusterCA: at.AddDate(0, 0, 60), plan.ClusterEtcdCA: at.AddDate(0, 0, 50),
			plan.ClusterFrontProxyCA: late,
		},
		"b": {plan.ClusterCA: at.AddDate(0, 0, -1), plan.ClusterEtcdCA: late},
	}
	said := "a: its etcd authority ends on 2030-02-21T03:04:05Z; change it: directorctl rotate etcd-ca a\n" +
		"a: its cluster authority ends on 2030-03-03T03:04:05Z; change it: directorctl rotate cluster-ca a\n"
	ended := "b: its cluster authority has ended, on 2030-01-01T03:04:05Z; change it: directorctl certs rotate b --cold"
	for name, c := range map[string]struct {
		params  map[string]any
		waiting map[string]plan.Operation
		parks   bool
		did     []string
		says    string
	}{
		"only said": {
			did:  []string{"make a"},
			says: said + "a: plan p-a was made and waits: directorctl start p-a\n" + ended,
		},
		"not within": {
			params: map[string]any{"authoritiesWithin": "20d"}, did: []string{"make a"},
			says: "a: plan p-a was made and waits: directorctl start p-a\n" + ended,
		},
		"planned": {
			params: map[string]any{"authorities": true}, did: []string{"make cluster.etcd_ca a"},
			says: said + "a: plan a-a was made and waits: directorctl start a-a\n" + ended,
		},
		"instead of another plan": {
			params:  map[string]any{"authorities": true},
			waiting: map[string]plan.Operation{"a": plan.ClusterRotateCerts},
			did:     []string{"make cluster.etcd_ca a"},
			says:    said + "a: plan a-a was made and waits: directorctl start a-a\n" + ended,
		},
		"it waits already": {
			params: map[string]any{"authorities": true}, waiting: map[string]plan.Operation{"a": plan.ClusterEtcdCA},
			says: said + "a: plan w-a waits for its start\n" + ended,
		},
		"another plan waits": {
			params: map[string]any{"authorities": true}, waiting: map[string]plan.Operation{"a": plan.ClusterUpgrade},
			says: said + "a: left alone, because plan w-a waits for its start\n" + ended,
		},
		"started": {
			params: map[string]any{"authorities": true, "start": true}, parks: true,
			did:  []string{"make cluster.etcd_ca a", "run a-a"},
			says: said + "a: plan a-a changes its authority and waits for a person: directorctl get plan a-a\n" + ended,
		},
	} {
		r := &rotations{ends: ends, ca: ca, waiting: c.waiting, parks: c.parks, now: at}
		p := NewParams(c.params)
		work := CertificatesJob(r, func() time.Time { return r.now }).Prepare(p)
		if problems := p.problems(); len(problems) > 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		got, err := work(t.Context(), director.ScheduleRun{Schedule: "certificates"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.did, r.did); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.says, got.Message); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
