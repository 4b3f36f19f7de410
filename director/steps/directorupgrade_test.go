package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
)

// keptDisks are the disks that the ledger of a frail world has, by id.
type keptDisks map[string]director.KeptDisk

func (f frail) Machine(context.Context, string) (director.Machine, bool, error) {
	return director.Machine{}, true, nil
}

func (f frail) TakeDisk(context.Context, string, string) error { return nil }

func (f frail) DisksOf(context.Context, string) ([]director.KeptDisk, error) { return nil, nil }

func (f frail) KeepDisks(_ context.Context, disks []director.KeptDisk) error {
	return f.do(func() error {
		for _, d := range disks {
			f.disks[d.ID] = d
		}
		return nil
	})
}

func (f frail) ForgetDisk(_ context.Context, id string) error {
	return f.do(func() error { delete(f.disks, id); return nil })
}

func (f frail) RemoveVM(ctx context.Context, id string) error {
	return f.do(func() error { return f.places.RemoveVM(ctx, id) })
}

func (f frail) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	return f.do(func() error { return f.Backend.Delete(ctx, id, o) })
}

func (f frail) DeleteVolume(ctx context.Context, owner director.Stamp, serials ...string) error {
	return f.do(func() error { return f.Backend.DeleteVolume(ctx, owner, serials...) })
}

func (f frail) CopyDisk(ctx context.Context, owner director.Stamp, serial string, to director.Stamp) error {
	return f.do(func() error { return f.Backend.CopyDisk(ctx, owner, serial, to) })
}

func (f frail) RestoreDisk(ctx context.Context, owner director.Stamp, serial string, from director.Stamp) error {
	return f.do(func() error { return f.Backend.RestoreDisk(ctx, owner, serial, from) })
}

// upgraded is a world with a director, and the plan that makes its VM of another image.
type upgraded struct {
	env Env
	frail
	plan    *plan.Plan
	owner   director.Stamp
	patient time.Duration // with a new director that is to become ready
}

const grown = "as the new director has changed it"

// newUpgrade makes the director. The new one changes the data at once, and becomes ready only if it is good.
func newUpgrade(t *testing.T, c *cutter, good bool) upgraded {
	t.Helper()
	env, f, vm, own := newDirectorVM(t, &cutter{})
	old, next := applianceImage(t, f, "old"), applianceImage(t, f, "next")
	own.Document.Image.SHA256, own.Document.CPUs, own.Document.Memory = old.SHA256, 1, model.GiB
	own.Document.Disk = 10 * model.GiB
	vm.Machine.Image = onProvider(old)
	vm.Machine.Pool, vm.ImageName, vm.Appliance = planner.DirectorPool, vm.Machine.Image, &own.Document
	own.Machine = vm.Machine
	if err := makeDirector(t, env, vm, own); err != nil {
		t.Fatal(err)
	}
	u := upgraded{env: env, frail: f, owner: env.stamp("m1"), patient: 5 * time.Second}
	if !good {
		u.patient = 20 * time.Millisecond
	}
	f.World().WriteDisk(u.owner, director.DataDiskSerial, "as it was")
	asked := env.Ring
	u.env.Ring = func(ctx context.Context, m director.Machine, hostname, certificate string) error {
		vms, err := f.List(ctx, hypervisor.Filter{Director: "d1", Machine: "m1"})
		if err != nil || len(vms) != 1 {
			return director.Errorf(director.KindUnavailable, "test", "%d VMs: %w", len(vms), err)
		}
		if vms[0].CPUs == 2 {
			f.World().WriteDisk(u.owner, director.DataDiskSerial, grown)
			if !good {
				return director.Errorf(director.KindUnavailable, "test", "status 503")
			}
		}
		return asked(ctx, m, hostname, certificate)
	}
	u.cutter, u.disks, u.seed = c, keptDisks{}, new(string)
	e := &u.env
	e.Backends, e.Ledger, e.Secrets, e.Directors, e.Disks = oneBackend{u.frail}, u.frail, u.frail, u.frail, u.frail
	u.plan = upgradePlan(t, own, next)
	return u
}

func applianceImage(t *testing.T, f frail, text string) model.DirectorImage {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	im := model.DirectorImage{
		Source: filepath.Join(t.TempDir(), text), SHA256: hex.EncodeToString(sum[:]), Unsigned: "x",
	}
	if err := errors.Join(os.WriteFile(im.Source, []byte(text), 0o600), f.EnsureImage(t.Context(), hypervisor.ImageSpec{
		Name: onProvider(im), Path: im.Source, SHA256: im.SHA256, Format: "qcow2",
	}, nil)); err != nil {
		t.Fatal(err)
	}
	return im
}

func onProvider(im model.DirectorImage) string {
	image := im.AsImage()
	return image.NameOnProviders(model.ApplianceImage)
}

