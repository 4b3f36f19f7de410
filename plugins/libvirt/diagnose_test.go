package libvirt

import (
	"strings"
	"testing"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Why a domain does not run is said with what to do.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	b := f.open(t)
	defer b.Close()
	id := f.stranger(t, "diagnosed")
	diagnose := func() error {
		t.Helper()
		probes, err := b.Diagnose(t.Context(), id)
		if err != nil || len(probes) != 1 || probes[0].What != "domain" ||
			(probes[0].Found == "") != (probes[0].Err != nil) {
			t.Fatalf("%+v, %v", probes, err)
		}
		return probes[0].Err
	}
	if err := diagnose(); err == nil || !strings.Contains(err.Error(), "is off") {
		t.Errorf("of a domain that is off: %v", err)
	}
	if err := b.SetPower(t.Context(), id, hypervisor.PowerOn); err != nil {
		t.Fatal(err)
	}
	if err := diagnose(); err != nil {
		t.Errorf("of a domain that runs: %v", err)
	}
	dom, err := f.keep.LookupDomainByName("diagnosed")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dom.Free() }()
	if err := dom.Suspend(); err != nil {
		t.Fatal(err)
	}
	if err := diagnose(); err == nil || !strings.Contains(err.Error(), "is paused") || director.HintOf(err) == "" {
		t.Errorf("of a domain that is paused: %v", err)
	}
	if err := dom.Destroy(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Diagnose(
		t.Context(), "1c1e5d4a-0000-0000-0000-000000000000",
	); director.KindOf(err) != director.KindNotFound {
		t.Errorf("of no VM: %v", err)
	}
}

func TestHalted(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]struct {
		state  virt.DomainState
		reason int
	}{
		"cannot be written": {virt.DOMAIN_PAUSED, int(virt.DOMAIN_PAUSED_IOERROR)},
		"ended by itself":   {virt.DOMAIN_SHUTOFF, int(virt.DOMAIN_SHUTOFF_CRASHED)},
		"has crashed":       {virt.DOMAIN_CRASHED, 0}, "is in state": {virt.DOMAIN_NOSTATE, 0},
	} {
		if err := halted(
			"test", "n", "h", s.state, s.reason,
		); err == nil || !strings.Contains(err.Error(), want) || director.HintOf(err) == "" {
			t.Errorf("%v: %v, want %s", s, err, want)
		}
	}
	if err := halted("test", "n", "h", virt.DOMAIN_BLOCKED, 0); err != nil {
		t.Errorf("a domain that waits for a disk: %v", err)
	}
}
