package vsphere

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"

	"github.com/director-kaas/kaas/director"
)

// A cluster's VMs go to a pool of their own, which is made once, also by several at a time, and taken if it is there.
func TestClusterPools(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	f.cfg.ClusterPools = true
	b := f.open(t)
	defer b.Close()
	var wg sync.WaitGroup
	names := make([]string, 6)
	for i := range names {
		s := f.spec()
		s.Group = []string{"prod", "test"}[i%2]
		names[i] = s.Group + "/" + s.Name
		x := f.open(t)
		wg.Go(func() {
			defer x.Close()
			for {
				_, err := x.Ensure(t.Context(), s)
				if err == nil {
					return
				}
				if director.KindOf(err) != director.KindUnavailable {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	pools, err := f.finder(t).ResourcePoolList(t.Context(), "/DC0/host/DC0_C0/Resources/*")
	if err != nil {
		t.Fatal(err)
	}
	byRef := map[string]string{}
	var paths []string
	for _, p := range pools {
		byRef[p.Reference().Value] = p.Name()
		paths = append(paths, p.Name())
	}
	slices.Sort(paths)
	if diff := cmp.Diff([]string{"prod", "test"}, paths); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	for _, name := range names {
		_, vm, _ := f.look(t, "/DC0/vm/"+name)
		if group, _, _ := strings.Cut(name, "/"); vm.ResourcePool == nil || byRef[vm.ResourcePool.Value] != group {
			t.Errorf("%s is in the pool %v", name, vm.ResourcePool)
		}
	}
}

// Custom attributes tell people whose a VM is.
func TestCustomAttributes(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	f.cfg.Attributes = true
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	s.Group = "prod"
	for range 2 {
		if _, err := b.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s.Key.Machine, s.Name = s.Key.Machine+"x", s.Name+"x"
	}
	fields, err := object.NewCustomFieldsManager(f.Admin.Client).Field(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[int32]string{}
	for _, d := range fields {
		keys[d.Key] = d.Name
	}
	_, vm, _ := f.look(t, "/DC0/vm/prod/"+strings.TrimSuffix(s.Name, "x"))
	var got []string
	for _, v := range vm.CustomValue {
		got = append(got, fmt.Sprint(keys[v.GetCustomFieldValue().Key]))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{attributeCluster, attributeDirector}, slices.Compact(got)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}
