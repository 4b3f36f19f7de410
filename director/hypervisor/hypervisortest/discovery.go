package hypervisortest

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func discoverItems(b bundle) {
	c := capability[hypervisor.Discoverer](b)
	v := b.ready(b.b, b.spec("seen"))
	before := slices.Sorted(slices.Values(b.Remains(b.T)))
	d, err := c.Discover(b.ctx)
	if err != nil {
		b.Fatalf("Discover: %v", err)
	}
	if after := slices.Sorted(slices.Values(b.Remains(b.T))); !slices.Equal(before, after) {
		b.Errorf("Discover changed %v to %v", before, after)
	}
	if d.Version == "" || len(d.Unseen) != 0 {
		b.Errorf("version %q, unseen %+v", d.Version, d.Unseen)
	}
	kinds := hypervisor.DiscoveredKinds()
	count := map[hypervisor.DiscoveredKind]int{}
	storage := 0
	for _, i := range d.Items {
		count[i.Kind]++
		if !slices.Contains(kinds, i.Kind) || i.Name == "" || i.Free < 0 || i.Free > i.Size || i.MemoryFree < 0 ||
			i.MemoryFree > i.Memory {
			b.Errorf("item %+v", i)
		}
		if i.Size > 0 {
			storage++
		}
		if i.Kind == hypervisor.FoundHost && (i.CPUs < 1 || i.Memory <= 0) {
			b.Errorf("host %+v", i)
		}
	}
	host := slices.IndexFunc(d.Items, func(i hypervisor.Discovered) bool {
		return i.Kind == hypervisor.FoundHost && i.Name == v.Host
	})
	if host < 0 || d.Items[host].VMs < 1 {
		b.Errorf("host %s of a VM is not told, or has no VMs: %+v", v.Host, d.Items)
	}
	if storage == 0 || count[hypervisor.FoundNetwork]+count[hypervisor.FoundPortGroup] == 0 {
		b.Errorf("no storage with its size, or no network: %v", count)
	}
	for kind, n := range count {
		if n > hypervisor.MostDiscovered {
			b.Errorf("%d items of kind %s", n, kind)
		}
	}
	again := d
	again.Items = slices.Clone(d.Items)
	again.Bound()
	if !slices.Equal(again.Items, d.Items) {
		b.Error("the items are not in their order")
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: v.Stamp, DataDisks: true})
}

func discoverCancelled(b bundle) {
	c := capability[hypervisor.Discoverer](b)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := c.Discover(ctx)
	b.wantKind(err, director.KindUnavailable, "Discover when its caller has left")
}
