package ansible_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/ansible"
)

// A failure is told while other hosts still work, with all hosts so far that failed alike, and what is ignored is not.
func TestFailuresAreToldAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gate := fifo(t)
	p := b.play(t, start+
		`emit '{"type":"host","status":"failed","ignored":true,"task":"T","role":"r","host":"h0","msg":"no matter"}'`+
		"\n"+
		on("h1", failedOn)+on("h3", failedOn)+`read -r line <"`+gate+`"
		emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h2"}'
		emit '{"type":"stats","stats":{"h1":{"failed":1},"h2":{"ok":1},"h3":{"failed":1}}}'; exit 2`)
	told := make(chan ansible.Group, 10)
	p.OnFailure = func(g ansible.Group) { told <- g }
	done := b.begin(t.Context(), p)
	var got []string
	for range 2 {
		select {
		case g := <-told:
			got = append(got, g.String())
		case <-time.After(2 * time.Minute):
			t.Fatal("nothing was told")
		}
	}
	want := []string{
		"host h1: task 'r : T' failed: it broke on h1", "hosts h1, h3: task 'r : T' failed: it broke on h1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	select {
	case o := <-done:
		t.Fatalf("the run has ended already: %v", o.err)
	default:
	}
	write(t, gate, "go\n")
	if o := <-done; playError(t, o.err).Class != ansible.ClassFailed {
		t.Error(o.err)
	}
	if len(told) > 0 {
		t.Errorf("told more: %v", <-told)
	}
}
