// Package simulate is what a simulated director works with: worlds of the simulated hypervisor instead of every
// provider, a substitute for ansible-playbook, nodes that boot after a set time, and clusters that are as healthy as
// their nodes.
//
// The director itself does not know: its planner, engine, steps and database are the real ones.
package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/simulate/pretend"
	"github.com/director-kaas/kaas/director/whole"
)

// Simulation keeps the pretended things of one director. It is safe for concurrent use.
type Simulation struct {
	dir      string
	worldDir string
	director string
	settings Settings

	mu     sync.Mutex
	worlds map[string]*world
}

// world is a provider's world and how long its VMs take to boot.
type world struct {
	*sim.World
	boot, jitter time.Duration
}

// Open returns the simulation of the director with that id. It keeps its worlds below dir unless the settings name
// another directory, and writes the stand-in for ansible-playbook to dir.
func Open(dir, directorID string, settings Settings) (*Simulation, error) {
	s := &Simulation{
		dir: dir, worldDir: settings.WorldDir(dir), director: directorID, settings: settings,
		worlds: map[string]*world{},
	}
	if err := s.writePlaybook(); err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "simulate.open", Msg: "the simulation cannot be set up in " + dir,
			Err:  err,
			Hint: "check that the directory is writable and has room",
		}
	}
	return s, nil
}

// Close closes the worlds. What is in them stays for the next start.
func (s *Simulation) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for name, w := range s.worlds {
		errs = append(errs, w.Close())
		delete(s.worlds, name)
	}
	return errors.Join(errs...)
}

// Playbook returns the path of the stand-in for ansible-playbook.
func (s *Simulation) Playbook() string { return filepath.Join(s.dir, pretend.Name) }

// writePlaybook links the substitute: to the small program in the director's directory, or else to the director itself,
// which runs as the substitute under that name.
func (s *Simulation) writePlaybook() error {
	if err := errors.Join(os.MkdirAll(s.dir, 0o700), os.MkdirAll(s.worldDir, 0o700)); err != nil {
		return err
	}
	text, err := json.Marshal(s.settings.pretend())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, pretend.SettingsFile), text, 0o600); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if small := filepath.Join(filepath.Dir(program), "pretend-ansible"); isProgram(small) {
		program = small
	}
	if err := os.Remove(s.Playbook()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(program, s.Playbook())
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// Backend returns a back end of the pretended provider. Providers of type sim are as their documents say; of all others
// there is a double, with hosts of the same names and plenty of room.
func (s *Simulation) Backend(provider string, p model.Provider) (hypervisor.Backend, error) {
	w, err := s.world(provider)
	if err != nil {
		return nil, err
	}
	settings := s.equip(w.World, p)
	s.mu.Lock()
	w.boot, w.jitter = time.Duration(settings.Boot), time.Duration(settings.BootJitter)
	s.mu.Unlock()
	return sim.Open(w.World), nil
}

// Draft opens a back end for a provider that is not stored, in a world that nothing is left of. What the document names
// besides addresses and accounts may be a placeholder, and is not in it.
func (s *Simulation) Draft(p model.Provider) hypervisor.Backend {
	w := sim.NewWorld()
	if p.VSphere != nil {
		p.VSphere = &model.VSphere{}
	}
	s.equip(w, p)
	return sim.Open(w)
}

// equip gives the world what the provider says, and returns it.
func (s *Simulation) equip(w *sim.World, p model.Provider) *model.Sim {
	settings := p.Sim
	if p.Type != model.ProviderSim || settings == nil {
		settings = s.settings.double(p)
	}
	var hosts []sim.Host
	for _, h := range settings.Hosts {
		hosts = append(hosts, sim.Host{Name: h.Name, CPUs: h.CPUs, Memory: int64(h.Memory), Disk: int64(h.Disk)})
	}
	timings := map[sim.Verb]sim.Timing{}
	for _, v := range settings.Verbs {
		timings[sim.Verb(v.Verb)] = sim.Timing{
			Latency: time.Duration(v.Latency), Jitter: time.Duration(v.Jitter), Faults: float64(v.Faults) / 100,
		}
	}
	w.SetHosts(hosts...)
	w.SetInventory(inventory(p)...)
	w.SetWeather(uint64(settings.Seed), timings) //nolint:gosec // any number will do
	return settings
}

// world opens the world of the provider at its first use.
func (s *Simulation) world(provider string) (*world, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.worlds[provider]; w != nil {
		return w, nil
	}
	w, err := sim.OpenWorld(WorldFile(s.worldDir, provider))
	if err != nil {
		return nil, err
	}
	s.worlds[provider] = &world{World: w}
	return s.worlds[provider], nil
}

// WorldFile returns where the world of the provider is kept below the directory of worlds.
func WorldFile(dir, provider string) string { return filepath.Join(dir, "world-"+provider+".jsonl") }

// Answers tells whether a pretended VM has the machine's address already.
func (s *Simulation) Answers(_ context.Context, m director.Machine) (bool, error) {
	w, err := s.world(m.Provider)
	if err != nil {
		return false, err
	}
	return w.Answers(m.Network, m.Address), nil
}

// CloudInit returns cloud-init's good news once the VM is on for as long as a boot takes.
func (s *Simulation) CloudInit(_ context.Context, m director.Machine, _ string) (string, error) {
	w, err := s.world(m.Provider)
	if err != nil {
		return "", err
	}
	since, on := w.Running(director.Stamp{Director: s.director, Machine: m.ID})
	if !on {
		return "", director.Errorf(director.KindUnavailable, "simulate.boot", "%s is not switched on", m.Name)
	}
	s.mu.Lock()
	takes := w.boot
	if w.jitter > 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(m.ID)) // a hash never fails
		takes += time.Duration(h.Sum64() % uint64(w.jitter))
	}
	s.mu.Unlock()
	if time.Since(since) < takes {
		return "", nil
	}
	return `{"v1": {"errors": []}}`, nil
}

