package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// Nodes on a host that does not answer are left alone until somebody says that it is lost; then they alone are mended.
func TestRepairOf(t *testing.T) {
	t.Parallel()
	replace, rejoin := string(plan.NodeReplace), string(plan.NodeRejoin)
	v := wire.Nodes{Items: []wire.Node{
		{Name: "a", Host: "h1", Repair: replace},
		{Name: "b", Host: "h2", HostDown: "silence", Repair: replace},
		{Name: "c", Host: "h3", Repair: rejoin},
		{Name: "d", Host: "h2", HostDown: "silence", Repair: replace},
		{Name: "e", Host: "h4", HostLost: true, Repair: replace},
		{Name: "f", Host: "h1"},
	}}
	for name, tt := range map[string]struct {
		names []string
		lost  string
		want  plan.Request
		rest  int
	}{
		"all": {want: plan.Request{Operation: plan.NodeReplace, Nodes: []string{"a", "e"}}, rest: 3},
		"a lost host": {
			lost: "h2", want: plan.Request{Operation: plan.NodeReplace, Nodes: []string{"b", "d"}}, rest: 3,
		},
		"one of a lost host": {
			lost: "h2", names: []string{"d"}, want: plan.Request{Operation: plan.NodeReplace, Nodes: []string{"d"}},
		},
		"one of a silent host": {names: []string{"b"}, rest: 1},
		"another trouble": {
			names: []string{"c", "f"}, want: plan.Request{Operation: plan.NodeRejoin, Nodes: []string{"c"}},
		},
	} {
		got, rest, err := repairOf(v, tt.names, tt.lost)
		if diff := cmp.Diff(tt.want, got); diff != "" || rest != tt.rest || err != nil {
			t.Errorf("%s: %d left, want %d, %v (-want +got):\n%s", name, rest, tt.rest, err, diff)
		}
	}
	if diff := cmp.Diff([]string{"h2"}, downHosts(v, "")); diff != "" || len(downHosts(v, "h2")) > 0 {
		t.Errorf("silent hosts: %s", diff)
	}
}

// A node that no operation on nodes mends is shown with the command that does, also by node repair.
func TestNodesThatHaveNotJoined(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a := &clusterCommands{&app{streams: streams{out: out}}}
	v := wire.Nodes{Items: []wire.Node{
		{Name: "demo-w-1"},
		{Name: "demo-w-2", Problem: "it has not joined the cluster", Hint: "directorctl plan demo"},
	}}
	a.printNodes("demo", v)
	a.sayUnrepaired("demo", v, nil)
	a.sayUnrepaired("demo", v, []string{"demo-w-1"})
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(text), "\n\n")
	want := "next: directorctl plan demo\n" +
		"demo-w-2: it has not joined the cluster\nnext: directorctl plan demo\n" +
		"The nodes of Cluster/demo are healthy: nothing to do\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\nof:\n%s", diff, text)
	}
}

// Nodes are shown with what their cluster says of them, and with the end of the first certificate that anything relies
// on.
func TestNodesAsTheirClusterShowsThem(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	end := func(month time.Month) time.Time { return time.Date(2027, month, 1, 12, 0, 0, 0, time.UTC) }
	a := &clusterCommands{&app{streams: streams{out: out}}}
	v := wire.Nodes{Items: []wire.Node{
		{
			Name: "m", Role: "master", Address: "10.88.0.10", Power: "on", Version: "v1.37.1", Wanted: "v1.37.1",
			Ready: true, Etcd: true, Certificates: []wire.Certificate{
				{Name: "kubelet", EndsAt: end(1), Unchecked: true},
				{Name: "apiserver", EndsAt: end(2)},
				{Name: "etcd", EndsAt: end(3)},
			},
		},
		{Name: "l", Role: "master", Power: "on", Version: "v1.37.1", Ready: true, Cordoned: true},
		{Name: "w", Role: "worker", Power: "off", Version: "v1.37.1", Problem: "its VM is switched off"},
		{Name: "x", Role: "worker", State: "creating"},
	}}
	a.printNodes("demo", v)
	if err := a.show(formJSON, v, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{
		"m master 10.88.0.10 - on v1.37.1 v1.37.1 ready 2027-02-01 -",
		"l master - - on v1.37.1 - ready, cordoned, no etcd - -",
		"w worker - - off v1.37.1 - not ready - its VM is switched off",
		"x worker - - - - - creating - -",
		`"name": "etcd"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
