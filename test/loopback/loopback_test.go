package loopback

import (
	"net"
	"net/netip"
	"testing"
)

func TestFree(t *testing.T) {
	t.Parallel()
	first, err := ephemeral()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.AddrPort]bool{}
	for range 200 {
		a := FreeFor(t)
		if seen[a] {
			t.Errorf("%s was given twice", a)
		}
		if p := int(a.Port()); p < lowest || first >= lowest+few && p >= first {
			t.Errorf("got %s, and Linux gives out ports from %d on", a, first)
		}
		seen[a] = true
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
