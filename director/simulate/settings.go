package simulate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/simulate/pretend"
)

// Settings is the part of the director's configuration that says how a simulation goes.
type Settings struct {
	Documents []string `yaml:"documents"` // files and directories that are applied at the first start
	// directory of the simulated hypervisors, shared by directors on one database
	Worlds     string         `yaml:"worlds"`
	Verbs      []Verb         `yaml:"verbs"`      // calls of providers that are not of type sim
	Boot       model.Duration `yaml:"boot"`       // of their VMs
	BootJitter model.Duration `yaml:"bootJitter"` // up to so much longer
	Plays      Plays          `yaml:"plays"`
	Seed       uint32         `yaml:"seed"` // start of the random numbers
	Pods       []Pod          `yaml:"pods"` // what dry runs of drains find on nodes
}

// Pod is what a dry run of a drain finds on some nodes.
type Pod struct {
	Nodes     string `yaml:"nodes"` // pattern of names; empty for all
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	Owner     string `yaml:"owner"`   // such as ReplicaSet/web
	Blocked   string `yaml:"blocked"` // budget, unmanaged, local_data or other; empty if it would go
	Why       string `yaml:"why"`     // of that, for people
}

// Verb is how the calls of one verb go.
type Verb struct {
	Verb    string         `yaml:"verb"`
	Latency model.Duration `yaml:"latency"`
	Jitter  model.Duration `yaml:"jitter"`
	Faults  int            `yaml:"faults"` // per cent
}

// Plays is how pretended playbooks go.
type Plays struct {
	Tasks   int            `yaml:"tasks"`   // of each play
	Latency model.Duration `yaml:"latency"` // of a task on a host
	Jitter  model.Duration `yaml:"jitter"`
	Changed int            `yaml:"changed"` // per cent of the tasks that change something
	Faults  []PlayFault    `yaml:"faults"`
}

// PlayFault makes plays fail on some hosts, by chance.
type PlayFault struct {
	Hosts    string `yaml:"hosts"`    // pattern of names; empty for all
	Playbook string `yaml:"playbook"` // such as workers; empty for all
	Outcome  string `yaml:"outcome"`  // failed or unreachable
	Percent  int    `yaml:"percent"`  // of the hosts of a play
	Msg      string `yaml:"msg"`      // what the task says
}

// DefaultSettings returns a simulation that is faster than real hypervisors, and without faults.
func DefaultSettings() Settings {
	return Settings{
		Verbs: []Verb{
			{Verb: "ensure", Latency: model.Duration(time.Second)},
			{Verb: "delete", Latency: model.Duration(500 * time.Millisecond)},
		},
		Boot: model.Duration(3 * time.Second), BootJitter: model.Duration(2 * time.Second),
		Plays: Plays{
			Tasks: 5, Latency: model.Duration(200 * time.Millisecond), Jitter: model.Duration(200 * time.Millisecond),
			Changed: 40,
		},
	}
}

// Problems returns everything that is wrong with the settings; paths begin with at.
func (s Settings) Problems(at string) []director.Field {
	var p []director.Field
	want := func(ok bool, path, hint, format string, args ...any) {
		if !ok {
			p = append(p, director.Field{Path: at + "." + path, Msg: fmt.Sprintf(format, args...), Hint: hint})
		}
	}
	percent := func(n int, path string) { want(n >= 0 && n <= 100, path, "0 to 100", "%d is not a percentage", n) }
	positive := func(path string, list ...model.Duration) {
		for _, d := range list {
			want(d >= 0, path, "such as 500ms", "%s is negative", d)
		}
	}
	double := model.Document{
		Kind: model.KindProvider, Metadata: model.Metadata{Name: "settings"},
		Provider: &model.Provider{Type: model.ProviderSim},
	}
	double.Provider.Sim = s.sim()
	double.Provider.Sim.Hosts = []model.SimHost{{Name: "host", CPUs: 1, Memory: model.GiB, Disk: model.GiB}}
	if _, err := model.Validate(&double); err != nil {
		want(false, "verbs", "verbs and percentages as in spec.sim.verbs of a Provider", "%v", err)
	}
	want(
		s.Worlds == "" || filepath.IsAbs(s.Worlds), "worlds", "beginning with /", "%q is not an absolute path",
		s.Worlds,
	)
	want(s.Plays.Tasks >= 0 && s.Plays.Tasks <= 10_000, "plays.tasks", "0 to 10000", "%d is not allowed", s.Plays.Tasks)
	percent(s.Plays.Changed, "plays.changed")
	positive("plays.latency", s.Plays.Latency, s.Plays.Jitter)
	positive("boot", s.Boot, s.BootJitter)
	for i, f := range s.Plays.Faults {
		path := fmt.Sprintf("plays.faults[%d]", i)
		want(
			f.Outcome == "failed" || f.Outcome == "unreachable", path+".outcome", "failed or unreachable",
			"%q is not known", f.Outcome,
		)
		percent(f.Percent, path+".percent")
	}
	for i, pod := range s.Pods {
		path := fmt.Sprintf("pods[%d]", i)
		want(pod.Namespace != "" && pod.Name != "", path, "a namespace and a name", "it has no name")
		known := []string{
			"", kube.BlockedByBudget, kube.BlockedUnmanaged, kube.BlockedLocalData, kube.BlockedOtherwise,
		}
		want(slices.Contains(known, pod.Blocked), path+".blocked", strings.Join(known[1:], ", "),
			"%q is not known", pod.Blocked)
	}
	return p
}

// WorldDir returns the directory of the simulated hypervisors; own is that of a director that does not share it.
func (s Settings) WorldDir(own string) string { return cmp.Or(s.Worlds, own) }

func (s Settings) sim() *model.Sim {
	out := &model.Sim{Boot: s.Boot, BootJitter: s.BootJitter, Seed: int(s.Seed)}
	for _, v := range s.Verbs {
		out.Verbs = append(out.Verbs, model.SimVerb{
			Verb: v.Verb, Latency: v.Latency, Jitter: v.Jitter, Faults: v.Faults,
		})
	}
	return out
}

// double returns the settings of a provider's double.
func (s Settings) double(p model.Provider) *model.Sim {
	out := s.sim()
	names := p.HostNames()
	if len(names) == 0 && p.VSphere != nil { // vCenter places the VMs
		names = []string{vCenterCluster(p.VSphere)}
	}
	for _, name := range names {
		out.Hosts = append(out.Hosts, model.SimHost{Name: name, CPUs: 256, Memory: 4 * model.TiB, Disk: 64 * model.TiB})
	}
	return out
}

func (s Settings) pretend() pretend.Settings {
	p := pretend.Settings{
		Tasks: s.Plays.Tasks, Latency: time.Duration(s.Plays.Latency), Jitter: time.Duration(s.Plays.Jitter),
		Changed: s.Plays.Changed, Seed: uint64(s.Seed),
	}
	for _, f := range s.Plays.Faults {
		p.Faults = append(p.Faults, pretend.Fault(f))
	}
	return p
}
