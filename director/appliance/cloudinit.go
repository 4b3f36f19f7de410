package appliance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// Seed is what a seed for cloud-init holds. The appliance reads the keys named in docs/start/appliance.md of it, and
// runs nothing of what is in there.
type Seed struct {
	UserData, MetaData, NetworkConfig []byte // NoCloud; MetaData and NetworkConfig are YAML
	OpenStack                         bool   // a config drive: MetaData and NetworkConfig are JSON of OpenStack
}

// cloudConfig is the part of user-data that is read.
type cloudConfig struct {
	Hostname string    `yaml:"hostname"`
	FQDN     string    `yaml:"fqdn"`
	SSHKeys  []string  `yaml:"ssh_authorized_keys"`
	Director yaml.Node `yaml:"director"`
	NTP      struct {
		Servers []string `yaml:"servers"`
		Pools   []string `yaml:"pools"`
	} `yaml:"ntp"`
}

// network is a network-config of version 2, for one adapter.
type network struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]ethernet `yaml:"ethernets"`
	Network   *network            `yaml:"network"`
}

type ethernet struct {
	DHCP4       bool     `yaml:"dhcp4"`
	Addresses   []string `yaml:"addresses"`
	Gateway4    string   `yaml:"gateway4"`
	Gateway6    string   `yaml:"gateway6"`
	Nameservers struct {
		Addresses []string `yaml:"addresses"`
		Search    []string `yaml:"search"`
	} `yaml:"nameservers"`
	Routes []struct {
		To  string `yaml:"to"`
		Via string `yaml:"via"`
	} `yaml:"routes"`
}

