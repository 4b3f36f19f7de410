package nodes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	node := func(name, role, status string, ready bool) Listed {
		return Listed{Status: status, Seen: at, Node: Node{
			Name: name, Role: role, Ready: ready, Etcd: ready && role == string(director.RoleMaster),
			Kubelet: "v1.37.1",
		}}
	}
	m1 := node("m1", "master", StateReady, true)
	m1.Certificates = []Certificate{
		{Name: "kubelet", Ends: at, Unchecked: true}, {Name: "etcd", Ends: at.Add(2 * time.Hour)},
	}
	m2 := node("m2", "master", StateReady, true)
	m2.Certificates = []Certificate{{Name: "apiserver", Ends: at.Add(time.Hour)}}
	m3 := node("m3", "master", StateReady, true)
	lost := node("m3", "master", StateProblem, false)
	lost.Problem, lost.Seen = "its VM is off", at.Add(-time.Hour)
	also := node("m2", "master", StateProblem, false)
	also.Problem = "its VM is missing"
	unseen := Listed{Status: StateUnseen, Unseen: "no answer", Node: Node{Name: "m1", Role: "master"}}
	cordoned := node("w", "worker", StateCordoned, true)
	for name, c := range map[string]struct {
		nodes []Listed
		want  Health
	}{
		"none": {nil, Health{State: HealthUnknown, Cause: "it has no nodes"}},
		"good": {[]Listed{m1, m2, m3, cordoned}, Health{
			State: HealthGood, States: map[string]int{"ready": 3, "cordoned": 1}, Seen: at,
			Versions: map[string]int{"v1.37.1": 4}, Members: []string{"m1", "m2", "m3"},
			Certificate: Certificate{Name: "apiserver", Ends: at.Add(time.Hour)}, Node: "m2",
		}},
		"one master less": {[]Listed{m1, m2, lost}, Health{
			State: HealthWeak, Cause: "1 of 3 nodes are no ready members; m3: its VM is off", Seen: at.Add(-time.Hour),
			States: map[string]int{"ready": 2, "problem": 1}, Versions: map[string]int{"v1.37.1": 3},
			Members: []string{"m1", "m2"}, Strangers: []string{"m3"},
			Certificate: Certificate{Name: "apiserver", Ends: at.Add(time.Hour)}, Node: "m2",
		}},
		"no quorum": {[]Listed{m3, also, lost}, Health{
			State: HealthBad, Seen: at.Add(-time.Hour), States: map[string]int{"ready": 1, "problem": 2},
			Cause: "1 of 3 masters are ready, and etcd needs 2 to take changes; m2: its VM is missing; " +
				"m3: its VM is off",
			Versions: map[string]int{"v1.37.1": 3}, Members: []string{"m3"}, Strangers: []string{"m2", "m3"},
		}},
		"not seen": {[]Listed{unseen}, Health{
			State: HealthUnknown, Cause: "it was not seen: no answer", States: map[string]int{"unseen": 1},
			Strangers: []string{"m1"},
		}},
	} {
		got := HealthOf(c.nodes)
		for _, m := range []*map[string]int{&c.want.States, &c.want.Versions} {
			if *m == nil {
				*m = map[string]int{}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
