package daemon

import (
	"net/netip"
	"testing"
	"time"
)

func TestRoutesAreRememberedForAMoment(t *testing.T) {
	t.Parallel()
	asked, now := 0, time.Unix(1000, 0)
	answer, reached := netip.MustParseAddr("10.0.0.1"), true
	r := &routes{
		find: func(netip.Addr) (netip.Addr, bool) { asked++; return answer, reached },
		now:  func() time.Time { return now },
	}
	one, two := netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("10.88.0.2")
	for _, tt := range []struct {
		after time.Duration
		other netip.Addr
		asked int // so far
	}{
		{other: one, asked: 1},
		{other: one, asked: 1},
		{other: two, asked: 2},
		{after: routeLife - 1, other: one, asked: 2},
		{after: 1, other: one, asked: 3},
	} {
		now = now.Add(tt.after)
		if got, ok := r.localAddress(tt.other); got != answer || !ok || asked != tt.asked {
			t.Errorf("%s: %s, %t, asked %d times, want %d", tt.other, got, ok, asked, tt.asked)
		}
	}
	now, reached = now.Add(routeLife), false
	if _, ok := r.localAddress(one); ok {
		t.Error("a route that has gone is still there")
	}
}
