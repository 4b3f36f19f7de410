package libvirt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// A connection test looks at each host by itself, and says of what is wrong what to do.
func TestProbe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	probe := func(hosts ...HostConfig) []string {
		t.Helper()
		x := *f
		x.cfg.Hosts = hosts
		b := x.open(t)
		defer b.Close()
		probes, err := b.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range probes {
			line := p.Host + " " + p.What + ": ok"
			switch {
			case p.Err != nil && (p.Found != "" || director.HintOf(p.Err) == ""):
				t.Errorf("%s: found %q, %v without a hint", line, p.Found, p.Err)
			case p.Err == nil && p.Found == "":
				t.Errorf("%s: nothing is said of it", line)
			}
			if p.Err != nil {
				line = fmt.Sprintf("%s %s: %s", p.Host, p.What, director.KindOf(p.Err))
			}
			if p.What == "connection" && p.Err == nil && !strings.Contains(p.Found, "test:///default") {
				t.Errorf("the connection tells %q", p.Found)
			}
			out = append(out, line)
		}
		return out
	}
	good := f.cfg.Hosts[0]
	if diff := cmp.Diff(
		[]string{"h1 connection: ok", "h1 virtualisation: ok", "h1 storage pool " + good.Pool + ": ok", "h1 VMs: ok"},
		probe(good),
	); diff != "" {
		t.Error(diff)
	}
	poolless := HostConfig{Name: "h2", URI: f.uri, Pool: "nopool"}
	nobody := HostConfig{Name: "h3", URI: "qemu+unix:///system?socket=/nonexistent/sock", Pool: "default"}
	if diff := cmp.Diff([]string{
		"h1 connection: ok", "h1 virtualisation: ok", "h1 storage pool " + good.Pool + ": ok", "h1 VMs: ok",
		"h2 connection: ok", "h2 virtualisation: ok", "h2 storage pool nopool: not_found", "h2 VMs: ok",
		"h3 connection: unavailable",
	}, probe(nobody, poolless, good)); diff != "" {
		t.Error(diff)
	}
}
