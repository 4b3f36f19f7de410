package operations

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// While machines are on a network only what keeps their addresses valid may change.
func TestANetworkUnderMachinesKeepsTheirAddresses(t *testing.T) {
	t.Parallel()
	l := openLab(t, 0, 0)
	ctx := t.Context()
	const doc = "apiVersion: kaas/v1\nkind: Network\nmetadata: {name: nfs}\n" +
		"spec: {provider: lab, mode: nat, cidr: 10.90.0.0/24, gateway: 10.90.0.1, pool: {ranges: [10.90.0.10-10.90.0.20]}}\n"
	apply := func(old, replacement string) error {
		_, err := l.Apply(ctx, "admin", []byte(strings.Replace(doc, old, replacement, 1)), "", false)
		return err
	}
	if err := apply("", ""); err != nil {
		t.Fatal(err)
	}
	m := director.Machine{ID: "m1", Cluster: "c", ClusterUID: "u", Name: "c-w-1", Provider: "lab", Network: "nfs", Address: "10.90.0.12"}
	if err := l.plan(ctx, "p1", true, m); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ old, replacement, field string }{
		"a wider range":          {"10.90.0.0/24", "10.90.0.0/16", "spec.cidr"},
		"another gateway":        {"gateway: 10.90.0.1", "gateway: 10.90.0.2", "spec.gateway"},
		"another mode":           {"mode: nat", "mode: open", "spec.mode"},
		"a pool without it":      {"10.90.0.10-10.90.0.20", "10.90.0.13-10.90.0.20", "spec.pool"},
		"a hole in the pool":     {"]}", "], exclude: [10.90.0.12]}", "spec.pool"},
		"a wider pool":           {"10.90.0.20", "10.90.0.99", ""},
		"other name servers":     {"pool:", "dns: [10.90.0.1], pool:", ""},
		"another route":          {"pool:", "routes: [{to: 10.1.0.0/16, via: 10.90.0.3}], pool:", ""},
		"a hole where none is":   {"]}", "], exclude: [10.90.0.19]}", ""},
		"everything as it was":   {"", "", ""},
		"further time servers":   {"pool:", "ntp: [10.90.0.1], pool:", ""},
		"no machine's addresses": {"10.90.0.10-", "10.90.0.11-", ""},
	} {
		err := apply(tt.old, tt.replacement)
		if tt.field == "" && err != nil || tt.field != "" && (director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error()+fieldText(err), tt.field)) {
			t.Errorf("%s: got %v, want a refusal of %q", name, err, tt.field)
		}
	}
	if err := l.Store.BuryMachine(ctx, "m1", l.Now()); err != nil {
		t.Fatal(err)
	}
	if err := apply("10.90.0.0/24", "10.90.0.0/16"); err != nil {
		t.Errorf("without machines: %v", err)
	}
}

func fieldText(err error) (out string) {
	for _, f := range fieldsOf(err) {
		out += f.String()
	}
	return out
}
