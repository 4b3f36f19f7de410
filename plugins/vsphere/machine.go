package vsphere

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// space is the namespace of our UUIDs.
var space = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:director-kaas:vsphere:1"))

// vmUUID is the instance UUID of the machine's VM.
func vmUUID(s director.Stamp) string {
	return uuid.NewSHA1(space, []byte("vm/"+s.Director+"/"+s.Machine)).String()
}

// What is written into a VM's extraConfig. Keys are asked for one by one: the rest of it is long, and holds the guest's
// settings.
const (
	keyDirector = "kaas.director"
	keyMachine  = "kaas.machine"
	keyMade     = "kaas.made"   // yes when the VM has all its disks
	keyImage    = "kaas.image"  // what it was cloned from
	keyClone    = "kaas.clone"  // linked or full
	keyReason   = "kaas.reason" // why so
	keyDisks    = "kaas.disks"  // its data disks: serials, and serial@machine for one that it took over
	keyMoved    = "kaas.moved"  // data disks being rolled back, while the VM is deleted
	keyGroup    = "kaas.group"
	// yes if it never shares a host with another one of its group that says so, leaving while it is deleted.
	keyApart   = "kaas.apart"
	keyAdopted = "kaas.adopted" // yes if others have made it: its root disk is theirs

	keyTemplate = "kaas.template" // templates: the image's name
	keySum      = "kaas.sha256"   // of the image's file
	keySize     = "kaas.size"     // of its disk, bytes
)

var ownKeys = []string{
	keyDirector, keyMachine, keyMade, keyImage, keyClone, keyReason, keyDisks, keyMoved, keyGroup, keyApart, keyNICs,
	keyAdopted, keyTemplate, keySum, keySize,
}

// machine is a VM or template as vCenter has it.
type machine struct {
	ref      types.ManagedObjectReference
	name     string
	uuid     string // of the instance; empty while vCenter makes it
	template bool
	on       bool
	host     types.ManagedObjectReference
	cpus     int
	memory   int64
	vmx      string // path of its file
	version  string // of its configuration
	snapshot *types.ManagedObjectReference
	extra    map[string]string
	nics     []nic // nil if the devices were not read
}

// propDevices are the machine's devices: the one long property, which lists of all machines do without.
const propDevices = "config.hardware.device"

// machineProperties are what the fields of machine are read from.
func machineProperties() []string {
	paths := []string{
		"name", "config.instanceUuid", "config.template", "config.changeVersion", "config.files.vmPathName",
		"config.hardware.numCPU",
		"config.hardware.memoryMB", "runtime.powerState", "runtime.host", "snapshot.currentSnapshot",
	}
	for _, k := range ownKeys {
		paths = append(paths, `config.extraConfig["`+k+`"]`)
	}
	return paths
}

func machineOf(o types.ObjectContent) *machine {
	m := &machine{ref: o.Obj, extra: map[string]string{}}
	var devices []types.BaseVirtualDevice
	for _, p := range o.PropSet {
		switch v := p.Val.(type) {
		case string:
			switch p.Name {
			case "name":
				m.name = v
			case "config.instanceUuid":
				m.uuid = v
			case "config.files.vmPathName":
				m.vmx = v
			case "config.changeVersion":
				m.version = v
			}
		case bool:
			m.template = v
		case int32:
			if p.Name == "config.hardware.numCPU" {
				m.cpus = int(v)
			} else {
				m.memory = int64(v) << 20
			}
		case types.VirtualMachinePowerState:
			m.on = v == types.VirtualMachinePowerStatePoweredOn
		case types.ManagedObjectReference:
			if p.Name == "runtime.host" {
				m.host = v
			} else {
				m.snapshot = &v
			}
		case types.OptionValue:
			m.extra[v.Key] = fmt.Sprint(v.Value)
		case types.ArrayOfVirtualDevice:
			devices = v.VirtualDevice
		}
	}
	if devices != nil {
		m.nics = nicsOf(devices, m.on)
	}
	return m
}

