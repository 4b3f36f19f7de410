//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// machine is what a command line of libvirt's says of a VM.
type machine struct {
	Name, UUID string
	Memory     int      // MiB
	Nodes      []string // the block devices as libvirt describes them, each below those that stand on it
	Disks      []disk
	Adapters   []adapter
	ConsoleFD  int // of the file that the console is logged to; -1 if there is none
}

type disk struct {
	Node   string // name of the node of the block layer that is the whole disk
	Serial string
	File   string // that the node's data is in; with no other below it, all of them
	Format string
	RO     bool
}

type adapter struct {
	FD  int // of the tap device
	MAC string
	Tap string
}

// options are the words of a command line of QEMU's in pairs: what begins with a dash, and what follows it if anything
// does.
type option struct{ name, value string }

func options(args []string) []option {
	var out []option
	for i := 0; i < len(args); i++ {
		o := option{name: args[i]}
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			o.value = args[i]
		}
		out = append(out, o)
	}
	return out
}

// object is a value in JSON.
type object map[string]any

func (o object) text(key string) string { s, _ := o[key].(string); return s }

// parse reads a VM from a command line, and returns with it the command line for the QEMU that stands in for it: one
// that never touches a disk. Besides it has to halt at once and to let the supervisor listen, see run.
func parse(args []string) (*machine, []string, error) {
	p := parser{m: &machine{ConsoleFD: -1}, nodes: map[string]object{}, taps: map[string]int{}}
	var rest []string
	for _, o := range options(args) {
		value, err := p.option(o)
		if err != nil {
			return nil, nil, err
		}
		rest = append(rest, o.name)
		if value != "" {
			rest = append(rest, value)
		}
	}
	m := p.m
	if m.UUID == "" || m.Memory == 0 || !slices.ContainsFunc(m.Disks, func(d disk) bool { return !d.RO }) {
		return nil, nil, fmt.Errorf("the VM %q has no id, no memory or no disk to start from", m.Name)
	}
	return m, rest, nil
}

// parser fills in a machine from one option after the other.
type parser struct {
	m     *machine
	nodes map[string]object // the block devices by node-name
	taps  map[string]int    // file descriptors by the adapter's id
}

// option reads an option and returns the value that the QEMU that stands in gets for it.
func (p *parser) option(o option) (string, error) {
	var v object
	if strings.HasPrefix(o.value, "{") {
		if err := json.Unmarshal([]byte(o.value), &v); err != nil {
			return "", fmt.Errorf("%s %s: %w", o.name, o.value, err)
		}
	}
	switch o.name {
	case "-name":
		p.m.Name, _, _ = strings.Cut(strings.TrimPrefix(o.value, "guest="), ",")
	case "-uuid":
		p.m.UUID = o.value
	case "-m":
		p.m.Memory, _ = strconv.Atoi(strings.TrimPrefix(strings.Split(o.value, ",")[0], "size="))
	case "-blockdev":
		return p.blockdev(v, o.value)
	case "-netdev":
		fd, err := strconv.Atoi(v.text("fd"))
		if v.text("type") != "tap" || err != nil {
			return "", fmt.Errorf("only tap devices that libvirt opens are known as adapters, not %s", o.value)
		}
		p.taps[v.text("id")] = fd
	case "-add-fd":
		var set, fd int
		n, err := fmt.Sscanf(o.value, "set=%d,fd=%d,", &set, &fd)
		if n == 2 && err == nil && strings.Contains(o.value, "opaque=serial0") {
			p.m.ConsoleFD = fd
		}
	case "-device":
		return o.value, p.device(v, o.value)
	}
	return o.value, nil
}

// blockdev keeps the block device and returns one without data in its place.
func (p *parser) blockdev(v object, value string) (string, error) {
	if v == nil {
		return "", fmt.Errorf("the block device is not described in JSON: %s", value)
	}
	p.nodes[v.text("node-name")] = v
	p.m.Nodes = append(p.m.Nodes, value)
	stub, err := json.Marshal(object{
		"driver": "null-co", "node-name": v.text("node-name"), "size": 1 << 30, "read-zeroes": true,
	})
	return string(stub), err
}

func (p *parser) device(v object, value string) error {
	switch {
	case strings.HasPrefix(v.text("driver"), "virtio-blk"):
		node := p.nodes[v.text("drive")]
		if node == nil {
			return fmt.Errorf("there is no block device for %s", value)
		}
		ro, _ := node["read-only"].(bool)
		p.m.Disks = append(p.m.Disks, disk{
			Node: v.text("drive"), Serial: v.text("serial"), RO: ro, Format: node.text("driver"),
			File: p.nodes[node.text("file")].text("filename"),
		})
	case strings.HasPrefix(v.text("driver"), "virtio-net"):
		fd, found := p.taps[v.text("netdev")]
		if !found {
			return fmt.Errorf("there is no network device for %s", value)
		}
		p.m.Adapters = append(p.m.Adapters, adapter{FD: fd, MAC: v.text("mac")})
	}
	return nil
}

// root is the disk that the guest starts from: the first that can be written.
func (m *machine) root() disk { return m.writable()[0] }

func (m *machine) writable() []disk {
	return slices.DeleteFunc(slices.Clone(m.Disks), func(d disk) bool { return d.RO })
}

// seed is the disk with what cloud-init is told, if there is one.
func (m *machine) seed() (disk, bool) {
	i := slices.IndexFunc(m.Disks, func(d disk) bool { return d.RO && d.Format == "raw" })
	if i < 0 {
		return disk{}, false
	}
	return m.Disks[i], true
}