// openStackNetwork is the part of network_data.json that is read.
type openStackNetwork struct {
	Networks []struct {
		Type    string `json:"type"` // ipv4, ipv4_dhcp, ...
		Address string `json:"ip_address"`
		Netmask string `json:"netmask"`
		Routes  []struct {
			Network string `json:"network"`
			Netmask string `json:"netmask"`
			Gateway string `json:"gateway"`
		} `json:"routes"`
		Services []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"services"`
	} `json:"networks"`
	Services []struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	} `json:"services"`
}

// ParseSeed returns the properties in a seed. What the section director of user-data says counts over what the usual
// keys of cloud-init say. Errors: invalid.
func ParseSeed(s Seed) (map[string]string, error) {
	given := map[string]string{}
	var user cloudConfig
	if err := decode("user-data", s.UserData, &user); err != nil {
		return nil, err
	}
	if len(s.UserData) > 0 && !strings.HasPrefix(string(s.UserData), "#cloud-config") {
		return nil, seedError("user-data", errors.New("its first line is not #cloud-config"))
	}
	if err := s.meta(given); err != nil {
		return nil, err
	}
	set(given, "hostname", user.Hostname, user.FQDN)
	set(given, "ntp", strings.Join(append(user.NTP.Servers, user.NTP.Pools...), ","))
	set(given, "ssh_keys", strings.Join(user.SSHKeys, "\n"))
	if err := s.network(given); err != nil {
		return nil, err
	}
	own, err := section(user.Director)
	if err != nil {
		return nil, err
	}
	maps.Copy(given, own)
	return given, nil
}

// section returns the properties of user-data's own section. Lists are written as YAML has them, or with commas.
func section(n yaml.Node) (map[string]string, error) {
	given := map[string]string{}
	if n.IsZero() {
		return given, nil
	}
	var values map[string]yaml.Node
	if err := n.Decode(&values); err != nil {
		return nil, seedError("user-data: director", errors.New("is no map of properties"))
	}
	for key, v := range values {
		var items []string
		switch {
		case v.Kind == yaml.ScalarNode:
			given[key] = v.Value
		case v.Kind == yaml.SequenceNode && v.Decode(&items) == nil:
			given[key] = strings.Join(items, "\n")
		default:
			return nil, seedError(
				"user-data: director."+printable(key), errors.New("is neither a text nor a list of texts"),
			)
		}
	}
	return given, nil
}

func (s Seed) meta(given map[string]string) error {
	if !s.OpenStack {
		var meta struct {
			Hostname string `yaml:"local-hostname"`
		}
		if err := decode("meta-data", s.MetaData, &meta); err != nil {
			return err
		}
		set(given, "hostname", meta.Hostname)
		return nil
	}
	var meta struct {
		Hostname string            `json:"hostname"`
		Keys     map[string]string `json:"public_keys"`
	}
	if len(s.MetaData) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.MetaData, &meta); err != nil {
		return seedError("meta_data.json", err)
	}
	set(given, "hostname", meta.Hostname)
	var keys []string
	for _, name := range slices.Sorted(maps.Keys(meta.Keys)) {
		keys = append(keys, strings.TrimSpace(meta.Keys[name]))
	}
	set(given, "ssh_keys", strings.Join(keys, "\n"))
	return nil
}

func (s Seed) network(given map[string]string) error {
	if len(s.NetworkConfig) == 0 {
		return nil
	}
	if s.OpenStack {
		return s.openStackNetwork(given)
	}
	var n network
	if err := decode("network-config", s.NetworkConfig, &n); err != nil {
		return err
	}
	if n.Network != nil {
		n = *n.Network
	}
	if n.Version != 2 || len(n.Ethernets) != 1 {
		return seedError("network-config", fmt.Errorf(
			"it has version %d and %d ethernets; the appliance takes version 2 with one", n.Version, len(n.Ethernets),
		))
	}
	for _, e := range n.Ethernets {
		if len(e.Addresses) > 1 {
			return seedError("network-config", errors.New("it has more than one address; the appliance takes one"))
		}
		set(given, "address", strings.Join(e.Addresses, ""))
		set(given, "gateway", e.Gateway6)
		set(given, "gateway", e.Gateway4)
		for _, r := range e.Routes {
			if slices.Contains([]string{"default", "0.0.0.0/0", "::/0"}, r.To) {
				set(given, "gateway", r.Via)
			}
		}
		set(given, "dns", strings.Join(e.Nameservers.Addresses, ","))
		set(given, "search", strings.Join(e.Nameservers.Search, ","))
	}
	return nil
}

func (s Seed) openStackNetwork(given map[string]string) error {
	var n openStackNetwork
	if err := json.Unmarshal(s.NetworkConfig, &n); err != nil {
		return seedError("network_data.json", err)
	}
	services := n.Services
	for _, net := range n.Networks {
		services = append(services, net.Services...)
		if net.Type != "ipv4" || given["address"] != "" {
			continue
		}
		bits, err := prefixBits(net.Netmask)
		if err != nil {
			return seedError("network_data.json", err)
		}
		set(given, "address", fmt.Sprintf("%s/%d", net.Address, bits))
		for _, r := range net.Routes {
			if r.Network == "0.0.0.0" && r.Netmask == "0.0.0.0" {
				set(given, "gateway", r.Gateway)
			}
		}
	}
	var dns []string
	for _, service := range services {
		if service.Type == "dns" && !slices.Contains(dns, service.Address) {
			dns = append(dns, service.Address)
		}
	}
	set(given, "dns", strings.Join(dns, ","))
	return nil
}

// prefixBits returns the length of the prefix of a netmask such as 255.255.255.0.
func prefixBits(mask string) (int, error) {
	a, err := netip.ParseAddr(mask)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("%q is no netmask", printable(mask))
	}
	for bits := range 33 {
		if p, _ := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits); p.Addr() == a {
			return bits, nil
		}
	}
	return 0, fmt.Errorf("%q is no netmask", printable(mask))
}

// set sets the property to the last of the values that is not empty.
func set(given map[string]string, key string, values ...string) {
	for _, v := range values {
		if v != "" {
			given[key] = v
		}
	}
}

func decode(file string, text []byte, into any) error {
	if err := yaml.Unmarshal(text, into); err != nil {
		return seedError(file, err)
	}
	return nil
}

func seedError(file string, err error) error {
	return director.Errorf(
		director.KindInvalid, "appliance.seed", "%s of the seed cannot be used: %s", file, printable(err.Error()),
	).WithHint("correct it and start the VM again, or answer the questions here")
}
