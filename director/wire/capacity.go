package wire

import (
	"regexp"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Checked is everything that a plan would be refused for.
type Checked struct {
	Cluster   string         `json:"cluster"`
	OK        bool           `json:"ok" doc:"A plan can be made."`
	Operation string         `json:"operation,omitempty" doc:"What would be planned."`
	Summary   string         `json:"summary,omitempty"`
	Steps     int            `json:"steps,omitempty"`
	Problems  []ProblemField `json:"problems"`
	Warnings  []string       `json:"warnings,omitempty"`
	Addresses []AddressCheck `json:"addresses,omitempty" doc:"How the addresses were looked at that the plan would give away."`
}

// AddressCheck is how the addresses of a network were looked at.
type AddressCheck struct {
	Network   string   `json:"network"`
	Addresses int      `json:"addresses" doc:"How many."`
	Ways      []string `json:"ways" doc:"ledger: of the director's own machines. hypervisor: what it knows of its VMs. ssh port: a knock at it. arp: on a network that the director itself is on."`
}

// Capacities is what providers have left, by name.
type Capacities struct {
	Items []Capacity `json:"items"`
}

// Capacity is what a provider has left.
type Capacity struct {
	Provider string         `json:"provider"`
	Unseen   string         `json:"unseen,omitempty" doc:"Why its hosts were not seen."`
	Hint     string         `json:"hint,omitempty" doc:"What to do about that."`
	Hosts    []HostCapacity `json:"hosts"`
	Used     Amounts        `json:"used" doc:"What the director's machines take of the quota."`
	Quota    Amounts        `json:"quota" doc:"Zero means no limit."`
	Fits     []Fit          `json:"fits"`
}

// Amounts are what quotas count.
type Amounts struct {
	Machines    int   `json:"machines"`
	CPUs        int   `json:"cpus"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// HostCapacity is what a host has, has promised and has left under the provider's policy.
type HostCapacity struct {
	Host                string `json:"host"`
	CPUs                int    `json:"cpus"`
	CPUsPromised        int    `json:"cpus_promised" doc:"To all its VMs, also those of others."`
	CPUsLeft            *int   `json:"cpus_left,omitempty" doc:"Absent without a bound."`
	MemoryBytes         int64  `json:"memory_bytes"`
	MemoryPromisedBytes int64  `json:"memory_promised_bytes"`
	MemoryLeftBytes     int64  `json:"memory_left_bytes"`
	DiskBytes           int64  `json:"disk_bytes"`
	DiskLeftBytes       int64  `json:"disk_left_bytes"`
}

// Fit is how many VMs of a size still fit.
type Fit struct {
	Pool        string `json:"pool,omitempty" doc:"Of the cluster that was asked for."`
	CPUs        int    `json:"cpus"`
	MemoryBytes int64  `json:"memory_bytes"`
	DiskBytes   int64  `json:"disk_bytes"`
	Count       int    `json:"count"`
	By          string `json:"by" doc:"What ends it: what the hosts have, a quota, or addresses."`
}

var (
	documentName = regexp.MustCompile(`^[A-Z][A-Za-z]+/[a-z0-9.-]+$`)
	fieldPath    = regexp.MustCompile(`^(spec|metadata)([.\[][^ ]*)?$`)
)

// ProblemFieldOf converts a wrong place. Where it names a document, and a field, both are told apart from the rest for
// programs.
func ProblemFieldOf(f director.Field) ProblemField {
	out := ProblemField{Field: f.Path, Document: f.Document, Message: f.Msg, Hint: f.Hint}
	place := f.Path
	if i := strings.LastIndex(place, ": "); i >= 0 {
		if out.Document == "" && documentName.MatchString(place[:i]) {
			out.Document = place[:i]
		}
		place = place[i+2:]
	}
	if fieldPath.MatchString(place) {
		out.Pointer = "/" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(place)
	}
	return out
}
