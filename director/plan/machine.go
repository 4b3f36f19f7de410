package plan

import (
	"encoding/json"

	"github.com/director-kaas/kaas/director"
)

// MachineSpec is what a plan needs of a machine: its identity, its place and its size. What becomes of the machine is
// written in the ledger alone.
type MachineSpec struct {
	ID         string         `json:"id"` // of the ledger's row
	ClusterUID string         `json:"cluster_uid"`
	Cluster    string         `json:"cluster"`
	Name       string         `json:"name"` // host name and node name
	Role       director.Role  `json:"role"`
	Pool       string         `json:"pool"`
	Provider   string         `json:"provider"`
	Network    string         `json:"network"`
	Image      string         `json:"image"` // on the provider
	Address    string         `json:"address"`
	MAC        string         `json:"mac"`
	NICs       []director.NIC `json:"nics,omitempty"` // the adapters after the first
	CPUs       int            `json:"cpus"`
	Memory     int64          `json:"memory"` // bytes
	Host       string         `json:"host,omitempty"`
}

// SpecOf returns what a plan needs of the machine.
func SpecOf(m director.Machine) MachineSpec {
	return MachineSpec{
		ID: m.ID, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Name: m.Name, Role: m.Role, Pool: m.Pool,
		Provider: m.Provider, Network: m.Network, Image: m.Image, Address: m.Address, MAC: m.MAC, NICs: m.NICs,
		CPUs: m.CPUs, Memory: m.Memory, Host: m.Host,
	}
}

// Row returns the row that the ledger gets when the machine is reserved.
func (m MachineSpec) Row() director.Machine {
	return director.Machine{
		ID: m.ID, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Name: m.Name, Role: m.Role, Pool: m.Pool,
		Provider: m.Provider, Network: m.Network, Image: m.Image, Address: m.Address, MAC: m.MAC, NICs: m.NICs,
		CPUs: m.CPUs, Memory: m.Memory, Host: m.Host, State: director.MachineIntended,
	}
}

// UnmarshalJSON also reads the machines of plans of format 1. They have the names of Go fields, which differ from
// today's in case, and in one name more than that.
func (m *MachineSpec) UnmarshalJSON(text []byte) error {
	type fields MachineSpec
	either := struct {
		*fields
		Former string `json:"ClusterUID"`
	}{fields: (*fields)(m)}
	if err := json.Unmarshal(text, &either); err != nil {
		return err
	}
	if m.ClusterUID == "" {
		m.ClusterUID = either.Former
	}
	return nil
}
