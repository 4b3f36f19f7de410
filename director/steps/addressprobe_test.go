package steps

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// entry is a message of the kernel about a neighbour.
func entry(state uint16, attributes ...[]byte) []byte {
	b := make([]byte, neighborHeader)
	binary.NativeEndian.PutUint16(b[8:], state)
	for _, a := range attributes {
		b = append(b, a...)
	}
	return b
}

func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// Only who has answered recently is a neighbour: what is remembered, asked for or given up is not.
func TestNeighbors(t *testing.T) {
	t.Parallel()
	address, mac := attribute(neighborAddress, 10, 1, 0, 9), attribute(neighborHardware, 0x52, 0x54, 0, 1, 2, 0xaf)
	for name, tt := range map[string]struct {
		entry []byte
		want  string
	}{
		"reachable":  {entry(neighborReachable, address, mac), "10.1.0.9 52:54:00:01:02:af"},
		"stale":      {entry(4, address, mac), ""},
		"incomplete": {entry(1, address), ""},
		"failed":     {entry(0x20, address), ""},
		"cut off":    {entry(neighborReachable, address, mac[:6]), ""},
		"empty":      {entry(neighborReachable), ""},
	} {
		got := ""
		if a, mac, ok := neighbor(tt.entry); ok {
			got = a.String() + " " + mac
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if _, err := neighbors(); err != nil {
		t.Errorf("the kernel's table: %v", err)
	}
}

// answering is a network on which hosts answer at some addresses.
type answering struct {
	Nodes
	at map[string]bool
}

func (a answering) Answers(_ context.Context, m director.Machine) (bool, error) {
	return a.at[m.Address], nil
}

func TestLook(t *testing.T) {
	t.Parallel()
	var ask []director.Machine
	for _, a := range []string{"10.1.0.1", "10.1.0.2", "10.1.0.3"} {
		ask = append(ask, director.Machine{Address: a})
	}
	got := Env{Machines: Machines{Nodes: answering{at: map[string]bool{"10.1.0.2": true}}}}.Look(t.Context(), ask, nil)
	if diff := cmp.Diff(
		map[string]string{"10.1.0.2": "a host answers at its SSH port"}, got.Taken,
	); diff != "" || len(got.ARP) > 0 {
		t.Errorf("%v %s", got, diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (Env{Machines: Machines{Nodes: answering{}}}).Look(ctx, ask, nil); len(got.Taken) > 0 {
		t.Errorf("nobody looked, and saw %v", got)
	}
	// What is on a network of the director's own is known as such.
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range own {
		if p, err := netip.ParsePrefix(
			i.String(),
		); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && p.Bits() < 31 {
			near := onLink([]director.Machine{{Address: p.Masked().Addr().Next().String()}, {Address: "203.0.113.77"}})
			if len(near) != 1 {
				t.Errorf("near are %v, by %s", near, p)
			}
		}
	}
}
