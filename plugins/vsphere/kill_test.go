package vsphere

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

var kills = flag.Int("kills", 40, "creations that TestKillLoop cuts off")

// dying fails every call from the nth one on, as if the director's process had ended: before the call was sent, or
// before its answer came.
func dying(b *Backend, n int64, answered bool) {
	var calls atomic.Int64
	dead := errors.New("the director died")
	b.conn.around = func(inner soap.RoundTripper) soap.RoundTripper {
		return roundTrip(func(ctx context.Context, req, res soap.HasFault) error {
			switch k := calls.Add(1); {
			case k > n || k == n && !answered:
				return dead
			case k == n:
				_ = inner.RoundTrip(ctx, req, res)
				return dead
			}
			return inner.RoundTrip(ctx, req, res)
		})
	}
}

// A director dies at a random call of every creation. Half of the machines are wanted again and finished; the others
// are forgotten, as by a ledger without their rows, and swept. Strangers with the machines' names are there before, in
// another folder.
func TestKillLoop(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a creation that hangs is named then
	defer cancel()
	id := hypervisortest.RandomID("d")
	watch := f.open(t)
	defer watch.Close()
	specs, strangers := killSpecs(ctx, t, f, watch, id)
	killCreations(ctx, t, f, specs)

	rows := map[director.Stamp]string{}
	for i, s := range specs {
		if i%2 == 0 {
			rows[s.Key] = s.Name
		}
	}
	swept := sweep(ctx, t, watch, id, rows)
	wantOneOfEach(ctx, t, watch, id, rows)
	for vm, before := range strangers {
		now, err := watch.Get(ctx, vm)
		if diff := cmp.Diff(before, now); diff != "" || err != nil {
			t.Errorf("a stranger was touched: %v (-before +after):\n%s", err, diff)
		}
	}
	t.Logf("%d orphans swept, %d machines ready, %d strangers untouched", swept, len(rows), len(strangers))
}

// killSpecs returns the machines to make, and strangers that have the names of some of them.
func killSpecs(
	ctx context.Context, t *testing.T, f *fixture, watch *Backend, id string,
) ([]hypervisor.Spec, map[hypervisor.ID]hypervisor.VM) {
	t.Helper()
	root, err := f.finder(t).Folder(ctx, "/DC0/vm")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := root.CreateFolder(ctx, "theirs")
	if err != nil {
		t.Fatal(err)
	}
	strangers := map[hypervisor.ID]hypervisor.VM{}
	var specs []hypervisor.Spec
	for i := range *kills {
		s := f.spec()
		s.Key.Director, s.Name, s.Group = id, fmt.Sprintf("node-%d", i), "prod"
		specs = append(specs, s)
		if i%10 == 0 {
			strangers[f.strangerIn(t, theirs, s.Name)] = hypervisor.VM{}
		}
	}
	for vm := range strangers {
		if strangers[vm], err = watch.Get(ctx, vm); err != nil {
			t.Fatal(err)
		}
	}
	return specs, strangers
}

// killCreations makes every machine with a director that dies, and every second one again with a director that lives.
func killCreations(ctx context.Context, t *testing.T, f *fixture, specs []hypervisor.Spec) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(*kills)))
	work := make(chan func())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for do := range work {
				do()
			}
		})
	}
	var died atomic.Int64
	for i, s := range specs {
		at, answered := random.Int64N(36)+1, random.IntN(2) == 0
		work <- func() {
			if cutOff(ctx, t, f, s, at, answered) {
				died.Add(1)
			}
			if i%2 == 0 {
				finish(ctx, t, f, s, at)
			}
		}
	}
	close(work)
	wg.Wait()
	t.Logf("%d of %d creations were cut off", died.Load(), *kills)
}

// cutOff makes the machine with a director that dies at the call, and tells whether it died.
func cutOff(ctx context.Context, t *testing.T, f *fixture, s hypervisor.Spec, at int64, answered bool) bool {
	b := f.open(t)
	dying(b, at, answered)
	_, err := b.Ensure(ctx, s)
	_ = b.Close() // dead already
	return err != nil
}

// finish makes the machine until it is ready.
func finish(ctx context.Context, t *testing.T, f *fixture, s hypervisor.Spec, at int64) {
	again := f.open(t)
	defer again.Close()
	for {
		v, err := again.Ensure(ctx, s)
		if err == nil && v.Ready {
			return
		}
		if err != nil && (director.KindOf(err) != director.KindUnavailable || ctx.Err() != nil) {
			t.Errorf("%s after a kill at call %d: %v", s.Name, at, err)
			return
		}
	}
}

// sweep deletes what has our stamp and no row, and returns how many VMs that are.
func sweep(ctx context.Context, t *testing.T, watch *Backend, id string, rows map[director.Stamp]string) int {
	t.Helper()
	all, err := watch.List(ctx, hypervisor.Filter{Director: id})
	if err != nil {
		t.Fatal(err)
	}
	seen, swept := map[director.Stamp]bool{}, 0
	for _, v := range all {
		switch name, wanted := rows[v.Stamp]; {
		case seen[v.Stamp]:
			t.Errorf("%s has a twin", v.Name)
		case wanted && (v.Name != name || !v.Ready):
			t.Errorf("%+v is not ready", v)
		case !wanted:
			swept++
			if err := watch.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: v.Stamp, DataDisks: true}); err != nil {
				t.Errorf("sweep: %v", err)
			}
		}
		seen[v.Stamp] = true
	}
	return swept
}

// wantOneOfEach checks that every row has one VM and one data disk, and that nothing else is left.
func wantOneOfEach(ctx context.Context, t *testing.T, watch *Backend, id string, rows map[director.Stamp]string) {
	t.Helper()
	volumes, err := watch.ListVolumes(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes {
		if _, wanted := rows[v.Stamp]; !wanted {
			t.Errorf("the data disk %s is an orphan", v.Name)
		}
	}
	if len(volumes) != len(rows) {
		t.Errorf("%d data disks for %d machines", len(volumes), len(rows))
	}
	left, err := watch.List(ctx, hypervisor.Filter{Director: id})
	if err != nil || len(left) != len(rows) {
		t.Errorf("%d VMs are left for %d machines, %v", len(left), len(rows), err)
	}
}
