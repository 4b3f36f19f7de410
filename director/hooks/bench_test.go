package hooks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// BenchmarkCommitToFirstByte measures how long it takes from an event of the journal until the endpoint has the
// request, over a new TLS connection each.
func BenchmarkCommitToFirstByte(b *testing.B) {
	l := openLab(b)
	e := l.hook("h", webhooktest.JSON(200, ""), nil)
	n := 0
	for b.Loop() {
		id := fmt.Sprintf("p%d", n)
		l.begin(id, asks("h", func(p *step.HookParams) { p.Mode = model.HookNotify }))
		l.ends(id, plan.StatusDone)
		n++
	}
	l.await("all is told", func() bool { return len(e.Got()) >= n })
	at := map[string]time.Time{}
	for _, r := range e.Got() {
		if _, again := at[r.ID]; !again {
			at[r.ID] = r.At
		}
	}
	var took []time.Duration
	for i := range n {
		for _, d := range l.deliveries(fmt.Sprintf("p%d", i)) {
			took = append(took, at[d.ID].Sub(d.Created))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}
