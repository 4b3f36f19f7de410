package hypervisor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiscoveryIsBounded(t *testing.T) {
	t.Parallel()
	var d Discovery
	for i := range MostDiscovered + 7 {
		d.Items = append(d.Items, Discovered{Kind: FoundFolder, In: "/DC", Name: fmt.Sprintf("/DC/vm/%04d", i)})
	}
	d.Items = append(
		d.Items, Discovered{Kind: FoundHost, Name: "b"}, Discovered{Kind: FoundHost, Name: "a"},
		Discovered{Kind: FoundHost, In: "z", Name: "0"},
	)
	slices.Reverse(d.Items)
	d.Bound()
	if len(d.Items) != MostDiscovered+3 {
		t.Errorf("%d items", len(d.Items))
	}
	if diff := cmp.Diff(map[DiscoveredKind]int{FoundFolder: 7}, d.Left); diff != "" {
		t.Error(diff)
	}
	var names []string
	for _, i := range d.Items[:4] {
		names = append(names, i.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "0", "/DC/vm/0000"}, names); diff != "" {
		t.Error(diff)
	}
}
