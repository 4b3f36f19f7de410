package capacity

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
)

const gib = int64(1) << 30

func TestHosts(t *testing.T) {
	t.Parallel()
	row := hypervisor.HostCapacity{
		Host: "h1", CPUs: 16, Memory: 64 * gib, MemoryFree: 40 * gib, Disk: 1000 * gib, DiskFree: 100 * gib,
	}
	vms := []hypervisor.VM{
		{Host: "h1", CPUs: 8, Memory: 16 * gib},
		{Host: "h1", CPUs: 12, Memory: 16 * gib},
		{Host: "h2", CPUs: 99, Memory: 99 * gib},
	}
	for name, tt := range map[string]struct {
		o      model.Overcommit
		cpus   int
		memory int64
	}{
		"what is free, without a policy": {model.Overcommit{}, math.MaxInt, 40 * gib},
		"all of it promised once":        {model.Overcommit{CPUPercent: 100, MemoryPercent: 100}, 0, 32 * gib},
		"a reserve":                      {model.Overcommit{CPUPercent: 200, MemoryPercent: 75}, 12, 16 * gib},
		"overcommitted":                  {model.Overcommit{CPUPercent: 400, MemoryPercent: 150}, 44, 64 * gib},
	} {
		h := Hosts([]hypervisor.HostCapacity{row}, vms, tt.o)[0]
		if h.CPUsPromised != 20 || h.MemoryPromised != 32*gib || h.CPUsLeft != tt.cpus ||
			h.MemoryLeft/gib != tt.memory/gib || h.DiskLeft != 100*gib {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	size := model.VMSize{CPUs: 2, Memory: 4 * model.GiB, Disk: 30 * model.GiB}
	host := func(cpus int, memory, disk int64) Host {
		return Host{CPUsLeft: cpus, MemoryLeft: memory * gib, DiskLeft: disk * gib}
	}
	type answer struct {
		N  int
		By string
	}
	for name, tt := range map[string]struct {
		hosts  []Host
		bounds []Bound
		want   answer
	}{
		"memory": {
			[]Host{host(math.MaxInt, 17, 100), host(math.MaxInt, 9, 100)}, nil, answer{6, "memory of the hosts"},
		},
		"what is left over on each host does not add up": {
			[]Host{host(math.MaxInt, 3, 100), host(math.MaxInt, 3, 100)}, nil, answer{0, "memory of the hosts"},
		},
		"cpus":                      {[]Host{host(3, 100, 100)}, nil, answer{1, "cpus of the hosts"}},
		"disk":                      {[]Host{host(math.MaxInt, 100, 7)}, nil, answer{2, "disk of the hosts"}},
		"no host":                   {nil, nil, answer{0, "hosts"}},
		"a bound":                   {[]Host{host(math.MaxInt, 100, 100)}, []Bound{{"a", 7}, {"b", 3}}, answer{3, "b"}},
		"a bound that is overdrawn": {[]Host{host(math.MaxInt, 100, 100)}, []Bound{{"a", -4}}, answer{0, "a"}},
	} {
		n, by := Fit(tt.hosts, size, tt.bounds...)
		if diff := cmp.Diff(tt.want, answer{n, by}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	used := UseOf([]director.Machine{{CPUs: 4, Memory: 8 * gib}, {CPUs: 2, Memory: 4 * gib}})
	q := model.Quota{Machines: 4, CPUs: 10, Memory: 40 * model.GiB}
	size := model.VMSize{CPUs: 2, Memory: 4 * model.GiB}
	want := []Bound{{"spec.quota.machines of P", 2}, {"spec.quota.cpus of P", 2}, {"spec.quota.memory of P", 7}}
	if diff := cmp.Diff(want, Bounds(q, used, size, "spec.quota", "P")); diff != "" {
		t.Error(diff)
	}
	if got := Over(q, used); got != nil {
		t.Error(got)
	}
	excess := Over(q, used.Add(3, 2, 12*gib))
	if diff := cmp.Diff(
		[]Excess{{"machines", 5, 4}, {"cpus", 12, 10}, {"memory", 48 * model.GiB, 40 * model.GiB}}, excess,
	); diff != "" {
		t.Error(diff)
	}
	if got := Bounds(model.Quota{}, used, size, "f", "P"); got != nil {
		t.Error(got)
	}
}
