package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// rules returns the VMs' names of each anti-affinity rule of the cluster.
func (f *fixture) rules(t *testing.T) map[string][]string {
	t.Helper()
	cluster, err := f.finder(t).ClusterComputeResource(context.Background(), "DC0_C0")
	if err != nil {
		t.Fatal(err)
	}
	config, err := cluster.Configuration(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, r := range config.Rule {
		if rule, ok := r.(*types.ClusterAntiAffinityRuleSpec); ok {
			for _, ref := range rule.Vm {
				name, err := object.NewVirtualMachine(f.Admin.Client, ref).ObjectName(context.Background())
				if err != nil {
					name = "gone"
				}
				out[rule.Name] = append(out[rule.Name], name)
			}
			slices.Sort(out[rule.Name])
		}
	}
	return out
}

// masters are three that are to be kept apart.
func (f *fixture) masters() (all []hypervisor.Spec) {
	for i := range 3 {
		s := f.spec()
		s.Group, s.Apart, s.Name = "prod", true, fmt.Sprintf("prod-master-%d", i+1)
		all = append(all, s)
	}
	return all
}

// The rule that keeps masters apart follows them as they come and go.
func TestApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	all := f.masters()
	worker := f.spec()
	worker.Group = "prod"
	steps := []struct {
		do   func() error
		want []string
	}{
		{func() error { _, err := b.Ensure(t.Context(), all[0]); return err }, nil},
		{func() error { _, err := b.Ensure(t.Context(), worker); return err }, nil},
		{
			func() error { _, err := b.Ensure(t.Context(), all[1]); return err },
			[]string{"prod-master-1", "prod-master-2"},
		},
		{
			func() error { _, err := b.Ensure(t.Context(), all[2]); return err },
			[]string{"prod-master-1", "prod-master-2", "prod-master-3"},
		},
		{func() error {
			return b.Delete(t.Context(), hypervisor.ID(
				vmUUID(all[1].Key),
			), hypervisor.DeleteOptions{Owner: all[1].Key, DataDisks: true})
		}, []string{"prod-master-1", "prod-master-3"}},
		{func() error {
			return b.Delete(t.Context(), hypervisor.ID(
				vmUUID(all[0].Key),
			), hypervisor.DeleteOptions{Owner: all[0].Key, DataDisks: true})
		}, nil},
	}
	for i, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.want, f.rules(t)["kaas-prod-apart"]); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// Masters that are deleted at the same time leave no rule: each one says that it leaves before it looks who stays.
func TestApartGoesTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	all := f.masters()
	for _, s := range all {
		if _, err := b.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	// One whose deletion was cut off is wanted again, and is kept apart again.
	b.at = cutAt("detached")
	gone := func(s hypervisor.Spec) error {
		return b.Delete(t.Context(), hypervisor.ID(
			vmUUID(s.Key),
		), hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
	}
	if err := gone(all[0]); err == nil {
		t.Fatal("Delete was not cut off")
	}
	b.at = func(string) error { return nil }
	if diff := cmp.Diff([]string{"prod-master-2", "prod-master-3"}, f.rules(t)["kaas-prod-apart"]); diff != "" {
		t.Errorf("while one is deleted (-want +got):\n%s", diff)
	}
	if _, err := b.Ensure(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if got := f.rules(t)["kaas-prod-apart"]; len(got) != 3 {
		t.Errorf("after it was made again: %v", got)
	}
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			if err := gone(s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := f.rules(t); len(got) != 0 {
		t.Errorf("the rules %v are left", got)
	}
}

// Hosts that cannot take a VM are said with the reason, and left alone where another one can.
func TestHosts(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	ctx := f.Model.Service.Context
	for _, e := range ctx.Map.All("HostSystem") {
		h := e.(*simulator.HostSystem)
		switch h.Name {
		case "DC0_C0_H0":
			h.Runtime.InMaintenanceMode = true
		case "DC0_C0_H1":
			h.Network = slices.DeleteFunc(slices.Clone(
				h.Network,
			), func(r types.ManagedObjectReference) bool { return r.Type == "DistributedVirtualPortgroup" })
		}
	}
	b := f.open(t)
	defer b.Close()
	for host, want := range map[string]struct {
		kind director.Kind
		text string
	}{
		"DC0_C0_H0": {director.KindUnavailable, "is in maintenance"},
		"DC0_C0_H1": {director.KindNotFound, "has no port group DC0_DVPG0"},
		"nowhere":   {director.KindNotFound, "no host"},
	} {
		s := f.spec()
		s.Host = host
		_, err := b.Ensure(t.Context(), s)
		if director.KindOf(err) != want.kind || !strings.Contains(fmt.Sprint(err), want.text) ||
			director.HintOf(err) == "" {
			t.Errorf("%s: %v", host, err)
		}
	}
	err := b.EnsureNetwork(t.Context(), hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: "d", Machine: "n"}, Name: "nodes", Mode: hypervisor.ModePortGroup,
		PortGroup: "/DC0/network/DC0_DVPG0",
	})
	if director.KindOf(err) != director.KindNotFound || !strings.Contains(fmt.Sprint(err), "DC0_C0_H1") {
		t.Errorf("EnsureNetwork: %v", err)
	}
	rows, err := b.Capacity(t.Context())
	if err != nil || len(rows) != 2 {
		t.Errorf("Capacity: %v, %v; want two hosts", rows, err)
	}
	f.cfg.Hosts = []string{"DC0_C0_H1", "DC0_C0_H2"}
	x := f.open(t)
	defer x.Close()
	s := f.spec()
	if v, err := x.Ensure(t.Context(), s); err != nil || v.Host != "DC0_C0_H2" {
		t.Errorf("Ensure: %+v, %v; want it on the one host that fits", v, err)
	}
}
