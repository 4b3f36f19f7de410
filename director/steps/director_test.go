package steps

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steady"
	"github.com/director-kaas/kaas/director/step"
)

var errCut = errors.New("killed")

// cutter ends the run at one of the calls that change something: before the call, or after it.
type cutter struct {
	calls, at int
	after     bool
}

func (c *cutter) do(act func() error) error {
	c.calls++
	if c.calls == c.at && !c.after {
		return errCut
	}
	if err := act(); err != nil || c.calls != c.at {
		return err
	}
	return errCut
}

// frail is a hypervisor, a store of secrets, a ledger and a record of directors that die with the run.
type frail struct {
	*sim.Backend
	vault
	places
	*cutter
	seed     *string // of the VM, as it was made
	recorded *int
	disks    keptDisks
}

func (f frail) Ensure(ctx context.Context, s hypervisor.Spec) (vm hypervisor.VM, err error) {
	return vm, f.do(func() error {
		have, err := f.List(ctx, hypervisor.Filter{Director: s.Key.Director, Machine: s.Key.Machine})
		if err == nil && len(have) == 0 {
			*f.seed = string(s.Seed.UserData)
			if s.Seed.Empty() { // as hypervisors do
				return errors.New("there is no seed for a new VM")
			}
		}
		if err == nil {
			vm, err = f.Backend.Ensure(ctx, s)
		}
		return err
	})
}

func (f frail) RemoveSeed(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	return f.do(func() error { return f.Backend.RemoveSeed(ctx, id, owner) })
}

func (f frail) AddSecret(ctx context.Context, owner, name string, sealed []byte) (got []byte, err error) {
	return got, f.do(func() (err error) { got, err = f.vault.AddSecret(ctx, owner, name, sealed); return err })
}

func (f frail) SetSecret(ctx context.Context, owner, name string, sealed []byte) error {
	return f.do(func() error { return f.vault.SetSecret(ctx, owner, name, sealed) })
}

func (f frail) IntendAgain(ctx context.Context, m director.Machine, now time.Time) error {
	return f.do(func() error { return f.places.IntendAgain(ctx, m, now) })
}

func (f frail) SetMachine(ctx context.Context, id string, s director.MachineState, host, vm string) error {
	return f.do(func() error { return f.places.SetMachine(ctx, id, s, host, vm) })
}

func (f frail) FirstBoot(context.Context, string, model.Director) (FirstBoot, error) {
	return FirstBoot{PasswordHash: "$argon2id$hash"}, nil
}

func (f frail) DirectorInstalled(context.Context, step.DirectorParams, time.Time) error {
	return f.do(func() error { *f.recorded++; return nil })
}

func (frail) ForgetDirector(context.Context, step.DirectorParams, string, time.Time) error {
	return nil
}

// newDirectorVM is an empty world with the parameters of a director's VM in it.
func newDirectorVM(t *testing.T, c *cutter) (Env, frail, step.VMParams, step.DirectorParams) {
	t.Helper()
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	f := frail{
		Backend: sim.Open(sim.NewWorld(sim.Host{Name: "h1", CPUs: 8, Memory: 1 << 36, Disk: 1 << 40})), vault: vault{},
		places: places{id: map[string]string{}}, cutter: c, seed: new(string), recorded: new(int),
	}
	furnish(t, f.Backend)
	env := Env{
		Installation: Installation{Director: "d1", Now: time.Now},
		Machines:     Machines{Backends: oneBackend{f}, Ledger: f, Nodes: knowing{lost: new(string)}},
		Clusters:     Clusters{Keys: Keys{Secrets: f, Sealer: box}},
		Appliances: Appliances{
			Directors: f, Steady: steady.Wait{For: time.Millisecond, Every: time.Millisecond},
			Ring: func(_ context.Context, _ director.Machine, hostname, certificate string) error {
				first, _, _ := strings.Cut(strings.TrimPrefix(certificate, "-----BEGIN CERTIFICATE-----\n"), "\n")
				if hostname != "outer.example.org" || first == "" || !strings.Contains(*f.seed, first) {
					return plan.Abort(errors.New("another certificate than the VM was told"))
				}
				return nil
			},
		},
	}
	doc := model.Director{Hostname: "outer.example.org", DataDisk: 8 * model.GiB}
	machine := plan.MachineSpec{
		ID: "m1", ClusterUID: "u1", Cluster: "outer", Name: "outer", Provider: "lab", Address: "10.88.0.20",
		Role: director.RoleDirector, MAC: "52:54:00:00:00:01", Network: "demo", CPUs: 1, Memory: 1 << 30,
	}
	p := step.VMParams{
		Machine: machine, ImageName: "node", Disk: 10 * model.GiB, DataDisk: doc.DataDisk, Appliance: &doc,
		Network: model.Network{CIDR: prefix, Gateway: prefix.Addr().Next(), NTP: []string{"192.0.2.1"}},
	}
	return env, f, p, step.DirectorParams{UID: "u1", Name: "outer", Document: doc, Machine: machine}
}

