package hypervisortest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/test/tree"
)

// columns are those of docs/reference/backends.md. Each is a file of the directory columns, which the run of a back
// end's suite has written.
var columns = []struct{ file, title string }{
	{"sim", "`sim`"},
	{"vsphere", "vSphere, on vCenter's simulator"},
	{"libvirt-test", "libvirt, its test driver"},
	{"libvirt", "libvirt and QEMU"},
}

// columnsDir is where they are in the tree.
const columnsDir = "director/hypervisor/hypervisortest/columns"

// capabilities are the optional interfaces by name.
var capabilities = []struct {
	name, about string
	has         func(hypervisor.Backend) bool
}{
	{"Imaging", "keeps images for cloning", has[hypervisor.Imaging]},
	{"Networking", "creates networks, or finds existing ones", has[hypervisor.Networking]},
	{"Capacity", "reports what hosts have left", has[hypervisor.Capacity]},
	{"Volumes", "lists and deletes kept data disks", has[hypervisor.Volumes]},
	{"DiskCopier", "copies data disks, and restores them from their copies", has[hypervisor.DiskCopier]},
	{"DiskTeller", "lists the disks of a VM, also those that others have attached", has[hypervisor.DiskTeller]},
	{"Adopter", "takes over a VM that another program created", has[hypervisor.Adopter]},
	{"Seeds", "removes what a guest has read at its first boot", has[hypervisor.Seeds]},
	{"Snapshots", "takes snapshots of a VM and reverts to them", has[hypervisor.Snapshots]},
	{"Diagnoser", "reports why a guest does not boot", has[hypervisor.Diagnoser]},
	{"Console", "shows what the guest printed at boot", has[hypervisor.Console]},
	{
		"Hosts", "works without lost hosts, and powers off for good the VMs that are found on them later",
		has[hypervisor.Hosts],
	},
	{"Prober", "tests a connection and reports everything that is wrong", has[hypervisor.Prober]},
	{"Discoverer", "reports what a document may name: storage, networks, hosts, folders", has[hypervisor.Discoverer]},
}

func has[T any](b hypervisor.Backend) bool {
	_, ok := hypervisor.Capability[T](b)
	return ok
}

// The outcomes of a case.
const (
	passed  = "passed"
	skipped = "skipped"
)

// outcomes are what a run of the suite has shown, a line for each capability and case.
type outcomes struct {
	mu    sync.Mutex
	lines map[string]string // by what it is about: its outcome, and for a case that was skipped the reason
}

func (o *outcomes) set(about, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines[about] = outcome
}

