package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReservedLeavesHalf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string // below reserved:
		want   string // the refusal, empty for none
	}{
		"nothing": {"{}", ""},
		"a little": {
			"{kubelet: {cpu: 100m, memory: 256MiB}, system: {cpu: 100m, memory: 128MiB, disk: 1GiB, pids: 500}}", "",
		},
		"half": {"{kubelet: {cpu: '1', memory: 2GiB, disk: 15GiB}}", ""},
		"more CPU than half": {
			"{kubelet: {cpu: '1'}, system: {cpu: 1m}}", "spec.workers[0].reserved: keeps 1001m of 2 CPUs from pods",
		},
		"more memory than half": {
			"{kubelet: {memory: 2GiB}, system: {memory: 1MiB}}",
			"spec.workers[0].reserved: keeps 2049MiB of 4GiB of memory",
		},
		"more disk than half": {
			"{system: {disk: 16GiB}}", "spec.workers[0].reserved: keeps 16GiB of the root disk of 30GiB",
		},
		"no CPU": {"{system: {cpu: a lot}}", "spec.workers[0].reserved.system.cpu"},
		"a sum beyond 64 bits": {
			"{kubelet: {memory: 4194303TiB}, system: {memory: 4194303TiB}}", "spec.workers[0].reserved.kubelet.memory",
		},
		"a CPU with a line break": {`{system: {cpu: "1\nfoo: bar"}}`, "spec.workers[0].reserved.system.cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := parseAndCheck(`{apiVersion: kaas/v1, kind: Cluster, metadata: {name: other}, spec: {release: ` +
				`k8s-1.37, provider: lab, image: debian12-k8s-1.37,
  network: demo, workers: [{name: a, count: 1, cpus: 2, memory: 4GiB, disk: 30GiB, reserved: ` + c.fields + `}]}}`)
			if c.want == "" && got != "" {
				t.Errorf("refused: %s", got)
			}
			if c.want != "" && !strings.Contains(got, c.want) {
				t.Errorf("no problem has %q: %s", c.want, got)
			}
		})
	}
}

func TestQuantitiesAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	got := Resources{CPU: "250m", Memory: 1536 * MiB, Disk: 2 * GiB, PIDs: 500}.Quantities()
	want := map[string]string{"cpu": "250m", "memory": "1536Mi", "ephemeral-storage": "2Gi", "pid": "500"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := (Resources{}).Quantities(); len(got) > 0 {
		t.Errorf("nothing is %v", got)
	}
}
