package libvirt

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func TestLayerOf(t *testing.T) {
	t.Parallel()
	s := director.Stamp{Director: "d", Machine: "m"}
	for name, want := range map[string]int{
		"kaas.d.m.root.qcow2": 0, layerName(s, 7): 7, "kaas.d.m.root.x.qcow2": -1, "kaas.d.m.root.0.qcow2": -1,
		"kaas.d.m.root.raw":          -1,
		"kaas.d.m.data.root.1.qcow2": -1, "kaas.d.other.root.1.qcow2": -1, "kaas.d.m.root.complete": -1,
	} {
		if got := layerOf(s, name); got != want {
			t.Errorf("layerOf(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestParseSnapshot(t *testing.T) {
	t.Parallel()
	const text = `<domainsnapshot><name>before</name><description>%s</description><creationTime>%s</creationTime>
		<domain type='qemu'><name>vm</name><devices>
			<disk type='file' device='disk'><source file='/pool/kaas.d.m.root.2.qcow2'/><target ` +
		`dev='vda'/><serial>kaas-root</serial></disk>
			<disk type='file' device='disk'><source file='/pool/kaas.d.m.data.x.qcow2'/><target ` +
		`dev='vdb'/><serial>x</serial></disk>
		</devices></domain></domainsnapshot>`
	s, err := parseSnapshot(fmt.Sprintf(text, ourSnapshot+"d.", "1700000000"))
	if err != nil || !s.Ours || s.Name != "before" || s.Created.Unix() != 1700000000 ||
		s.base != "/pool/kaas.d.m.root.2.qcow2" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseSnapshot(fmt.Sprintf(text, "by hand", "1700000000")); err != nil || s.Ours {
		t.Errorf("somebody's: %+v, %v", s, err)
	}
	if _, err := parseSnapshot(fmt.Sprintf(text, "", "yesterday")); err == nil {
		t.Error("a time that is none was taken")
	}
}

// A chain of files is kept as far as something needs it.
func TestRootDiskFiles(t *testing.T) {
	t.Parallel()
	r := rootDisk{layers: map[string]string{"root": "image", "1": "root", "2": "1", "branch": "1", "lost": "root"}}
	r.disk.Source = &virtxml.DomainDiskSource{File: &virtxml.DomainDiskSourceFile{File: "2"}}
	keep := func() string {
		var names []string
		for name := range r.needed() {
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := keep(); got != "1 2 image root" {
		t.Errorf("needed without snapshots: %s", got)
	}
	r.have = []taken{{base: "branch"}}
	if got := keep(); got != "1 2 branch image root" {
		t.Errorf("needed with a snapshot on another branch: %s", got)
	}
	delete(r.layers, "lost")
	if r.lone("1") {
		t.Error("a file with two above it would be written to")
	}
	delete(r.layers, "branch")
	r.have = []taken{{base: "1"}}
	if r.lone("1") {
		t.Error("the file of a snapshot would be written to")
	}
	r.have = nil
	if !r.lone("1") || !r.lone("root") || r.lone("image") {
		t.Errorf("lone: 1 %v, root %v, image %v; want the first two", r.lone("1"), r.lone("root"), r.lone("image"))
	}
}

// TestLabSnapshots looks at the bytes of a root disk over the life of its snapshots, with calls that are cut off at
// every line.
func TestLabSnapshots(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	b, s, vm := f.running(t)
	ctx := t.Context()
	guard := hypervisor.DefaultSnapshotGuard()
	l := &labSnapshots{t: t, b: b, id: vm.ID, key: s.Key}
	take := func(name string) func() error {
		return func() error {
			_, err := b.TakeSnapshot(ctx, vm.ID, s.Key, name, guard)
			return err
		}
	}
	forget := func(name string) func() error {
		return func() error { return b.DeleteSnapshot(ctx, vm.ID, s.Key, name) }
	}

	l.write(0x11)
	l.cutOff("TakeSnapshot of a VM that is off", take("one"), "layer")
	l.power(hypervisor.PowerOn)
	l.cutOff("TakeSnapshot", take("two"), "snapshot") // the same bytes as one
	l.write(0x22)
	l.power(hypervisor.PowerOn)
	l.want(0x22, "after two snapshots")
	l.cutOff(
		"RevertSnapshot", func() error { return b.RevertSnapshot(ctx, vm.ID, s.Key, "one") }, "off", "layer",
		"reverted",
	)
	l.want(0x11, "back at the first snapshot,")
	l.write(0x33)
	l.power(hypervisor.PowerOn)
	if err := b.RevertSnapshot(ctx, vm.ID, s.Key, "two"); err != nil { // on the other branch
		t.Fatal(err)
	}
	l.want(0x11, "back at the second snapshot,")
	l.write(0x44)
	l.power(hypervisor.PowerOn)

	if _, err := b.TakeSnapshot(ctx, vm.ID, s.Key, "a/b", guard); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a name that cannot be: %v", err)
	}
	theirs := somebodysSnapshot(t, f, vm.ID, "one")
	if err := b.DeleteSnapshot(ctx, vm.ID, s.Key, "theirs"); director.KindOf(err) != director.KindConflict {
		t.Errorf("DeleteSnapshot of somebody's: %v", err)
	}
	if _, err := b.TakeSnapshot(ctx, vm.ID, s.Key, "theirs", guard); director.KindOf(err) != director.KindConflict {
		t.Errorf("TakeSnapshot under the name of somebody's: %v", err)
	}
	theirs()

	l.cutOff("DeleteSnapshot", forget("one"), "forgotten")
	l.want(0x44, "without the first snapshot")
	if err := forget("two")(); err != nil {
		t.Fatal(err)
	}
	l.want(0x44, "without snapshots")
	if err := forget("two")(); err != nil { // the VM was off in between; what is left to do is done now
		t.Fatal(err)
	}
	active, all := l.files()
	if diff := cmp.Diff([]string{path.Base(active)}, all); diff != "" || layerOf(s.Key, path.Base(active)) != 0 {
		t.Errorf("files without snapshots (-want +got), of which %s is active:\n%s", active, diff)
	}
	l.want(0x44, "in one file again")
}

// labSnapshots is a VM whose root disk is looked at.
type labSnapshots struct {
	t   *testing.T
	b   *Backend
	id  hypervisor.ID
	key director.Stamp
}

// files returns the root disk's active file, and the names of all.
func (l *labSnapshots) files() (active string, all []string) {
	l.t.Helper()
	_, err := inPool(l.t.Context(), l.b.hosts[0], "test", func(p *pool) (none, error) {
		return none{}, p.withRoot("test", l.id, l.key, func(r *rootDisk) error {
			active = r.active()
			for file := range r.layers {
				all = append(all, path.Base(file))
			}
			return nil
		})
	})
	if err != nil {
		l.t.Fatal(err)
	}
	slices.Sort(all)
	return active, all
}

func (l *labSnapshots) power(p hypervisor.Power) {
	l.t.Helper()
	if err := l.b.SetPower(l.t.Context(), l.id, p); err != nil {
		l.t.Fatal(err)
	}
}

func (l *labSnapshots) qemuIO(command string) string {
	l.t.Helper()
	active, _ := l.files()
	out, err := exec.CommandContext(l.t.Context(), "qemu-io", "-f", "qcow2", "-c", command, active).CombinedOutput()
	if err != nil {
		l.t.Fatalf("qemu-io %s %s: %v\n%s", command, active, err, out)
	}
	return string(out)
}

func (l *labSnapshots) write(pattern int) {
	l.t.Helper()
	l.power(hypervisor.PowerOff)
	l.qemuIO(fmt.Sprintf("write -P %d 1M 4k", pattern))
}

func (l *labSnapshots) want(pattern int, when string) {
	l.t.Helper()
	l.power(hypervisor.PowerOff)
	if out := l.qemuIO(fmt.Sprintf("read -P %d 1M 4k", pattern)); strings.Contains(out, "verification failed") {
		l.t.Errorf("%s the disk does not have the pattern %d:\n%s", when, pattern, out)
	}
	l.power(hypervisor.PowerOn)
}

// cutOff runs the call once for each point, is cut off there, and again in peace.
func (l *labSnapshots) cutOff(what string, do func() error, points ...string) {
	l.t.Helper()
	for _, point := range points {
		l.b.at = func(p string) error {
			if p == point {
				return errors.New("cut off")
			}
			return nil
		}
		if err := do(); err == nil {
			l.t.Errorf("%s was not cut off at %s", what, point)
		}
		l.b.at = func(string) error { return nil }
		if err := do(); err != nil {
			l.t.Errorf("%s after it was cut off at %s: %v", what, point, err)
		}
	}
}

// somebodysSnapshot has libvirt know a snapshot that a person took, of a VM that has one of ours, and returns how to
// forget it.
func somebodysSnapshot(t *testing.T, f *fixture, id hypervisor.ID, like string) func() {
	t.Helper()
	dom, err := f.keep.LookupDomainByUUIDString(string(id))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dom.Free() }()
	ours, err := dom.SnapshotLookupByName(like, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Free() }()
	text, err := ours.GetXMLDesc(0)
	if err != nil {
		t.Fatal(err)
	}
	text = strings.NewReplacer(
		"<name>"+like+"</name>", "<name>theirs</name>", ourSnapshot, "Taken by a person ",
	).Replace(text)
	theirs, err := dom.CreateSnapshotXML(text, virt.DOMAIN_SNAPSHOT_CREATE_REDEFINE)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(theirs.Delete(virt.DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY), theirs.Free()); err != nil {
			t.Fatal(err)
		}
	}
}