// ExerciseColumn runs the suite like Exercise, and compares its outcome with the back end's column of
// docs/reference/backends.md: the same cases must pass and be skipped. With update, a whole run writes the column and
// the page.
func ExerciseColumn(t *testing.T, column string, update bool, open func(t *testing.T) Subject) {
	t.Helper()
	if !slices.ContainsFunc(columns, func(c struct{ file, title string }) bool { return c.file == column }) {
		t.Fatalf("docs/reference/backends.md has no column %q", column)
	}
	got := &outcomes{lines: map[string]string{}}
	t.Cleanup(func() { // after all cases
		if !t.Failed() {
			got.compare(t, column, update)
		}
	})
	exercise(t, open, func(t *testing.T, c test, b bundle) {
		t.Cleanup(func() {
			switch {
			case t.Skipped():
				got.set("case "+c.name, skipped+" "+strings.TrimPrefix(*b.why, "not on this hypervisor: "))
			case !t.Failed():
				got.set("case "+c.name, passed)
			}
		})
		if c.name == suite[0].name {
			x := b.Open(t)
			for _, k := range capabilities {
				got.set("capability "+k.name, fmt.Sprint(k.has(x)))
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// compare holds what was shown to the column's file, or writes it.
func (o *outcomes) compare(t *testing.T, column string, update bool) {
	t.Helper()
	dir := tree.Path(t, columnsDir)
	if update && len(o.lines) == len(suite)+len(capabilities) {
		if err := o.write(dir, column); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := readColumn(dir, column)
	if err != nil {
		t.Fatal(err)
	}
	for about, outcome := range o.lines { // a part of the suite may have run
		if diff := cmp.Diff(want[about], outcome); diff != "" {
			t.Errorf(
				"%s is not what docs/reference/backends.md says; make generate updates it (-page +run):\n%s", about,
				diff,
			)
		}
	}
}

// write writes the column, and the page with it. Several packages do so at a time.
func (o *outcomes) write(dir, column string) error {
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var text bytes.Buffer
	for _, about := range rows() {
		if outcome, found := o.lines[about]; found {
			fmt.Fprintf(&text, "%s: %s\n", about, outcome)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, column+".txt"), text.Bytes(), 0o644); err != nil {
		return err
	}
	page, err := render(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(pagePath(dir), page, 0o644)
}

// rows are what a column has lines for, in their order.
func rows() []string {
	var all []string
	for _, k := range capabilities {
		all = append(all, "capability "+k.name)
	}
	for _, c := range suite {
		all = append(all, "case "+c.name)
	}
	return all
}

// readColumn returns the outcomes of the column's last run, and none if it was never run.
func readColumn(dir, column string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, column+".txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		about, outcome, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		lines[about] = outcome
	}
	return lines, nil
}

func pagePath(dir string) string {
	return filepath.Join(dir, "..", "..", "..", "..", "docs", "reference", "backends.md")
}

// render returns docs/reference/backends.md for the columns.
func render(dir string) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString(`<!-- Written by the conformance suite: make generate. -->
# Back ends

This page shows what each back end did in the last run of the conformance suite
([writing a back end](../develop/writing-a-backend.md)). The runs on vCenter's simulator, libvirt's test driver and
` + "`sim`" + ` are part of every test run, which fails if they differ from this page. A run in the lab with
` + "`-update`" + ` writes the column of libvirt and QEMU. The column is empty where that run did not reach a case.

## Capabilities

`)
	var all []map[string]string
	var titles []string
	for _, c := range columns {
		lines, err := readColumn(dir, c.file)
		if err != nil {
			return nil, err
		}
		all, titles = append(all, lines), append(titles, c.title)
	}
	renderCapabilities(&page, titles, all)
	renderCases(&page, titles, all)
	return page.Bytes(), nil
}

// tableHead begins a table with two columns and one for each back end.
func tableHead(page *bytes.Buffer, first, second string, titles []string) {
	fmt.Fprintf(
		page, "| %s | %s | %s |\n|---|---|%s\n", first, second, strings.Join(titles, " | "),
		strings.Repeat("---|", len(titles)),
	)
}

func renderCapabilities(page *bytes.Buffer, titles []string, all []map[string]string) {
	tableHead(page, "interface", "what it is for", titles)
	for _, k := range capabilities {
		fmt.Fprintf(page, "| `%s` | %s |", k.name, k.about)
		for _, lines := range all {
			fmt.Fprintf(page, " %s |", map[string]string{"true": "yes", "false": "no"}[lines["capability "+k.name]])
		}
		page.WriteString("\n")
	}
}

func renderCases(page *bytes.Buffer, titles []string, all []map[string]string) {
	page.WriteString("\n## Cases\n\nA number is the reason why a case is skipped.\n\n")
	tableHead(page, "case", "what it holds the back end to", titles)
	var reasons []string
	for _, c := range suite {
		fmt.Fprintf(page, "| `%s` | %s |", c.name, c.about)
		for _, lines := range all {
			outcome := lines["case "+c.name]
			if reason, skip := strings.CutPrefix(outcome, skipped+" "); skip {
				n := slices.Index(reasons, reason)
				if n < 0 {
					n, reasons = len(reasons), append(reasons, reason)
				}
				outcome = fmt.Sprintf("(%d)", n+1)
			}
			fmt.Fprintf(page, " %s |", outcome)
		}
		page.WriteString("\n")
	}
	if len(reasons) > 0 {
		page.WriteString("\n")
	}
	for i, r := range reasons {
		fmt.Fprintf(page, "%d. %s\n", i+1, r)
	}
}