func upgradePlan(t *testing.T, own step.DirectorParams, next model.DirectorImage) *plan.Plan {
	t.Helper()
	was, is := own.Document, own.Document
	is.Provider, is.Network, is.Image, is.CPUs = "lab", "demo", next, 2
	row := own.Machine.Row()
	row.State = director.MachinePresent
	w := planner.World{
		Machines: []director.Machine{row}, Installed: &planner.Installed{Director: &was},
		Provider: model.Stored{Document: model.Document{Provider: &model.Provider{}}},
		Network: model.Stored{Document: model.Document{
			Network: &model.Network{CIDR: prefix, Gateway: prefix.Addr().Next()},
		}},
		Used: map[netip.Addr]bool{}, Host: map[string]int{},
	}
	w.Cluster, w.Image = planner.OfDirector(model.Stored{UID: "u1", Document: model.Document{
		Kind: model.KindDirector, Metadata: model.Metadata{Name: "outer"}, Director: &is,
	}})
	content, err := planner.UpgradeDirector(w, plan.Request{Operation: plan.DirectorUpgrade})
	if err == nil {
		err = content.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	content.Steps = content.Steps[1:] // the image is there
	content.Steps[0].Needs = nil
	content.Steps[1].Needs = []string{content.Steps[0].ID}
	return &plan.Plan{ID: "p1", Content: content}
}

// drive runs the plan to its end as an engine does, one step after another. A step in which the run was killed runs
// again. It returns the event that the plan ended with.
func (u upgraded) drive(t *testing.T) (plan.Event, plan.State) {
	t.Helper()
	s := plan.NewState(u.plan)
	s.Status = plan.StatusRunning
	handlers := Handlers(u.env)
	for {
		ready := plan.Ready(u.plan, &s, time.Unix(1<<40, 0))
		if len(ready) == 0 {
			ev, due := plan.Settle(u.plan, &s)
			if !due {
				t.Fatalf("the plan stands still: %+v", s)
			}
			return ev, s
		}
		of, _ := u.plan.Step(ready[0])
		st := s.Step(of.ID)
		st.Status = plan.Running
		patience := 5 * time.Second
		if of.Kind == step.DirectorReady && !of.Back() {
			patience = u.patient
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := handlers[of.Kind].Run(ctx, plan.Run{Plan: u.plan, Step: of, Note: func(context.Context, string) {}})
		cancel()
		switch {
		case err == nil:
			st.Status = plan.Done
		case errors.Is(err, errCut) || plan.OutcomeOf(err).Kind == plan.NotReady:
			st.Status = plan.Pending
			if st.Attempt++; st.Attempt > 9 {
				t.Fatalf("%s does not come to its end: %v", of.ID, err)
			}
		default:
			st.Status, st.Message = plan.Failed, err.Error()
		}
	}
}

// Killed at whichever line, the plan makes the VM of the new image in front of the data; or the one of before with the
// data of before, if the new one does not become ready. Nothing else is left.
func TestDirectorIsUpgradedWhereverItWasCut(t *testing.T) {
	t.Parallel()
	for _, good := range []bool{true, false} {
		for _, after := range []bool{false, true} {
			for at := 1; ; at++ {
				c := &cutter{at: at, after: after}
				u := newUpgrade(t, c, good)
				ended, s := u.drive(t)
				u.ends(t, good, ended, s)
				if t.Failed() {
					t.Fatalf("good %t, cut at call %d (after it: %t)", good, at, after)
				}
				if c.calls < at {
					if at < 10 {
						t.Errorf("a run has %d calls", at-1)
					}
					break
				}
			}
		}
	}
}

// ends looks at what a plan has left.
func (u upgraded) ends(t *testing.T, good bool, ended plan.Event, s plan.State) {
	t.Helper()
	data, kind, cpus := grown, plan.PlanDone, 2
	if !good {
		data, kind, cpus = "as it was", plan.PlanFailed, 1
	}
	if ended.Kind != kind || !good && (!strings.Contains(ended.Message, "outer: rolled back, and in use") ||
		!strings.Contains(ended.Hint, "directorctl director upgrade outer")) {
		t.Errorf("it ended with %+v: %+v", ended, s.Steps)
	}
	vms, err := u.List(t.Context(), hypervisor.Filter{Director: "d1"})
	if err != nil || len(vms) != 1 || vms[0].Power != hypervisor.PowerOn || vms[0].CPUs != cpus {
		t.Fatalf("VMs %+v, %v", vms, err)
	}
	if got, _ := u.World().ReadDisk(u.owner, director.DataDiskSerial); got != data {
		t.Errorf("the data disk has %q", got)
	}
	volumes, err := u.ListVolumes(t.Context(), "d1")
	if err != nil || len(volumes) != 1 || len(u.disks) > 0 {
		t.Errorf("left are the disks %+v and the rows %v, %v", volumes, u.disks, err)
	}
	if good != (*u.recorded > 1) {
		t.Errorf("recorded %d times", *u.recorded)
	}
	if strings.Contains(*u.seed, "argon2id") || u.World().HasSeed(vms[0].ID) {
		t.Errorf("the VM was told %q", *u.seed)
	}
	if left, err := u.env.knownFirstBoot(t.Context(), "m1"); err != nil || left.Certificate == "" {
		t.Errorf("the certificate is not known any more: %v", err)
	}
}

// A director that is not ready is not touched.
func TestDirectorThatIsNotReadyIsNotUpgraded(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, &cutter{}, true)
	u.env.Ring = func(context.Context, director.Machine, string, string) error {
		return plan.Abort(errors.New("status 503"))
	}
	ended, s := u.drive(t)
	begun := slices.ContainsFunc(s.Steps[1:], func(st plan.StepState) bool { return st.Status != plan.Pending })
	if ended.Kind != plan.PlanFailed || begun || !strings.Contains(s.Steps[0].Message, "nothing of it was touched") {
		t.Errorf("%+v, %+v", ended, s.Steps)
	}
}
