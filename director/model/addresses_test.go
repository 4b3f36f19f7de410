package model

import (
	"net/netip"
	"slices"
	"testing"
)

func ranges(t *testing.T, texts ...string) []AddressRange {
	t.Helper()
	out := make([]AddressRange, len(texts))
	for i, text := range texts {
		if err := out[i].UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// What a pool gives away: in order, each address once, without holes, and never a network's first and last address.
func TestPools(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr
	tests := map[string]struct {
		pool AddressPool
		used []string
		want []string
	}{
		"one range": {
			AddressPool{From: a("10.1.0.8"), To: a("10.1.0.10")}, nil, []string{"10.1.0.8", "10.1.0.9", "10.1.0.10"},
		},
		"the same, written shorter": {
			AddressPool{Ranges: ranges(t, "10.1.0.8-10.1.0.10")}, nil, []string{"10.1.0.8", "10.1.0.9", "10.1.0.10"},
		},
		"several, from the lowest": {
			AddressPool{From: a("10.1.0.20"), To: a("10.1.0.21"), Ranges: ranges(t, "10.1.0.30", "10.1.0.4-10.1.0.5")},
			nil,
			[]string{"10.1.0.4", "10.1.0.5", "10.1.0.20", "10.1.0.21", "10.1.0.30"},
		},
		"holes, also over ends": {
			AddressPool{
				Ranges:  ranges(t, "10.1.0.8/29"),
				Exclude: ranges(t, "10.1.0.1-10.1.0.8", "10.1.0.10", "10.1.0.13-10.1.0.99"),
			}, nil, []string{"10.1.0.9", "10.1.0.11", "10.1.0.12"},
		},
		"used ones": {
			AddressPool{Ranges: ranges(t, "10.1.0.8-10.1.0.10")},
			[]string{"10.1.0.8", "10.1.0.10"},
			[]string{"10.1.0.9"},
		},
		"not the network nor broadcast": {
			AddressPool{Ranges: ranges(t, "10.1.0.0-10.1.0.1", "10.1.0.254/31")},
			nil,
			[]string{"10.1.0.1", "10.1.0.254"},
		},
		"none": {AddressPool{}, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := Network{CIDR: netip.MustParsePrefix("10.1.0.0/24"), Pool: tt.pool}
			used := map[netip.Addr]bool{}
			for _, u := range tt.used {
				used[a(u)] = true
			}
			if got := n.Addresses(); got != len(tt.want)+len(tt.used) {
				t.Errorf("%d addresses, want %d", got, len(tt.want)+len(tt.used))
			}
			free, err := n.Free(len(tt.want), used)
			var got []string
			for _, f := range free {
				got = append(got, f.String())
				if !n.Holds(f) {
					t.Errorf("%s was given away, and the pool does not hold it", f)
				}
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
			if _, err := n.Free(len(tt.want)+1, used); err == nil {
				t.Error("more addresses came than the pool has")
			}
		})
	}
}

// A wide pool is counted without walking over it.
func TestWidePool(t *testing.T) {
	t.Parallel()
	n := Network{CIDR: netip.MustParsePrefix("0.0.0.0/0"), Pool: AddressPool{Ranges: ranges(t, "0.0.0.0/0")}}
	if got := n.Addresses(); got != 1<<32-2 {
		t.Errorf("%d addresses", got)
	}
}

func TestStaticAddresses(t *testing.T) {
	t.Parallel()
	m := VMModel{Interfaces: []Interface{
		{Role: NICStorage, Network: "s", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
		{Role: NICInternal},
		{Role: NICServices, Network: "x"},
	}}
	if got := m.Interface(NICStorage).Static(1).String(); got != "10.1.0.1" {
		t.Errorf("node 1 has %s", got)
	}
	for _, got := range []netip.Addr{
		m.Interface(NICStorage).Static(2), m.Interface(NICInternal).Static(1), m.Interface("other").Static(1),
	} {
		if got.IsValid() {
			t.Errorf("an address of the pool is said to be %s", got)
		}
	}
	if f := m.Further(); len(f) != 2 || f[0].Role != NICServices || f[1].Role != NICStorage {
		t.Errorf("the further adapters are %+v", f)
	}
}
