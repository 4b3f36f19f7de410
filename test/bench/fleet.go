package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/test/rig"
)

const (
	fleetNodes     = 10 // of each cluster
	fleetProviders = 10
	fleetSettings  = `
runDir: /dev/shm
forks: 200
stepsAtOnce: 200
creationsPerHour: 0
simulation:
  plays: {tasks: 3, latency: 50ms, jitter: 50ms, changed: 30}
`
)

// fleet makes 1,000 clusters of 10 nodes on 10 pretended providers, lists them all the while, and then looks at the
// director idle.
func fleet(ctx context.Context, b *bench) ([]row, error) {
	names, lab, networks, documents := fleetDocuments(b)
	r, c, err := b.start(ctx, "fleet", fleetSettings, lab, networks, documents...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Stop() }()
	defer c.Close()

	start := time.Now()
	lists := watchList(ctx, b, r, c, len(names))
	err = startAll(ctx, c, names)
	if err == nil {
		err = lists.wait(ctx)
	}
	took := time.Since(start)
	if err != nil {
		return nil, fmt.Errorf("after %s: %w\n%s", round(took), err, r.Tail())
	}
	made, err := fleetRow(b, r, lists, len(names), took)
	if err != nil {
		return nil, err
	}
	rows := []row{made}
	idle, err := idleShare(ctx, r.PID())
	if err != nil {
		return rows, err
	}
	return append(rows, row{
		"the director idle with that fleet", "< 5 % of a core", fmt.Sprintf("%.1f %% over 60 s", 100*idle), idle < 0.05,
	}), nil
}

// fleetDocuments returns the names of the clusters, the first provider, and the networks and documents for the rest.
func fleetDocuments(b *bench) (names []string, lab string, networks map[string]string, documents []string) {
	lab = provider(4, "200ms", "1s")
	networks = map[string]string{}
	for i := range fleetProviders {
		name := "lab"
		if i > 0 {
			name = fmt.Sprintf("lab%d", i)
			documents = append(
				documents,
				fmt.Sprintf(
					"---\napiVersion: kaas/v1\nkind: Provider\nmetadata: {name: %s}\nspec: {type: sim, sim: %s}\n",
					name, lab,
				),
			)
		}
		networks[fmt.Sprintf("net%d", i)] = fmt.Sprintf(
			"{provider: %s, cidr: 10.%d.0.0/16, pool: {from: 10.%d.1.0, to: 10.%d.250.250}}", name, 64+i, 64+i, 64+i,
		)
	}
	names = make([]string, b.of(1000))
	for i := range names {
		names[i] = fmt.Sprintf("c%04d", i)
		provider := strings.TrimSuffix(fmt.Sprintf("lab%d", i%fleetProviders), "0")
		documents = append(documents, cluster(names[i], provider, fmt.Sprintf("net%d", i%fleetProviders), fleetNodes-1))
	}
	return names, lab, networks, documents
}

// fleetRow measures the director that has just created the fleet.
func fleetRow(b *bench, r *rig.Rig, lists *list, clusters int, took time.Duration) (row, error) {
	now, peak, err := resident(r.PID())
	if err != nil {
		return row{}, err
	}
	spent, err := cpu(r.PID())
	if err != nil {
		return row{}, err
	}
	b.say(
		"the fleet is there after %s, %d MB resident, load %s; waiting for the queue to be swept", round(took), now,
		load(),
	)
	p99 := quantile(lists.parts, 0.99)
	return row{
		fmt.Sprintf("%d clusters x %d nodes created on `sim`", clusters, fleetNodes),
		"<= 10 min, list of clusters p99 < 50 ms meanwhile, < 2 GB RSS",
		fmt.Sprintf("%s, list p99 %s, median %s of %d; %d MB at most; the director used %s of CPU time",
			round(took), round(p99), round(quantile(lists.parts, 0.5)), len(lists.parts), peak, round(spent)),
		took <= 10*time.Minute && p99 < 50*time.Millisecond && peak < 2000,
	}, nil
}

// startAll makes a plan for every cluster and starts it, a few at once.
func startAll(ctx context.Context, c *client.Client, names []string) error {
	const atOnce = 4
	todo := make(chan string)
	failed := make(chan error, atOnce)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for name := range todo {
				if _, err := begin(ctx, c, name); err != nil {
					failed <- fmt.Errorf("%s: %w", name, err)
					return
				}
			}
		})
	}
	var err error
	for _, name := range names {
		select {
		case todo <- name:
			continue
		case err = <-failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	close(todo)
	workers.Wait()
	select {
	case again := <-failed:
		if err == nil {
			err = again
		}
	default:
	}
	return err
}

// list reads the list of clusters again and again until all are ready.
type list struct {
	parts []time.Duration // of every answer; sorted once done is closed
	done  chan struct{}
	err   error
}

func watchList(ctx context.Context, b *bench, r *rig.Rig, c *client.Client, size int) *list {
	l := &list{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer func() { slices.Sort(l.parts) }()
		said := time.Now()
		for tick := time.NewTicker(250 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				l.err = ctx.Err()
				return
			case <-tick.C:
			}
			counts, err := l.read(ctx, c)
			if err != nil {
				l.err = err
				return
			}
			if time.Since(said) > 15*time.Second {
				said = time.Now()
				now, _, _ := resident(r.PID()) // for the eye alone
				b.say("clusters %v, %d MB, load %s", counts, now, load())
			}
			if counts["ready"] == size || counts["failed"] > 0 {
				return
			}
		}
	}()
	return l
}

// read reads the whole list once, in the parts that directorctl asks for.
func (l *list) read(ctx context.Context, c *client.Client) (map[string]int, error) {
	counts := map[string]int{}
	for after := ""; ; {
		start := time.Now()
		part, err := c.ClusterPage(ctx, after, client.ClusterColumns...)
		if err != nil {
			return nil, err
		}
		l.parts = append(l.parts, time.Since(start))
		for _, v := range part.Items {
			counts[v.Status]++
		}
		if after = part.Continue; after == "" {
			return counts, nil
		}
	}
}

func (l *list) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idleShare is how much of a core the process uses over a minute, once the records of what it did have been swept.
func idleShare(ctx context.Context, pid int) (float64, error) {
	const sweep, span = 90 * time.Second, time.Minute
	if err := pause(ctx, sweep); err != nil {
		return 0, err
	}
	before, err := cpu(pid)
	if err == nil {
		err = pause(ctx, span)
	}
	if err != nil {
		return 0, err
	}
	after, err := cpu(pid)
	return (after - before).Seconds() / span.Seconds(), err
}
