package model

import (
	"regexp"
	"strconv"
	"strings"
)

// Reserved is what a node keeps from its pods. The scheduler sees the rest (Node Allocatable:
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/).
type Reserved struct {
	Kubelet Resources `json:"kubelet,omitzero" doc:"For the kubelet and the container runtime. Default: the cluster's variable kube_reserved."`
	System  Resources `json:"system,omitzero" doc:"For the node's other services. Default: the cluster's variable system_reserved."`
}

// Resources is an amount of what a node has. What is left out is zero.
type Resources struct {
	CPU    string `json:"cpu,omitempty" doc:"CPUs, such as 500m or 2."`
	Memory Size   `json:"memory,omitempty" doc:"Memory, such as 512MiB." max:"512GiB"`
	Disk   Size   `json:"disk,omitempty" doc:"Room on the root disk for logs and images, such as 2GiB." max:"16TiB"`
	PIDs   int    `json:"pids,omitempty" doc:"Processes." min:"0" max:"1000000"`
}

// Quantities returns the resources as Kubernetes names and writes them: cpu, memory, ephemeral-storage, pid. Zeros are
// left out.
func (r Resources) Quantities() map[string]string {
	out := map[string]string{}
	if r.CPU != "" {
		out["cpu"] = r.CPU
	}
	for name, size := range map[string]Size{"memory": r.Memory, "ephemeral-storage": r.Disk} {
		if size > 0 {
			out[name] = strings.TrimSuffix(size.String(), "B")
		}
	}
	if r.PIDs > 0 {
		out["pid"] = strconv.Itoa(r.PIDs)
	}
	return out
}

var cpuPattern = regexp.MustCompile(`^([0-9]{1,3}|[0-9]{1,6}m)$`)

// millis reads a number of CPUs in thousandths; 0 for a text that is none.
func millis(cpu string) int {
	if !cpuPattern.MatchString(cpu) {
		return 0
	}
	digits, thousandths := strings.CutSuffix(cpu, "m")
	n, _ := strconv.Atoi(digits) // the pattern has digits alone
	if !thousandths {
		n *= 1000
	}
	return n
}

// reserved checks that at least half of the VM is left for pods: a kubelet whose reservations leave nothing does not
// start.
func (v *vmValidator) reserved(at string, r Reserved, vm VMSize) {
	for _, part := range []struct {
		name string
		Resources
	}{{"kubelet", r.Kubelet}, {"system", r.System}} {
		if part.CPU != "" {
			v.match(at+"."+part.name+".cpu", part.CPU, cpuPattern, "CPUs or thousandths of one, such as 2 or 500m", 7)
		}
	}
	const hint = "reserve at most half, or give the VM more"
	if cpu := millis(r.Kubelet.CPU) + millis(r.System.CPU); cpu > vm.CPUs*500 {
		v.fail(at, hint, "keeps %dm of %d CPUs from pods", cpu, vm.CPUs)
	}
	if memory := r.Kubelet.Memory + r.System.Memory; memory > vm.Memory/2 {
		v.fail(at, hint, "keeps %s of %s of memory from pods", memory, vm.Memory)
	}
	if disk := r.Kubelet.Disk + r.System.Disk; disk > vm.Disk/2 {
		v.fail(at, hint, "keeps %s of the root disk of %s from pods", disk, vm.Disk)
	}
}
