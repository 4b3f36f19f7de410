package house

import (
	"slices"
	"strings"
	"testing"
)

const root = "../.."

const (
	maxLines      = 60
	maxTestLines  = 100 // of a function in a _test.go
	maxExceptions = 9
)

// exceptions lists the functions that are longer than maxLines and read better that way, each with its reason.
// No function of a test is an exception.
var exceptions = map[string]string{}

// pending lists the functions that are still to be split. It only shrinks: a function that is short by now fails the
// test until it leaves the list.
var pending = strings.Fields(`
cmd/directorctl.(*app).inventoryCommand
cmd/directorctl.(*app).nodeRepairCommand
cmd/directorctl.(*app).phaseVerb
cmd/directorctl.(*app).watch
director/ansible.(*Runner).Play
director/ansible.(*Runner).run
director/ansible.TestPlayClassifiesByEvents
director/ansible.TestRealEvents
director/ansible.TestRealMessages
director/api.(*server).clusters
director/api.(*server).documents
director/api.(*server).images
director/api.(*server).ledger
director/api.(*server).providers
director/api.(*server).schedules
director/api.(*server).sessions
director/api.(*server).uploads
director/api.build
director/bundle.(*Bundle).Push
director/bundle.parse
director/daemon.(*Daemon).environment
director/daemon.(*Daemon).start
director/daemon.(Config).Validate
director/daemon.TestNoSecretGetsOut
director/daemon.TestPhasesGoOn
director/daemon.TestPhasesRollOverHosts
director/daemon.TestUnlockTakesAVMThatSomebodyElseHasMade
director/diskimage.(file).qcow2
director/diskimage.TestInspectRefusesWhatIsNoNodeImage
director/engine.TestStallsDuringAPlayNeverEndAPlan
director/hypervisor/cloudinit.(*Guest).validate
director/hypervisor/hypervisortest.render
director/imagestore.(*Store).make
director/inventory.(Templates).Render
director/inventory.(Type).mismatch
director/kube.TestRealAPIServer
director/kube.testRehearsal
director/kube.testWorkloads
director/ledger.TestCompare
director/model.(*validator).cluster
director/operations.(*Operations).VMs
director/operations.(*Operations).checkAddresses
director/operations.(*Operations).checkImage
director/operations.(*Operations).compare
director/operations.(*Operations).remembered
director/operations.(*Operations).start
director/operations.TestKillLoop
director/plan.Waits
director/plan.survey
director/planner.(*draft).create
director/planner.(World).address
director/planner.(World).match
director/planner.Delete
director/planner.Node
director/planner.TakeOut
director/planner.TestMoves
director/planner.TestPlansOfARunningCluster
director/planner.TestRefusalsOnARunningCluster
director/planner.Upgrade
director/steps.startNode
images/release/assemble.(input).fill
images/release/assemble.(input).images
plugins/libvirt.(*Backend).Probe
plugins/libvirt.(*Backend).build
plugins/libvirt.(*Backend).copyRoot
plugins/libvirt.(*Backend).domainXML
plugins/libvirt.(*Backend).place
plugins/libvirt.(*host).translate
plugins/libvirt.TestLabNode
plugins/libvirt.TestLabSnapshots
plugins/libvirt.TestVolumeGroup
plugins/libvirt.attachKept
plugins/libvirt.iso
plugins/vsphere.(*Backend).copyTemplate
plugins/vsphere.(*Backend).create
plugins/vsphere.(*Backend).survey
plugins/vsphere.(*Backend).translate
plugins/vsphere.TestKillLoop
test/bench.fleet
test/bench.killed
test/bench.logs
test/lab/emulator.parse
test/lab/emulator.supervise
`)

func limit(f Function) int {
	if f.Test {
		return maxTestLines
	}
	return maxLines
}

func TestFunctionsAreShort(t *testing.T) {
	t.Parallel()
	all, err := Functions(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 1000 {
		t.Fatalf("found %d functions below %s, which cannot be all", len(all), root)
	}
	long := map[string]bool{}
	for _, f := range all {
		if f.Lines <= limit(f) {
			continue
		}
		long[f.Name] = true
		_, excepted := exceptions[f.Name]
		if (f.Test || !excepted) && !slices.Contains(pending, f.Name) {
			t.Errorf("%s has %d lines, at most %d are allowed: split it into named parts", f.Name, f.Lines, limit(f))
		}
	}
	for name, reason := range exceptions {
		if !long[name] {
			t.Errorf("%s is no longer too long: remove it from the exceptions", name)
		}
		if reason == "" {
			t.Errorf("%s is an exception without a reason", name)
		}
	}
	for _, name := range pending {
		if !long[name] {
			t.Errorf("%s is no longer too long: remove it from the pending functions", name)
		}
	}
	if len(exceptions) > maxExceptions {
		t.Errorf("%d exceptions, at most %d are allowed", len(exceptions), maxExceptions)
	}
}

func TestFunctionsOf(t *testing.T) {
	t.Parallel()
	const source = `package p

// Doc comments do not count.
func One() {}

func (t *T) Three() {
	func() {}()
}

func (t T[K, V]) Generic() {
}

var literal = func() {
}
`
	got, err := functionsOf("a/p/p_test.go", "a/p/p_test.go", source)
	if err != nil {
		t.Fatal(err)
	}
	want := []Function{
		{Name: "a/p.One", Lines: 1, Test: true},
		{Name: "a/p.(*T).Three", Lines: 3, Test: true},
		{Name: "a/p.(T).Generic", Lines: 2, Test: true},
		{Name: "a/p.literal", Lines: 2, Test: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("functions %+v, want %+v", got, want)
	}
	got, err = functionsOf("p.go", "p.go", "// Code generated by x. DO NOT EDIT.\n\n"+source)
	if err != nil || len(got) != 0 {
		t.Errorf("functions of a generated file: %+v, %v; want none", got, err)
	}
}