// FirstBoot pretends that the scripts have succeeded.
func (s *Simulation) FirstBoot(ctx context.Context, _ director.Machine, _ string, _ bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, ctx.Err()
}

// NextHostKey pretends that the machine keeps the host key that it has.
func (s *Simulation) NextHostKey(ctx context.Context, _ director.Machine, hostKey string) (string, error) {
	return hostKey, ctx.Err()
}

// TakeHostKey pretends to have done so.
func (s *Simulation) TakeHostKey(ctx context.Context, _ director.Machine, _, _ string) error {
	return ctx.Err()
}

// HostCertificate says that the machine shows none.
func (s *Simulation) HostCertificate(ctx context.Context, _ director.Machine) (string, error) {
	return "", ctx.Err()
}

// Script pretends to have run it.
func (s *Simulation) Script(ctx context.Context, _ director.Machine, _, _ string) error {
	return ctx.Err()
}

// Cluster is a pretended cluster: whatever a plan has made is ready.
type Cluster struct {
	pods  []Pod
	claim string // file with the claim of the director that works on it
}

// Connect returns the pretended cluster of a kubeconfig.
func (s *Simulation) Connect(kubeconfig []byte) (Cluster, error) {
	_, server, there := strings.Cut(string(kubeconfig), "server:")
	if !there {
		return Cluster{}, director.Errorf(director.KindInvalid, "simulate.connect", "the kubeconfig names no server")
	}
	server, _, _ = strings.Cut(server, "\n")
	sum := sha256.Sum256([]byte(strings.TrimSpace(server)))
	return Cluster{s.settings.Pods, filepath.Join(s.worldDir, "claim-"+hex.EncodeToString(sum[:8])+".json")}, nil
}

// Claim returns the claim that was put into the cluster by any director on the same worlds.
func (c Cluster) Claim(ctx context.Context) (claim director.Claim, version string, err error) {
	text, err := os.ReadFile(c.claim)
	if errors.Is(err, fs.ErrNotExist) {
		return director.Claim{}, "", ctx.Err()
	}
	if err == nil {
		err = json.Unmarshal(text, &claim)
	}
	return claim, string(text), err
}

// PutClaim replaces the claim of the version. Between two directors that do so at once, the later one wins.
func (c Cluster) PutClaim(ctx context.Context, claim director.Claim, version string) error {
	switch _, has, err := c.Claim(ctx); {
	case err != nil:
		return err
	case has != version:
		return director.Errorf(director.KindConflict, "simulate.put_claim", "another claim was written meanwhile")
	}
	text, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	return whole.Write(c.claim, text, 0o600)
}

// NodesReady says that no node is missing.
func (Cluster) NodesReady(ctx context.Context, _ []string, _ string) ([]kube.Absence, error) {
	return nil, ctx.Err()
}

// NotCarrying says that every node carries traffic.
func (Cluster) NotCarrying(ctx context.Context, _ string) (string, error) {
	return "", ctx.Err()
}

// RollingOut says that nothing rolls out.
func (Cluster) RollingOut(ctx context.Context) ([]kube.Absence, error) {
	return nil, ctx.Err()
}

// Nodes shows none: what the ledger says of them counts.
func (Cluster) Nodes(ctx context.Context) ([]kube.Node, error) {
	return nil, ctx.Err()
}

// RecordHostKey does nothing: a pretended node has no host key that another director would ask for.
func (Cluster) RecordHostKey(ctx context.Context, _, _ string) error { return ctx.Err() }

// Rehearse returns what the settings say of the pods on the node.
func (c Cluster) Rehearse(ctx context.Context, node string, may kube.DrainLimits) ([]kube.Eviction, error) {
	var out []kube.Eviction
	for _, p := range c.pods {
		if hit, _ := path.Match(p.Nodes, node); p.Nodes != "" && !hit {
			continue
		}
		e := kube.Eviction{Namespace: p.Namespace, Pod: p.Name, Owner: p.Owner, Blocked: p.Blocked, Why: p.Why}
		if e.Blocked == kube.BlockedUnmanaged && may.Unmanaged || e.Blocked == kube.BlockedLocalData && may.LocalData {
			e.Blocked, e.Why = "", ""
		}
		out = append(out, e)
	}
	return out, ctx.Err()
}

// KubeletClientEnd says that there is no certificate: a pretended kubelet needs none.
func (Cluster) KubeletClientEnd(_ context.Context, node string) (time.Time, error) {
	return time.Time{}, director.Errorf(
		director.KindNotFound, "simulate.certificate", "the kubelet of %s only pretends", node,
	)
}

// OldTrust says that no pod has old authorities.
func (Cluster) OldTrust(ctx context.Context, _, _ time.Time, _ []string) ([]string, error) {
	return nil, ctx.Err()
}

// Workloads says that all that should run does: there is nothing.
func (Cluster) Workloads(ctx context.Context, _ string) ([]kube.Workload, error) {
	return nil, ctx.Err()
}

// BindAdministrators does nothing: a pretended cluster has no logins.
func (Cluster) BindAdministrators(ctx context.Context, _ string) error { return ctx.Err() }

// Close does nothing.
func (Cluster) Close() {}
