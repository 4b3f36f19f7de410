package controller_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"
)

// envScale is how many Services TestScale makes. docs/develop/benchmarks.md has numbers; the goal is for 10,000.
const envScale = "KAAS_SYNC_SERVICES"

// The bars for 10,000 Services.
const (
	memoryBar = 100 << 10   // kB that the program takes at most
	idleBar   = 10.0        // per cent of a core while nothing changes
	outageBar = time.Minute // from Consul's answer until both sides are in step
	barsAt    = 10_000      // Services from which on times and processor are judged, too
)

const scalePatience = 10 * time.Minute

// TestScale measures memory and processor time of the real program, and how fast it is after an outage of Consul. What
// others take from the cluster's nodes comes back. Memory and results are judged always, times and processor with as
// many Services as the bars are for: run that alone on the machine.
func TestScale(t *testing.T) {
	n := 600 // more than one node in Consul takes
	if v := os.Getenv(envScale); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	c := startConsul(t)
	k := startCluster(t)
	k.namespace(t, "shop")
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	wanted := map[string]bool{}
	create(t, k, wanted, "s", 0, n)
	must[string](t)(program()) // its build is not measured

	started := time.Now()
	r := s.start(t)
	r.expectAll(t, wanted)
	t.Logf("%d Services: all in an empty Consul after %s", n, time.Since(started).Round(100*time.Millisecond))

	window := 2 * time.Second
	if n >= 1000 {
		window = time.Minute
	}
	r.expectPage(t, "/readyz", "in step")
	before := cpuTicks(t, r)
	<-time.NewTimer(window).C
	idle := float64(cpuTicks(t, r)-before) / window.Seconds() // the kernel counts 100 ticks a second
	t.Logf("bar: nothing changes: %.1f %% of a core over %s (less than %.0f %%)", idle, window, idleBar)
	if n >= barsAt && idle >= idleBar {
		t.Errorf("it took %.1f %% of a core while nothing changed", idle)
	}

	started = time.Now()
	k.add(t, "shop", "latest", "198.51.100.77", nil)
	expectAddress(t, c, "latest-shop.service.consul", "198.51.100.77")
	wanted["service:shop:latest:80:198.51.100.77"] = true
	t.Logf("a new address is in Consul's DNS after %s", time.Since(started).Round(10*time.Millisecond))

	outage(t, r, k, wanted, n)
	for _, lost := range []api.CatalogDeregistration{
		{Node: "kaas-c1.2", ServiceID: scaleID("s", n-1)}, {Node: "kaas-c1.2"}, {Node: "kaas-c1"},
	} {
		if _, err := c.api.Catalog().Deregister(&lost, nil); err != nil {
			t.Fatal(err)
		}
		r.expectAll(t, wanted)
	}
	peak := memory(t, r, "VmHWM:")
	t.Logf("bar: memory: %d MB now, %d MB of it the program's file; %d MB at most (less than %d)",
		memory(t, r, "VmRSS:")>>10, memory(t, r, "RssFile:")>>10, peak>>10, memoryBar>>10)
	if peak > memoryBar {
		t.Errorf("it took %d kB of memory, more than %d", peak, memoryBar)
	}
}

func scaleAddress(prefix string, i int) string {
	return net.IPv4(10, prefix[0], byte(i/250), byte(i%250+1)).String()
}

func scaleID(prefix string, i int) string {
	return fmt.Sprintf("service:shop:%s%05d:80:%s", prefix, i, scaleAddress(prefix, i))
}

// create makes Services, eight at a time.
func create(t *testing.T, k *cluster, wanted map[string]bool, prefix string, from, to int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for i := from; i < to; i++ {
		wanted[scaleID(prefix, i)] = true
		g.Go(func() error {
			return k.balanced(ctx, "shop", fmt.Sprintf("%s%05d", prefix, i), scaleAddress(prefix, i), nil)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// outage has a tenth change while Consul is away: half of it goes, half is new. It tells how long Consul itself took
// to answer, and how long the program then took. No entry of what stays may go meanwhile.
func outage(t *testing.T, r *replica, k *cluster, wanted map[string]bool, n int) {
	t.Helper()
	c, half := r.consul, max(1, n/20)
	before := must[map[string]uint64](t)(c.made(r.uid))
	c.kill()
	for i := range half {
		k.remove(t, "shop", fmt.Sprintf("s%05d", i))
		delete(wanted, scaleID("s", i))
	}
	create(t, k, wanted, "n", 0, half)
	started := time.Now()
	c.start(t)
	within(t, scalePatience, c.confirms)
	confirms := time.Since(started)
	r.expectAll(t, wanted)
	all := time.Since(started)
	t.Logf("%d changes during an outage: in step %s after Consul's start; its leader confirmed reads after "+
		"%s, and the "+
		"program took %s more", 2*half, all.Round(100*time.Millisecond), confirms.Round(100*time.Millisecond),
		(all - confirms).Round(100*time.Millisecond))
	// An entry that was deleted and written again has another index.
	wrong, after := 0, must[map[string]uint64](t)(c.made(r.uid))
	for id, index := range before {
		if wanted[id] && after[id] != index {
			wrong++
		}
	}
	t.Logf("bar: %d changes during an outage are right %s after Consul answers (at most %s), %d wrong deletions",
		2*half,
		(all - confirms).Round(100*time.Millisecond), outageBar, wrong)
	if wrong > 0 {
		t.Errorf("%d entries were deleted that should have stayed", wrong)
	}
	if n >= barsAt && all-confirms > outageBar {
		t.Errorf("both sides were in step %s after Consul answered", all-confirms)
	}
}

// expectAll waits until exactly the wanted entries are there and pass. It asks the program, and then Consul: long lists
// that are read again and again keep a server from its work.
func (r *replica) expectAll(t *testing.T, wanted map[string]bool) {
	t.Helper()
	within(t, scalePatience, func() error {
		if status, text := r.get("/readyz"); status != http.StatusOK {
			return errors.New(text)
		}
		got, err := r.consul.entries(r.uid)
		good := 0
		for _, line := range got {
			id, rest, _ := strings.Cut(line, " ")
			if wanted[id] && strings.HasSuffix(rest, " passing") {
				good++
			}
		}
		if err == nil && (good < len(wanted) || len(got) > good) {
			err = fmt.Errorf("%d of %d entries are there and pass, and %d others", good, len(wanted), len(got)-good)
		}
		return err
	})
}

// cpuTicks returns the processor time of the program.
func cpuTicks(t *testing.T, r *replica) int64 {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid)))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum int64
	for _, f := range fields[11:13] { // utime and stime
		sum += must[int64](t)(strconv.ParseInt(f, 10, 64))
	}
	return sum
}

// memory returns a line of the program's status in kB.
func memory(t *testing.T, r *replica, name string) int64 {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid)))
	_, rest, _ := strings.Cut(string(text), name)
	return must[int64](t)(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))
}
