package libvirt

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// creation is what a process of TestLabKills is to make, in KAAS_LAB_CREATE.
type creation struct {
	URI, Pool string
	Spec      hypervisor.Spec
}

// TestLabCreation is the process that TestLabKills ends.
func TestLabCreation(t *testing.T) {
	text := os.Getenv("KAAS_LAB_CREATE")
	if text == "" {
		t.Skip("only a process of TestLabKills runs this")
	}
	var c creation
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	b, err := Open(Config{Hosts: []HostConfig{{Name: "h1", URI: c.URI, Pool: c.Pool}}, DiskCache: "unsafe"})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("begins")
	if _, err := b.Ensure(t.Context(), c.Spec); err != nil {
		t.Fatal(err)
	}
	fmt.Println("done")
}

// Processes that create VMs on a real host get a kill -9 at random moments. Half of the machines are wanted again and
// finished; the others are forgotten, as by a ledger without their rows, and swept. Strangers are there before, and
// stay as they were.
func TestLabKills(t *testing.T) {
	const kills = 20
	f := newFixture(t, labURI(t), "default")
	ctx := t.Context()
	b := f.open(t)
	t.Cleanup(func() { _ = b.Close() })
	strangers := map[hypervisor.ID]hypervisor.VM{}
	for i := range 3 {
		id := f.stranger(t, fmt.Sprintf("%s-%d", hypervisortest.RandomID("node-"), i))
		vm, err := b.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		strangers[id] = vm
	}
	owner := hypervisortest.RandomID("d")
	spec := func() hypervisor.Spec {
		s := f.spec(t, b)
		s.Key.Director = owner
		o := hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}
		t.Cleanup(func() { _ = b.Delete(context.Background(), hypervisor.ID(domainUUID(s.Key)), o) })
		return s
	}
	began := time.Now()
	whole := spec()
	create(t, creation{f.uri, "default", whole}, time.Hour)
	usual := time.Since(began)
	wanted := map[director.Stamp]hypervisor.Spec{whole.Key: whole}
	cut := 0
	random := rand.New(rand.NewPCG(1, kills))
	for i := range kills {
		s := spec()
		if !create(t, creation{f.uri, "default", s}, time.Duration(random.Int64N(int64(usual)))) {
			cut++
		}
		if i%2 == 0 {
			wanted[s.Key] = s
		}
	}
	t.Logf("a creation took %s; %d of %d were cut off", usual.Round(time.Millisecond), cut, kills)
	if cut == 0 {
		t.Error("no creation was cut off")
	}

	for _, s := range wanted {
		if v, err := b.Ensure(ctx, s); err != nil || !v.Ready {
			t.Errorf("%s once more: %+v, %v", s.Name, v, err)
		}
	}
	all, err := b.List(ctx, hypervisor.Filter{Director: owner})
	if err != nil {
		t.Fatal(err)
	}
	seen, orphans := map[director.Stamp]bool{}, 0
	for _, v := range all {
		if seen[v.Stamp] {
			t.Errorf("%s has a twin", v.Name)
		}
		seen[v.Stamp] = true
		if _, keep := wanted[v.Stamp]; keep {
			continue
		}
		orphans++
		if err := b.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: v.Stamp, DataDisks: true}); err != nil {
			t.Errorf("sweep: %v", err)
		}
	}
	t.Logf("%d orphans swept", orphans)
	for stamp := range wanted {
		if !seen[stamp] {
			t.Errorf("machine %s is not listed", stamp.Machine)
		}
	}
	for _, left := range f.remains(t, owner) {
		ours := false
		for stamp := range wanted {
			ours = ours || strings.Contains(left, stamp.Machine)
		}
		if !ours {
			t.Errorf("the sweep has left %s", left)
		}
	}
	for id, before := range strangers {
		now, err := b.Get(ctx, id)
		if diff := cmp.Diff(before, now); diff != "" || err != nil {
			t.Errorf("a stranger was touched: %v (-before +after):\n%s", err, diff)
		}
	}
}

// create makes the machine in a process of its own, which is ended after a while. It tells whether the process was done
// before.
func create(t *testing.T, c creation, after time.Duration) bool {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestLabCreation$")
	cmd.Env = append(os.Environ(), "KAAS_LAB_CREATE="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, lines := make(chan string), bufio.NewScanner(out)
	go func() {
		defer close(said)
		for lines.Scan() {
			said <- lines.Text()
		}
	}()
	var all []string
	var end <-chan time.Time
	for {
		select {
		case line, ok := <-said:
			if !ok {
				err := cmd.Wait()
				if done := len(all) > 1 && all[1] == "done"; done || err != nil && cmd.ProcessState.ExitCode() < 0 {
					return done
				}
				t.Fatalf("a creation failed by itself: %v\n%s", err, strings.Join(all, "\n"))
			}
			if all = append(all, line); line == "begins" {
				timer := time.NewTimer(after)
				defer timer.Stop()
				end = timer.C
			}
		case <-end:
			_ = cmd.Process.Kill()
		}
	}
}
