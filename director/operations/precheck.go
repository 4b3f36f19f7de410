package operations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// precheck looks at everything that would stop the plan half way, and returns all problems in one invalid error, each with the field and what to do
// (requirement A7). Warnings do not stop it.
func (o *Operations) precheck(ctx context.Context, w planner.World, c plan.Content) (warnings []string, err error) {
	warnings, err = model.Validate(&w.Cluster.Document)
	if err != nil {
		return nil, err
	}
	budget, err := o.overBudget(ctx, w.Provider.Metadata.Name, c)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, budget...)
	var problems []director.Field
	problems = append(problems, o.checkImage(ctx, w)...)
	facts, err := planner.DecodeFacts(c)
	if err != nil {
		return nil, err
	}
	problems = append(problems, fieldsOf(o.Env.CheckInventory(facts))...)
	quota, err := o.checkQuota(ctx, w)
	if err != nil {
		return nil, err
	}
	problems = append(problems, quota...)
	host, err := o.checkProvider(ctx, w, c)
	if err != nil {
		problems = append(problems, director.Field{Path: w.Provider.Ref().String(), Msg: message(err), Hint: director.HintOf(err)})
	}
	problems = append(problems, host...)
	return warnings, director.Invalid("operations.precheck", "the plan for cluster "+c.Cluster+" cannot work", problems)
}

func message(err error) string {
	if e, ok := errors.AsType[*director.Error](err); ok {
		return e.Msg
	}
	return err.Error()
}

// of returns the SHA-256 of the file in hex, read at most once as long as size and time of change stay.
func (c *checksums) of(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	key := fileKey{path, info.Size(), info.ModTime()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sum, ok := c.known[key]; ok {
		return sum, nil
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash never fails
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", err
		}
	}
	c.known[key] = hex.EncodeToString(h.Sum(nil))
	return c.known[key], nil
}

// checkQuota adds what the cluster needs to what the provider's other clusters have.
func (o *Operations) checkQuota(ctx context.Context, w planner.World) ([]director.Field, error) {
	q := w.Provider.Provider.Quota
	if q == (model.Quota{}) {
		return nil, nil
	}
	machines, err := o.Store.Machines(ctx, store.MachineFilter{Provider: w.Provider.Metadata.Name})
	if err != nil {
		return nil, err
	}
	count, cpus, memory := 0, 0, int64(0)
	for _, m := range machines {
		if m.ClusterUID != w.Cluster.UID {
			count, cpus, memory = count+1, cpus+m.CPUs, memory+m.Memory
		}
	}
	c := w.Cluster.Cluster
	add := func(n int, s model.VMSize) {
		count, cpus, memory = count+n, cpus+n*s.CPUs, memory+int64(n)*int64(s.Memory)
	}
	add(c.Masters.Count, c.Masters.VMSize)
	for _, p := range c.Workers {
		add(p.Count, p.VMSize)
	}
	var out []director.Field
	over := func(what string, need, limit any) {
		out = append(out, director.Field{
			Path: w.Provider.Ref().String() + ": spec.quota." + what, Msg: fmt.Sprintf("%v would be used and %v are allowed", need, limit),
			Hint: "make the cluster smaller, or raise the quota",
		})
	}
	if q.Machines > 0 && count > q.Machines {
		over("machines", count, q.Machines)
	}
	if q.CPUs > 0 && cpus > q.CPUs {
		over("cpus", cpus, q.CPUs)
	}
	if q.Memory > 0 && memory > int64(q.Memory) {
		over("memory", model.Size(memory), q.Memory)
	}
	return out, nil
}

// checkProvider asks the hypervisor: reachable, room for what is new, and no stranger with one of our names.
func (o *Operations) checkProvider(ctx context.Context, w planner.World, c plan.Content) ([]director.Field, error) {
	b, err := o.Env.Backends.Backend(ctx, w.Provider.Metadata.Name)
	if err != nil {
		return nil, err
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Strangers: true})
	if err != nil {
		return nil, err
	}
	var out []director.Field
	existing := map[string]bool{}
	byName := map[string]hypervisor.VM{}
	for _, vm := range vms {
		byName[vm.Name] = vm
	}
	for _, m := range c.Machines {
		vm, taken := byName[m.Name]
		if taken && vm.Stamp.Machine == m.ID && vm.Stamp.Director == o.Director.ID {
			existing[m.Name] = true
		} else if taken {
			out = append(out, director.Field{
				Path: "metadata.name", Msg: "a VM named " + m.Name + " that this cluster does not own is on host " + vm.Host,
				Hint: "choose another cluster name, or remove that VM",
			})
		}
	}
	capacity, ok := hypervisor.Capability[hypervisor.Capacity](b)
	if !ok {
		return out, nil
	}
	hosts, err := capacity.Capacity(ctx)
	if err != nil {
		return out, err
	}
	return append(out, tooSmall(w, c, hosts, existing)...), nil
}

// tooSmall compares what the new VMs need with what their hosts have left. Memory is never overcommitted; disks are thin, so only a tenth of
// their size must be free.
func tooSmall(w planner.World, c plan.Content, hosts []hypervisor.HostCapacity, existing map[string]bool) []director.Field {
	const thin = 10
	memory, disk := map[string]int64{}, map[string]int64{}
	sizes := map[string]model.VMSize{"master": w.Cluster.Cluster.Masters.VMSize}
	for _, p := range w.Cluster.Cluster.Workers {
		sizes[p.Name] = p.VMSize
	}
	for _, m := range c.Machines {
		if !existing[m.Name] {
			s := sizes[m.Pool]
			memory[m.Host] += int64(s.Memory)
			disk[m.Host] += int64(s.Disk+s.DataDisk) / thin
		}
	}
	var out []director.Field
	for _, h := range hosts {
		at := w.Provider.Ref().String() + ": host " + h.Host
		if need := memory[h.Host]; need > h.MemoryFree {
			out = append(out, director.Field{
				Path: at, Msg: fmt.Sprintf("%s of memory are needed and %s are free", inMiB(need), inMiB(h.MemoryFree)),
				Hint: "choose smaller nodes, fewer of them, or a host with more memory",
			})
		}
		if need := disk[h.Host]; need > h.DiskFree {
			out = append(out, director.Field{
				Path: at, Msg: fmt.Sprintf("at least %s of disk are needed and %s are free in its storage pool", inMiB(need), inMiB(h.DiskFree)),
				Hint: "free space in the pool, or choose smaller disks",
			})
		}
	}
	return out
}

func inMiB(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
