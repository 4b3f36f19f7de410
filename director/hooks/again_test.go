package hooks

import (
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/webhook"
)

// waits has a delivery fail again and again, and returns the waits between its attempts until it is final.
func waits(d director.HookDelivery, o webhook.Outcome) []time.Duration {
	var out []time.Duration
	now := d.Created
	for d.State == director.HookDue && len(out) < 100 {
		outcome(&d, o, now)
		if d.State == director.HookDue {
			out = append(out, d.Next.Sub(now))
			now = d.Next
		}
	}
	return out
}

// Notifications are sent again for 75 hours, and questions until their deadline, each at least once a minute.
func TestWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1_800_000_000, 0)
	away := webhook.Outcome{Status: 503, Problem: "the status is 503"}
	sum := func(list []time.Duration) (all time.Duration) {
		for _, w := range list {
			all += w
		}
		return all
	}
	told := waits(director.HookDelivery{State: director.HookDue, Created: begun}, away)
	if len(told) != 9 || told[0] < 5*time.Second || told[0] > 6*time.Second ||
		sum(told) < 75*time.Hour || sum(told) > 84*time.Hour {
		t.Errorf("a notification is sent again after %v, in all %s", told, sum(told))
	}
	const deadline = 30 * time.Minute
	question := director.HookDelivery{State: director.HookDue, Created: begun, Deadline: begun.Add(deadline)}
	asked := waits(question, away)
	if len(asked) < 30 || asked[0] < time.Second || asked[0] > 2*time.Second || sum(asked) != deadline {
		t.Errorf("a question is asked again after %v, in all %s", asked, sum(asked))
	}
	for i, w := range asked {
		if w > 66*time.Second || i > 0 && i < 6 && w <= asked[i-1] {
			t.Errorf("question %d is asked again after %s", i, w)
		}
	}
	away.Retry = 2 * time.Hour // as Retry-After says
	if told := waits(director.HookDelivery{State: director.HookDue, Created: begun}, away); told[0] != 2*time.Hour {
		t.Errorf("an endpoint that asks for two hours is left alone for %s", told[0])
	}
	if asked := waits(question, away); len(asked) != 1 || asked[0] != deadline {
		t.Errorf("one that asks for more than there is until the deadline: %v", asked)
	}
}
