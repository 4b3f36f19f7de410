package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

type sized struct {
	director.Machine
	model.VMSize
	persist []string
}

// machines returns those of the document, masters first: what is in the ledger keeps its row, the others get the next free address.
func (w World) machines() ([]sized, error) {
	c := w.Cluster.Cluster
	existing := map[string]director.Machine{}
	serial := map[string]int{}
	for _, m := range w.Machines {
		serial[m.Name]++
		if m.Deleted.IsZero() {
			existing[m.Name] = m
		}
	}
	var want []sized
	add := func(role director.Role, pool string, n int, size model.VMSize, persist []string) {
		for i := range n {
			name := fmt.Sprintf("%s-%s-%d", w.Cluster.Metadata.Name, pool, i+1)
			m, ok := existing[name]
			if !ok {
				m = director.Machine{
					ID: machineID(w.Cluster.UID, name, serial[name]), ClusterUID: w.Cluster.UID, Cluster: w.Cluster.Metadata.Name, Name: name,
					Role: role, Pool: pool, Provider: c.Provider, Network: c.Network, Image: c.Image, CPUs: size.CPUs, Memory: int64(size.Memory),
					State: director.MachineIntended,
				}
				m.MAC = macOf(m.ID)
			}
			want = append(want, sized{m, size, persist})
		}
	}
	add(director.RoleMaster, "master", c.Masters.Count, c.Masters.VMSize, c.Masters.Persist)
	for _, p := range c.Workers {
		add(director.RoleWorker, p.Name, p.Count, p.VMSize, p.Persist)
	}
	missing := 0
	for _, m := range want {
		if m.Address == "" {
			missing++
		}
	}
	free, err := w.Network.Network.Free(missing, w.Used)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindExhausted, Op: "planner.addresses", Msg: "Network/" + c.Network + " has too few free addresses: " + err.Error(),
			Hint:   "widen spec.pool of the Network, or delete a cluster that uses it",
			Fields: []director.Field{{Path: "spec.network", Msg: err.Error()}},
		}
	}
	load := map[string]int{}
	for _, host := range w.Provider.Provider.HostNames() {
		load[host] = w.Host[host]
	}
	for i := range want {
		if want[i].Address == "" {
			want[i].Address, free = free[0].String(), free[1:]
			want[i].Host = leastLoaded(load)
		}
	}
	return want, nil
}

// leastLoaded takes the host with the fewest VMs, the first by name among equals, and counts the new one.
func leastLoaded(load map[string]int) string {
	hosts := make([]string, 0, len(load))
	for h := range load {
		hosts = append(hosts, h)
	}
	sort.Strings(hosts)
	best := ""
	for _, h := range hosts {
		if best == "" || load[h] < load[best] {
			best = h
		}
	}
	load[best]++
	return best
}

func (w World) alive() []director.Machine {
	var out []director.Machine
	for _, m := range w.Machines {
		if m.Deleted.IsZero() {
			out = append(out, m)
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Role != out[j].Role {
			return out[i].Role == director.RoleMaster
		}
		return out[i].Name < out[j].Name
	})
	return out
}

// sizeOf returns the size of the machine's role in the document; a machine of a pool that is gone has only what the ledger knows.
func (w World) sizeOf(m director.Machine) model.VMSize {
	c := w.Cluster.Cluster
	if m.Role == director.RoleMaster {
		return c.Masters.VMSize
	}
	for _, p := range c.Workers {
		if p.Name == m.Pool {
			return p.VMSize
		}
	}
	return model.VMSize{CPUs: m.CPUs, Memory: model.Size(m.Memory)}
}

func (w World) vmParams(m sized) VMParams {
	return VMParams{
		Machine: m.Machine, Disk: m.Disk, DataDisk: m.DataDisk, Persist: m.persist, Network: *w.Network.Network, NetworkID: w.Network.UID,
		SSHKeys: w.Cluster.Cluster.SSHKeys, Hosts: w.Cluster.Cluster.Hosts, ImageName: w.Cluster.Cluster.Image,
	}
}

func names(machines []sized) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// machineID is the same for the same incarnation of a node, so that a plan made twice is the same plan.
func machineID(clusterUID, name string, serial int) string {
	sum := sha256.Sum256([]byte(clusterUID + "/" + name + "/" + strconv.Itoa(serial)))
	return "m" + hex.EncodeToString(sum[:8])
}

// macOf derives a locally administered address in QEMU's range from the machine's id.
func macOf(id string) string {
	sum := sha256.Sum256([]byte("mac/" + id))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}

func planMachine(m director.Machine) plan.Machine {
	return plan.Machine{ID: m.ID, Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, MAC: m.MAC, Host: m.Host}
}

func vmEffects(m sized, verb string) []plan.Effect {
	effects := []plan.Effect{
		{Verb: verb, Object: "vm", Name: m.Name, Detail: fmt.Sprintf("%d vCPU, %s, disk %s, on %s", m.VMSize.CPUs, m.VMSize.Memory, m.Disk, m.Host)},
		{Verb: verb, Object: "address", Name: m.Address},
	}
	if m.DataDisk > 0 {
		effects = append(effects, plan.Effect{Verb: verb, Object: "volume", Name: m.Name + " data", Detail: m.DataDisk.String()})
	}
	return effects
}