// stamp is who owns the VM: none of ours if its UUID does not agree, as in a copy that a person has made of one of our
// VMs.
func (m *machine) stamp() director.Stamp {
	s := director.Stamp{Director: m.extra[keyDirector], Machine: m.extra[keyMachine]}
	if s.Director == "" || s.Machine == "" || vmUUID(s) != m.uuid {
		return director.Stamp{}
	}
	return s
}

func (m *machine) adopted() bool { return m.extra[keyAdopted] == "yes" }

func (m *machine) made() bool { return m.extra[keyMade] == "yes" }

// dir is the VM's directory, such as "[datastore] name".
func (m *machine) dir() string {
	if i := strings.LastIndex(m.vmx, "/"); i >= 0 {
		return m.vmx[:i]
	}
	return ""
}

// vm is the machine as the contract has it.
func (b *center) vm(ctx context.Context, p *place, m *machine) (hypervisor.VM, error) {
	host, err := b.nameOf(ctx, p, m.host)
	if err != nil {
		return hypervisor.VM{}, err
	}
	adapters, err := b.adapters(ctx, p, m)
	if err != nil {
		return hypervisor.VM{}, err
	}
	power := hypervisor.PowerOff
	if m.on {
		power = hypervisor.PowerOn
	}
	return hypervisor.VM{
		ID: hypervisor.ID(m.uuid), Name: m.name, Host: host, Stamp: m.stamp(), Power: power, Ready: m.on && m.made(),
		CPUs: m.cpus, Memory: m.memory,
		Adapters: adapters,
	}, nil
}

// lookup returns the machine with the instance UUID, or nil.
func lookup(ctx context.Context, p *place, id string) (*machine, error) {
	dc, instance := p.dc.Reference(), true
	res, err := methods.FindByUuid(ctx, p.vim, &types.FindByUuid{
		This: *p.vim.ServiceContent.SearchIndex, Datacenter: &dc, Uuid: id, VmSearch: true, InstanceUuid: &instance,
	})
	if err != nil || res.Returnval == nil {
		return nil, err
	}
	return readMachine(ctx, p.vim, *res.Returnval)
}

// readMachine returns the machine, or nil if it is gone.
func readMachine(ctx context.Context, vim *vim25.Client, ref types.ManagedObjectReference) (*machine, error) {
	found, err := retrieve(ctx, vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: ref}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: append(machineProperties(), propDevices)}},
	})
	if hasFault[types.ManagedObjectNotFound](err) || err == nil && len(found) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return machineOf(found[0]), nil
}

// below returns every VM and template below the folder. One call asks for all of it, and leaves nothing behind in
// vCenter.
func below(ctx context.Context, vim *vim25.Client, folder types.ManagedObjectReference) ([]*machine, error) {
	found, err := retrieve(ctx, vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: folder, Skip: types.NewBool(
			true,
		), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			SelectionSpec: types.SelectionSpec{Name: "folders"}, Type: "Folder", Path: "childEntity",
			SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "folders"}},
		}}}},
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: machineProperties()}},
	})
	var all []*machine
	for _, o := range found {
		if m := machineOf(o); m.name != "" {
			all = append(all, m)
		}
	}
	return all, err
}

// retrieve asks for properties without making anything in vCenter that a lost session would take along.
func retrieve(ctx context.Context, vim *vim25.Client, spec types.PropertyFilterSpec) ([]types.ObjectContent, error) {
	collector := vim.ServiceContent.PropertyCollector
	res, err := methods.RetrievePropertiesEx(ctx, vim, &types.RetrievePropertiesEx{
		This: collector, SpecSet: []types.PropertyFilterSpec{spec},
	})
	if err != nil || res.Returnval == nil {
		return nil, err
	}
	all, token := res.Returnval.Objects, res.Returnval.Token
	for token != "" {
		more, err := methods.ContinueRetrievePropertiesEx(ctx, vim, &types.ContinueRetrievePropertiesEx{
			This: collector, Token: token,
		})
		if err != nil {
			return nil, err
		}
		all, token = append(all, more.Returnval.Objects...), more.Returnval.Token
	}
	return all, nil
}
