package sim

import (
	"math/rand/v2"
	"time"
)

// Timing is how the calls of a verb go.
type Timing struct {
	Latency time.Duration
	Jitter  time.Duration // up to so much is added
	Faults  float64       // share of the calls that fail, 0 to 1
}

// weather is what goes slow and wrong by chance.
type weather struct {
	timings map[Verb]Timing
	random  *rand.Rand
}

// SetWeather makes calls take their time and fail by chance, from now on. The same seed gives the same chances in the
// same order of calls.
func (w *World) SetWeather(seed uint64, timings map[Verb]Timing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weather = weather{timings: timings, random: rand.New(rand.NewPCG(seed, uint64(w.next)))}
}

// SetHosts replaces the hosts. What lies on a host that is gone stays there, and no more finds room on it.
func (w *World) SetHosts(hosts ...Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		h.Host = Host{Name: h.Name}
	}
	for _, h := range hosts {
		w.host(h.Name).Host = h
	}
	for name, h := range w.hosts {
		if h.Host == (Host{Name: name}) && h.memory == 0 && h.space == 0 {
			delete(w.hosts, name)
		}
	}
}

// of rolls the dice for one call: half of the latency passes before the act and half after it, so that a caller that
// dies meanwhile leaves an act without a record.
func (w *weather) of(v Verb) (before, after time.Duration, fault *Fault) {
	t, ok := w.timings[v]
	if !ok {
		return 0, 0, nil
	}
	d := t.Latency
	if t.Jitter > 0 {
		d += time.Duration(w.random.Int64N(int64(t.Jitter)))
	}
	if t.Faults > 0 && w.random.Float64() < t.Faults {
		fault = &Fault{Verb: v, When: When(w.random.IntN(int(After) + 1))}
	}
	return d / 2, d - d/2, fault
}
