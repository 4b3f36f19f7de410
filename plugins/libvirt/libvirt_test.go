package libvirt

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{
		Hosts:      []HostConfig{{Name: "a", URI: "qemu:///system"}, {Name: "a", URI: "nothing"}},
		DomainType: "xen", Firmware: "openboot",
	})
	e, ok := errors.AsType[*director.Error](err)
	if !ok || e.Kind != director.KindInvalid {
		t.Fatalf("got %v, want invalid", err)
	}
	var paths []string
	for _, f := range e.Fields {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"domainType", "firmware", "hosts[1].name", "hosts[1].uri"}, paths); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, err := Open(Config{}); director.KindOf(err) != director.KindInvalid {
		t.Errorf("no hosts: %v", err)
	}
}