// makeDirector runs the steps that make a director's VM, as often as the hypervisor asks for it.
func makeDirector(t *testing.T, env Env, p step.VMParams, d step.DirectorParams) error {
	t.Helper()
	s := directorSteps{env.vms()}
	r := plan.Run{Note: func(context.Context, string) {}, Plan: &plan.Plan{ID: "p1"}}
	err := s.vmEnsure(t.Context(), r, p)
	for plan.OutcomeOf(err).Kind == plan.NotReady {
		err = s.vmEnsure(t.Context(), r, p)
	}
	if err == nil {
		err = s.ready(t.Context(), r, d)
	}
	if err == nil {
		err = s.record(t.Context(), r, d)
	}
	return err
}

// Killed at whichever line, the next run makes the VM that was to be: one, with what it was told first, and with
// nothing secret left of that.
func TestDirectorIsMadeWhereverItWasCut(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			c := &cutter{at: at, after: after}
			env, f, p, d := newDirectorVM(t, c)
			err := makeDirector(t, env, p, d)
			cut := errors.Is(err, errCut)
			if cut {
				err = makeDirector(t, env, p, d)
			}
			if err != nil {
				t.Fatalf("cut at call %d (after it: %t): %v", at, after, err)
			}
			vms, err := f.List(t.Context(), hypervisor.Filter{Director: "d1"})
			if err != nil || len(vms) != 1 || *f.recorded == 0 {
				t.Fatalf("cut at call %d: %d VMs, recorded %d times, %v", at, len(vms), *f.recorded, err)
			}
			if f.World().HasSeed(vms[0].ID) {
				t.Errorf("cut at call %d (after it: %t): the VM has its seed still", at, after)
			}
			left, err := env.knownFirstBoot(t.Context(), "m1")
			if err != nil || left.Certificate == "" || left.Key != "" || left.PasswordHash != "" {
				t.Errorf("cut at call %d (after it: %t): what is kept: %+v, %v", at, after, left, err)
			}
			if !strings.Contains(*f.seed, "$argon2id$hash") || !strings.Contains(*f.seed, "10.88.0.20/24") {
				t.Errorf("the VM was told %q", *f.seed)
			}
			if !cut {
				if at < 8 {
					t.Errorf("a run has %d calls", at-1)
				}
				break
			}
		}
	}
}

// A director that never becomes ready is said to be so, and keeps what its VM needs to boot again.
func TestDirectorThatIsNotReady(t *testing.T) {
	t.Parallel()
	env, _, p, d := newDirectorVM(t, &cutter{})
	env.Ring = func(context.Context, director.Machine, string, string) error {
		return director.Errorf(director.KindUnavailable, "test", "status 503")
	}
	s := directorSteps{env.vms()}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := plan.Run{Note: func(context.Context, string) {}}
	if err := s.ready(ctx, r, d); director.KindOf(err) != director.KindConflict {
		t.Errorf("before the VM was made: %v", err)
	}
	err := s.vmEnsure(t.Context(), r, p)
	for plan.OutcomeOf(err).Kind == plan.NotReady {
		err = s.vmEnsure(t.Context(), r, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ready(ctx, r, d); director.KindOf(err) != director.KindUnavailable ||
		!strings.Contains(err.Error(), "status 503") || director.HintOf(err) == "" {
		t.Errorf("%v (%s)", err, director.HintOf(err))
	}
	if left, err := env.knownFirstBoot(t.Context(), "m1"); err != nil || left.PasswordHash == "" {
		t.Errorf("what is kept: %v", err)
	}
}

// The one certificate is trusted: neither another one for the name, nor one that the same authority signs.
func TestDirectorProvesItself(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	place := server.Listener.Addr().String()
	if err := ringAt(t.Context(), place, "example.com", own); err != nil {
		t.Error(err)
	}
	other, err := ownCertificate(plan.MachineSpec{Address: "10.88.0.20", Cluster: "outer"}, model.Director{})
	if err != nil {
		t.Fatal(err)
	}
	for name, certificate := range map[string]string{"another one": other.Cert, "no PEM": "x"} {
		if err := ringAt(t.Context(), place, "example.com", certificate); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := ringAt(t.Context(), place, "another.example", own); err == nil {
		t.Error("another name was taken")
	}
	status = http.StatusServiceUnavailable
	if err := ringAt(t.Context(), place, "example.com", own); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("not ready: %v", err)
	}
}
