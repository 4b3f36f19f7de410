package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DrillPool is the pool of the machine of a restore drill. It is of no document.
const DrillPool = "drill"

const opDrill = "planner.drill"

// worldDrill is the world of a restore drill.
type worldDrill struct{ World }

func (w World) drill() worldDrill { return worldDrill{w} }

// DrillName is the name of the VM of a cluster's drill. No node has it: the names of nodes end with a number.
func DrillName(cluster string) string { return cluster + "-drill" }

// Drill returns the plan that restores a backup into a VM of its own, asks it, and deletes the VM again, also when a
// step before that failed. No node of the cluster is touched. The VM has the size of a master and authorities of its
// own, is on the network that the document names for it, and has no route to anything but the director.
// Errors: those of a restore, invalid and conflict for a network that does not do, and conflict while the VM of another
// drill is there.
func Drill(w World, r plan.Request) (plan.Content, error) {
	if err := w.drill().checkDrill(); err != nil {
		return plan.Content{}, err
	}
	alone, err := w.drill().secluded()
	if err != nil {
		return plan.Content{}, err
	}
	m, err := alone.drill().drillMachine()
	if err != nil {
		return plan.Content{}, err
	}
	d := w.draft(plan.ClusterDrill)
	d.Request = r
	d.Windows = []plan.Window{{ID: DrillPool, Size: 1, Goal: "answered"}}
	drill := &draft{d.in(alone)}
	asked := drill.backups().tryRestore(m)
	var undone []string
	for _, s := range d.Steps {
		if s.Window == DrillPool {
			undone = append(undone, s.ID)
		}
	}
	drill.backups().endDrill(m, []string{asked}, group{})
	drill.backups().endDrill(m, nil, group{window: DrillPool, undoes: undone})
	d.concerns(m)
	facts := alone.facts([]sized{m})
	d.Facts = encode(facts)
	d.Summary = fmt.Sprintf(
		"Restore backup %s of cluster %s into a VM of its own, ask it, and delete the VM.", w.Restore.Backup, d.Cluster,
	)
	return d.done(), nil
}

// checkDrill refuses what could not be restored, and a network from which the VM could reach the cluster's nodes.
func (w worldDrill) checkDrill() error {
	if err := w.checkRestore(); err != nil {
		return err
	}
	name := w.Cluster.Metadata.Name
	for _, m := range w.Drills {
		if m.Deleted.IsZero() {
			return conflict(
				opDrill, "the VM of another drill of cluster "+name+" is there",
				"wait until its plan has deleted it: directorctl plans --cluster "+name,
			)
		}
	}
	c := w.Cluster.Cluster
	network := c.Backup.Drill.Network
	if network == "" {
		return conflict(
			opDrill, "cluster "+name+" names no network for drills",
			"name one in spec.backup.drill.network of Cluster/"+name,
		)
	}
	field := func(hint, format string, args ...any) error {
		return director.Invalid(opDrill, "the network of drills does not do", []director.Field{{
			Path: "spec.backup.drill.network", Msg: fmt.Sprintf(format, args...), Hint: hint,
		}})
	}
	u := w.Underlays[network]
	if u.Network == nil {
		return conflict(opDrill, "there is no Network/"+network, "apply its document")
	}
	if u.Network.Provider != c.Provider {
		return field("name a network of "+c.Provider, "is on provider %s, and the cluster on %s", u.Network.Provider,
			c.Provider)
	}
	others := map[string]netip.Prefix{
		"Network/" + c.Network: w.Network.Network.CIDR, "the pods": c.Pods.CIDR, "the services": c.Services.CIDR,
	}
	for other, of := range w.Underlays {
		if other != network {
			others["Network/"+other] = of.Network.CIDR
		}
	}
	if slices.Contains(c.Networks(), network) {
		return field("name one that no node is on", "is a network of the cluster's nodes")
	}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		if others[other].IsValid() && others[other].Overlaps(u.Network.CIDR) {
			return field(
				"name one with a range of its own", "overlaps with the range of %s (%s)", other, others[other],
			)
		}
	}
	return nil
}

// secluded returns the world of the drill's VM: the cluster as a single master on another network, which knows no way
// but the one to the director.
func (w worldDrill) secluded() (World, error) {
	doc := *w.Cluster.Cluster
	drill := w.Underlays[doc.Backup.Drill.Network]
	network := *drill.Network
	gateway := network.Gateway
	network.Gateway, network.DNS, network.NTP, network.Routes = netip.Addr{}, nil, nil, nil
	own, err := netip.ParseAddr(w.Director.Address)
	switch {
	case err != nil:
		return w.World, conflict(
			opDrill, fmt.Sprintf("the director's address %q is a name, and the VM of a drill asks no name server",
				w.Director.Address), "set address of the director's configuration to an IP address",
		)
	case !network.CIDR.Contains(own) && gateway.IsValid():
		network.Routes = []model.Route{{To: netip.PrefixFrom(own, own.BitLen()), Via: gateway}}
	}
	doc.Network, doc.Workers, doc.API, doc.Hosts = doc.Backup.Drill.Network, nil, model.APIEndpoint{}, nil
	doc.Masters.Count, doc.Masters.DataDisk, doc.Masters.Persist = 1, 0, nil
	doc.Masters.VMModel = model.VMModel{}
	w.Cluster.Cluster, w.Cluster.UID = &doc, director.DrillUID(w.Cluster.UID)
	w.Network, w.Used, w.Sharers = drill.Stored, map[netip.Addr]bool{gateway: true}, drill.Sharers
	maps.Copy(w.Used, drill.Used)
	w.realNetwork = *drill.Network
	w.Network.Network = &network
	w.Machines, w.Installed, w.Underlays, w.Seen = w.Drills, nil, nil, nil
	return w.World, nil
}

