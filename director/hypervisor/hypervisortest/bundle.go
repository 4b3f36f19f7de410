package hypervisortest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// bundle is what one case works with.
type bundle struct {
	*testing.T
	Subject
	ctx context.Context
	b   hypervisor.Backend
	why *string // why the case was skipped
}

// Skip skips the case, and remembers why.
func (b bundle) Skip(args ...any) {
	b.Helper()
	*b.why = strings.TrimSuffix(fmt.Sprintln(args...), "\n")
	b.T.Skip(args...)
}

// Skipf skips the case, and remembers why.
func (b bundle) Skipf(format string, args ...any) {
	b.Helper()
	b.Skip(fmt.Sprintf(format, args...))
}

// open returns another connection, closed with the case.
func (b bundle) open() hypervisor.Backend {
	b.Helper()
	x := b.Open(b.T)
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	return x
}

func capability[T any](b bundle) T {
	b.Helper()
	c, ok := hypervisor.Capability[T](b.b)
	if !ok {
		b.Skipf("the back end is no %v", reflect.TypeFor[T]())
	}
	return c
}

// spec is a VM of the case; whatever the case leaves of it is removed.
func (b bundle) spec(name string) hypervisor.Spec {
	b.Helper()
	id := RandomID("m")
	s := hypervisor.Spec{
		Key: director.Stamp{Director: b.Director, Machine: id}, Name: RandomID(name + "-"), Host: b.Host,
		CPUs: 1, Memory: b.Memory, Image: b.Image, RootDisk: b.RootDisk,
		NICs: []hypervisor.NIC{{
			Network: b.Network, MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7],
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")},
		}},
		Seed: hypervisor.Seed{
			MetaData: []byte("instance-id: x\n"), UserData: []byte("#cloud-config\n"),
			NetworkConfig: []byte("version: 2\n"),
		},
	}
	b.Cleanup(func() { b.sweep(s.Key) })
	return s
}

// sweep removes everything of the stamp, without the case's context, which may have ended.
func (b bundle) sweep(key director.Stamp) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Minute)
	defer cancel()
	x := b.Open(b.T)
	defer x.Close()
	vms, err := x.List(ctx, hypervisor.Filter{Director: key.Director, Machine: key.Machine})
	if err != nil {
		b.Errorf("List while tidying up: %v", err)
	}
	for _, v := range vms {
		if err := x.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: key, DataDisks: true}); err != nil {
			b.Errorf("Delete while tidying up: %v", err)
		}
	}
	if v, ok := hypervisor.Capability[hypervisor.Volumes](x); ok {
		if err := v.DeleteVolume(ctx, key); err != nil {
			b.Errorf("DeleteVolume while tidying up: %v", err)
		}
	}
}

func withData(s hypervisor.Spec) hypervisor.Spec {
	s.DataDisks = []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}, {Serial: "more", Size: 8 << 20}}
	return s
}

// ready repeats Ensure until the VM is ready.
func (b bundle) ready(x hypervisor.Backend, s hypervisor.Spec) hypervisor.VM {
	b.Helper()
	for {
		v, err := x.Ensure(b.ctx, s)
		if err != nil {
			b.Fatalf("Ensure: %v", err)
		}
		if v.Ready {
			if v.CPUs != 0 && v.CPUs != s.CPUs || v.Memory != 0 && v.Memory != s.Memory {
				b.Errorf(
					"%s is said to have %d vCPUs and %d bytes, want %d and %d", s.Name, v.CPUs, v.Memory, s.CPUs,
					s.Memory,
				)
			}
			return v
		}
		if b.ctx.Err() != nil {
			b.Fatalf("%s is not ready in time", s.Name)
		}
	}
}

func (b bundle) get(id hypervisor.ID) hypervisor.VM {
	b.Helper()
	v, err := b.b.Get(b.ctx, id)
	if err != nil {
		b.Fatalf("Get: %v", err)
	}
	return v
}

func (b bundle) delete(id hypervisor.ID, o hypervisor.DeleteOptions) {
	b.Helper()
	if err := b.b.Delete(b.ctx, id, o); err != nil {
		b.Fatalf("Delete: %v", err)
	}
}

// untouched fails the case if the VM is not as it was before.
func (b bundle) untouched(before hypervisor.VM) {
	b.Helper()
	if diff := cmp.Diff(before, b.get(before.ID)); diff != "" {
		b.Errorf("%s was touched (-before +after):\n%s", before.Name, diff)
	}
}

// onlyOne fails the case if the director has other VMs than this one.
func (b bundle) onlyOne(v hypervisor.VM) {
	b.Helper()
	if diff := cmp.Diff([]hypervisor.VM{v}, b.list(hypervisor.Filter{Director: b.Director})); diff != "" {
		b.Errorf("List (-want +got):\n%s", diff)
	}
}

// stranger makes a VM without a stamp, or skips the case.
func (b bundle) stranger(name string) hypervisor.ID {
	b.Helper()
	if b.Stranger == nil {
		b.Skip("the subject cannot make a VM by other means")
	}
	return b.Stranger(b.T, name)
}

func (b bundle) list(f hypervisor.Filter) []hypervisor.VM {
	b.Helper()
	vms, err := b.b.List(b.ctx, f)
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	return vms
}

// remains fails the case if anything of the director is left.
func (b bundle) remains(what string) {
	b.Helper()
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) > 0 {
		b.Errorf("%s: VMs are left: %v", what, got)
	}
	if v, ok := hypervisor.Capability[hypervisor.Volumes](b.b); ok {
		got, err := v.ListVolumes(b.ctx, b.Director)
		if err != nil {
			b.Fatalf("ListVolumes: %v", err)
		}
		if len(got) > 0 {
			b.Errorf("%s: volumes are left: %v", what, got)
		}
	}
	if b.Remains != nil {
		if got := b.Remains(b.T); len(got) > 0 {
			b.Errorf("%s: left behind:\n%s", what, strings.Join(got, "\n"))
		}
	}
}

func (b bundle) wantKind(err error, kind director.Kind, call string) {
	b.Helper()
	if err == nil {
		b.Errorf("%s: no error, want %s", call, kind)
		return
	}
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		b.Errorf("%s: error is a %T and no *director.Error: %v", call, err, err)
		return
	}
	if e.Kind != kind {
		b.Errorf("%s: kind %s, want %s: %v", call, e.Kind, kind, err)
	}
	if e.Op == "" || e.Msg == "" {
		b.Errorf("%s: error has no op or no message: %#v", call, e)
	}
}
