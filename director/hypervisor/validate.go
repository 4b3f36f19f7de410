package hypervisor

import (
	"fmt"
	"regexp"

	"github.com/director-kaas/kaas/director"
)

var (
	stampPart  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	objectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,126}$`)
	macAddress = regexp.MustCompile(`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`)
	diskSerial = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,19}$`)
	sha256Hex  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ValidStamp returns what is wrong with a stamp. Its parts become parts of names, so they are 1 to 63 letters, digits,
// dashes and underscores.
func ValidStamp(path string, s director.Stamp) []director.Field {
	var fields []director.Field
	for _, part := range []struct{ name, value string }{{"director", s.Director}, {"machine", s.Machine}} {
		if !stampPart.MatchString(part.value) {
			fields = append(fields, director.Field{
				Path: path + "." + part.name, Msg: fmt.Sprintf("%q is not an id", part.value),
				Hint: "1 to 63 letters, digits, dashes and underscores",
			})
		}
	}
	return fields
}

// Validate returns nil, or an invalid error of op with everything that is wrong with s in itself. Back ends call it
// before they act.
func (s Spec) Validate(op string) error {
	fields := ValidStamp("key", s.Key)
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	want(objectName.MatchString(s.Name), "name", "%q is not a name", s.Name)
	want(s.CPUs > 0, "cpus", "%d is not a number of CPUs", s.CPUs)
	want(s.Memory >= 1<<20, "memory", "%d bytes are too few", s.Memory)
	want(objectName.MatchString(s.Image), "image", "%q is not the name of an image", s.Image)
	want(s.RootDisk > 0, "root_disk", "%d is not a size", s.RootDisk)
	serials := map[string]bool{}
	for i, d := range s.DataDisks {
		at := fmt.Sprintf("data_disks[%d]", i)
		want(diskSerial.MatchString(d.Serial), at+".serial", "%q is not 1 to 20 letters, digits and dashes", d.Serial)
		want(!serials[d.Serial], at+".serial", "%q is taken by another disk of this VM", d.Serial)
		want(d.Size > 0, at+".size", "%d is not a size", d.Size)
		serials[d.Serial] = true
		if d.Of != (director.Stamp{}) {
			fields = append(fields, ValidStamp(at+".of", d.Of)...)
			want(d.Of.Director == s.Key.Director, at+".of", "belongs to another director")
		}
	}
	for i, n := range s.NICs {
		at := fmt.Sprintf("nics[%d]", i)
		want(n.Network != "", at+".network", "is empty")
		want(
			macAddress.MatchString(n.MAC), at+".mac", "%q is not a unicast MAC address in lower case with colons",
			n.MAC,
		)
	}
	return director.Invalid(op, "the VM's specification is wrong", fields)
}

// Validate returns nil, or an invalid error of op with everything that is wrong with s in itself. It does not read the
// file.
func (s ImageSpec) Validate(op string) error {
	var fields []director.Field
	if !objectName.MatchString(s.Name) {
		fields = append(fields, director.Field{Path: "name", Msg: fmt.Sprintf("%q is not a name", s.Name)})
	}
	if !sha256Hex.MatchString(s.SHA256) {
		fields = append(fields, director.Field{Path: "sha256", Msg: "is not 64 hexadecimal digits in lower case"})
	}
	if s.Format != "qcow2" {
		fields = append(fields, director.Field{
			Path: "format", Msg: fmt.Sprintf("%q is not supported", s.Format), Hint: "qcow2",
		})
	}
	return director.Invalid(op, "the image's specification is wrong", fields)
}

// Validate returns nil, or an invalid error of op with everything that is wrong with s in itself.
func (s NetworkSpec) Validate(op string) error {
	fields := ValidStamp("owner", s.Owner)
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	want(objectName.MatchString(s.Name), "name", "%q is not a name", s.Name)
	want(len(s.Bridge) <= 15, "bridge", "%q has more than 15 characters", s.Bridge)
	want(s.VLAN >= 0 && s.VLAN <= 4094, "vlan", "%d is not a VLAN", s.VLAN)
	want(s.VLAN == 0 || s.Mode == "bridge" || s.Mode == ModePortGroup, "vlan", "has no meaning for mode %s", s.Mode)
	want(!s.OpenVSwitch || s.Mode == "bridge", "openvswitch", "has no meaning for mode %s", s.Mode)
	switch s.Mode {
	case "open", "nat", "isolated":
		want(s.CIDR.IsValid(), "cidr", "is empty")
		want(
			s.Gateway.IsValid() && s.CIDR.IsValid() && s.CIDR.Contains(s.Gateway), "gateway", "%s is not in %s",
			s.Gateway, s.CIDR,
		)
	case "bridge":
		want(s.Bridge != "", "bridge", "is empty")
	case ModePortGroup:
		want(s.PortGroup != "", "port_group", "is empty")
	default:
		want(false, "mode", "%q is not open, nat, isolated, bridge or portgroup", s.Mode)
	}
	return director.Invalid(op, "the network's specification is wrong", fields)
}

// Match tells whether f selects a VM with the stamp.
func (f Filter) Match(s director.Stamp) bool {
	if s.Director != f.Director || s.Director == "" {
		return f.Strangers
	}
	return f.Machine == "" || s.Machine == f.Machine
}