// drillMachine returns the machine, with an address and a host that are free.
func (w worldDrill) drillMachine() (sized, error) {
	c := w.Cluster.Cluster
	name := DrillName(w.Cluster.Metadata.Name)
	m := director.Machine{
		ID: MachineID(w.Cluster.UID, name, len(w.Drills)), ClusterUID: w.Cluster.UID,
		Cluster: w.Cluster.Metadata.Name, Name: name, Role: director.RoleMaster, Pool: DrillPool,
		Provider: c.Provider, Network: c.Network, Image: w.image(), CPUs: c.Masters.CPUs,
		Memory: int64(c.Masters.Memory), State: director.MachineIntended,
	}
	m.MAC = w.macs().give(m.ID)
	list := []sized{w.sized(m)}
	err := allocator(w).settle(list)
	return list[0], err
}

// tryRestore makes the VM, restores the backup in it and asks. It returns the last step.
func (d backupDraft) tryRestore(m sized) string {
	in := group{window: DrillPool}
	release, image := d.releasePush(), d.imageEnsure()
	keys := in.step(step.DrillKeys, m.Name, "Make authorities for the drill, and lend it the keys of Secrets")
	keys.Params = encode(d.drillParams(m))
	keys.Effects = []plan.Effect{{Verb: "create", Object: "secret", Name: m.Name, Detail: "until the VM is gone"}}
	keys.Needs, keys.Attempts, keys.Timeout, keys.Estimate = []string{release}, 3, time.Minute, time.Second
	last := d.add(keys)

	network := d.w.Network
	network.Network = &d.w.realNetwork
	made := networkStep(step.NetworkEnsure, "Make network ", d.w.Cluster.Cluster.Network, network, plan.Effect{
		Verb: "create", Object: "network", Name: d.w.Cluster.Cluster.Network,
		Detail: network.Network.Mode + " " + network.Network.CIDR.String(),
	})
	made.Window, made.Node, made.Needs = in.window, m.Name, []string{last}
	last = d.boot(m, []string{d.add(made), image}, in)
	last = d.play(playbook{
		name: "install/prepare", id: "prepare", title: "Prepare " + m.Name, limit: []string{m.Name},
		estimate: 50 * time.Second, effects: []plan.Effect{{
			Verb: "change", Object: "file", Name: m.Name, Detail: "host name, registry trust, container runtime, time",
		}},
	}, []string{last}, in)

	b := d.w.Restore
	stage := in.step(step.RestoreStage, m.Name, "Lay the snapshot on "+m.Name)
	cluster, _ := director.DrillOf(d.w.Cluster.UID)
	stage.Needs = []string{last}
	stage.Params = encode(step.RestoreParams{
		UID: cluster, Cluster: d.Cluster, Backup: b.Backup, Revision: b.Revision, Size: b.Size, SHA256: b.SHA256,
		Machine: plan.SpecOf(m.Machine),
	})
	stage.Effects = []plan.Effect{{Verb: "create", Object: "file", Name: m.Name, Detail: "the snapshot"}}
	stage.Attempts, stage.Timeout, stage.Estimate = 3, time.Hour, 5*time.Second
	last = d.play(playbook{
		name: "drill", title: "Restore the snapshot, and start etcd and an API server on it", limit: []string{m.Name},
		estimate: 90 * time.Second, effects: []plan.Effect{{
			Verb: "create", Object: "api", Name: m.Name, Detail: "etcd and an API server, and nothing else",
		}},
	}, []string{d.add(stage)}, in)

	ask := in.step(step.DrillAsk, m.Name, "Compare what is there with the manifest of the backup")
	ask.Needs, ask.Params = []string{last}, encode(d.drillParams(m))
	ask.Attempts, ask.Timeout, ask.Estimate = 3, 5*time.Minute, time.Second
	return d.add(ask)
}

// endDrill deletes the VM, and what the drill had of its own.
func (d backupDraft) endDrill(m sized, needs []string, in group) {
	network := d.w.Network
	network.Network = &d.w.realNetwork
	name := d.w.Cluster.Cluster.Network
	gone := d.deleteVM(m, needs, in)
	left := networkStep(step.NetworkDelete, "Delete network ", name, network, plan.Effect{
		Verb: "delete", Object: "network", Name: name, Detail: "unless it is in use",
	})
	left.Window, left.Node, left.Undoes, left.Needs = in.window, m.Name, in.undoes, []string{gone}
	end := in.step(step.DrillEnd, m.Name, "Forget the secrets of the drill")
	end.Params = encode(d.drillParams(m))
	end.Effects = []plan.Effect{{Verb: "delete", Object: "secret", Name: m.Name}}
	end.Needs, end.Attempts, end.Timeout, end.Estimate = []string{d.add(left)}, 3, time.Minute, time.Second
	d.add(end)
}

func (d backupDraft) drillParams(m sized) step.DrillParams {
	cluster, _ := director.DrillOf(d.w.Cluster.UID)
	return step.DrillParams{
		UID: cluster, Cluster: d.Cluster, Backup: d.w.Restore.Backup, FormerKeys: d.w.Restore.FormerKeys,
		Machine: plan.SpecOf(m.Machine),
	}
}
