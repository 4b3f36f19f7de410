package planner

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// unchanged are the authorities of a cluster that had no others.
func unchanged() map[string]KeyNames {
	one := KeyNames{Keys: []string{"key1"}}
	return map[string]KeyNames{"cluster": one, "etcd": one, "front-proxy": one}
}

func TestAuthorityIsRotated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		operation plan.Operation
		names     KeyNames
		key       string
		added     bool
	}{
		"cluster":     {plan.ClusterCA, KeyNames{Keys: []string{"key1"}}, "key2", true},
		"etcd":        {plan.ClusterEtcdCA, KeyNames{Keys: []string{"key1"}}, "key2", true},
		"front proxy": {plan.ClusterFrontProxyCA, KeyNames{Keys: []string{"key1"}}, "key2", true},
		"a name is used once": {
			plan.ClusterCA,
			KeyNames{Keys: []string{"key2"}, Former: []string{"key1"}},
			"key3", true,
		},
		"stopped before its use":  {plan.ClusterEtcdCA, KeyNames{Keys: []string{"key1", "key2"}}, "key2", false},
		"stopped before the drop": {plan.ClusterCA, KeyNames{Keys: []string{"key2", "key1"}}, "key2", false},
	} {
		w := backedUp(t, 3, 2, "offsite")
		w.Authorities = unchanged()
		w.Authorities[purposes[tt.operation]] = tt.names
		c, err := RotateAuthority(w, plan.Request{Operation: tt.operation})
		want := []string{"backup/demo", "backup.store/offsite", "clocks/demo"}
		if tt.added {
			want = append(want, "authority.change/add")
		}
		stage := func(id string) {
			for _, m := range []string{"demo-master-1", "demo-master-2", "demo-master-3"} {
				want = append(want, "rotate_ca_"+id+"/"+m)
			}
			if tt.operation == plan.ClusterCA {
				want = append(want, "rotate_ca_"+id+"/demo-worker-1", "rotate_ca_"+id+"/demo-worker-2",
					"authorities_published_"+id+"/demo")
			}
		}
		agree := func(to string) {
			if tt.operation == plan.ClusterCA { // pods and people rely on that one alone
				want = append(want, "authority.agree/"+to)
			}
		}
		stage("trust")
		agree("use")
		want = append(want, "authority.change/use")
		stage("sign")
		want = append(want, "authorities_unused/demo")
		agree("drop")
		want = append(want, "authority.change/drop")
		stage("refuse")
		if got := ids(t, c, err); !slices.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
		use, _ := (&plan.Plan{Content: c}).Step("authority.change/use")
		if !strings.Contains(string(use.Params), tt.key) || len(use.Needs) == 0 {
			t.Errorf("%s: %s needs %v", name, use.Params, use.Needs)
		}
		for _, s := range c.Steps { // a master is touched only after the one before it
			if strings.Contains(s.ID, "master-2") &&
				!slices.Equal(s.Needs, []string{strings.Replace(s.ID, "-2", "-1", 1)}) {
				t.Errorf("%s: %s needs %v", name, s.ID, s.Needs)
			}
		}
	}
}

func TestAuthorityIsNotRotated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*World)
		want   string
	}{
		"not installed":      {func(w *World) { w.Installed = nil }, "is not installed"},
		"no answer":          {func(w *World) { w.Blind = "connection refused" }, "does not answer"},
		"a master is off":    {func(w *World) { w.Seen["demo-master-2"] = Seen{} }, "demo-master-2 is not ready"},
		"half of an upgrade": {func(w *World) { w.Machines[0].Kubernetes = "v1.36.4" }, "its document wants"},
		"half of another rotation": {
			func(w *World) { w.Authorities["etcd"] = KeyNames{Keys: []string{"key1", "key2"}} },
			"in the middle of the change of its etcd authority",
		},
	} {
		w := backedUp(t, 3, 1)
		w.Authorities = unchanged()
		tt.change(&w)
		_, err := RotateAuthority(w, plan.Request{Operation: plan.ClusterCA})
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A worker that is away comes back with the former authority, and the plan says how it joins again.
func TestAuthorityWithoutAWorker(t *testing.T) {
	t.Parallel()
	w := backedUp(t, 3, 2)
	w.Authorities = unchanged()
	w.Seen["demo-worker-2"] = Seen{}
	c, err := RotateAuthority(w, plan.Request{Operation: plan.ClusterCA})
	if err != nil || !strings.Contains(strings.Join(c.Warnings, "\n"), "directorctl node rejoin demo demo-worker-2") {
		t.Errorf("%v: %v", err, c.Warnings)
	}
	if strings.Contains(strings.Join(ids(t, c, err), " "), "demo-worker-2") {
		t.Error("the plan works on the worker that is away")
	}
	questions := 0
	for _, s := range c.Steps {
		if s.Kind != step.AuthorityAgree {
			continue
		}
		questions++
		var p step.AgreeParams
		if err := json.Unmarshal(s.Params, &p); err != nil || !slices.Equal(p.Away, []string{"demo-worker-2"}) {
			t.Errorf("%s leaves out the pods of %v: %v", s.ID, p.Away, err)
		}
	}
	if questions != 2 {
		t.Errorf("it asks a person %d times", questions)
	}
}

// TestIssuers has outer authorities issue those that the document of the cluster says, and no others.
func TestIssuers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		operation plan.Operation
		document  model.ClusterCertificates
		begun     bool
		want      []string
	}{
		"its own":            {plan.ClusterCA, model.ClusterCertificates{}, false, nil},
		"cluster":            {plan.ClusterCA, model.ClusterCertificates{Authority: "corp"}, false, []string{"corp"}},
		"begun with its own": {plan.ClusterCA, model.ClusterCertificates{Authority: "corp"}, true, nil},
		"etcd not asked for": {plan.ClusterEtcdCA, model.ClusterCertificates{Authority: "corp"}, false, nil},
		"etcd": {
			plan.ClusterEtcdCA,
			model.ClusterCertificates{Authority: "corp", Etcd: true},
			false,
			[]string{"corp"},
		},
		"front proxy": {
			plan.ClusterFrontProxyCA,
			model.ClusterCertificates{Authority: "corp", FrontProxy: true},
			false,
			[]string{"corp"},
		},
		"front proxy, not etc": {
			plan.ClusterFrontProxyCA,
			model.ClusterCertificates{Authority: "corp", Etcd: true},
			false, nil,
		},
	} {
		w := running(t, 3, 2, v)
		w.Authorities = unchanged()
		w.Cluster.Cluster.Certificates = tt.document
		if tt.begun {
			w.Authorities[purposes[tt.operation]] = KeyNames{Keys: []string{"key1", "key2"}}
		}
		c, err := RotateAuthority(w, plan.Request{Operation: tt.operation})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := step.Issuers(c); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v are asked, not %v", name, got, tt.want)
		}
		needs, err := step.NeedsOf(c)
		if err != nil || needs.Documents[model.Ref{
			Kind: model.KindCertificateAuthority,
			Name: "corp",
		}] != (tt.want != nil) {
			t.Errorf("%s: the plan needs %v: %v", name, needs.Documents, err)
		}
	}
}
