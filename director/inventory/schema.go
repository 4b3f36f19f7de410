package inventory

import (
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"sort"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
)

// Type is what kind of value a variable holds.
type Type string

// The types.
const (
	TypeString  Type = "string"
	TypeInt     Type = "int"
	TypeBool    Type = "bool"
	TypeAddress Type = "address" // an IP address
	TypeCIDR    Type = "cidr"    // a range of IP addresses
	TypeStrings Type = "strings" // a list of strings
	TypeAliases Type = "aliases" // a list of {address, names}
	TypeLabels  Type = "labels"  // strings by name
	TypeTaints  Type = "taints"  // a list of {key, value, effect}; may be null
	// TypeChecksums is SHA-256 in hexadecimal by file name.
	TypeChecksums Type = "checksums"
	// TypeNetworks is a list of {role, name, cidr, gateway}.
	TypeNetworks Type = "networks"
	// TypeInterfaces is a list of {role, device, network, address, mac}.
	TypeInterfaces Type = "interfaces"
)

// Variable is one variable of the playbooks.
type Variable struct {
	Name     string `yaml:"name"`
	Type     Type   `yaml:"type"`
	Required bool   `yaml:"required"`
	Default  any    `yaml:"default"`
	PerHost  bool   `yaml:"per_host"`
	Override bool   `yaml:"override"`
	AliasOf  string `yaml:"alias_of"`
	Secret   bool   `yaml:"secret"`
	Doc      string `yaml:"doc"`
}

// Variables returns every variable of the playbooks in the order of the schema. Callers must not change it.
func Variables() []Variable { return theSchema().list }

type schema struct {
	list   []Variable
	byName map[string]Variable
}

// theSchema is part of the binary, so it is read once and must be right; a test reads it.
var theSchema = sync.OnceValue(func() *schema {
	s, err := readSchema(inventorytemplates.FS())
	if err != nil {
		panic(err)
	}
	return s
})

func readSchema(tree fs.FS) (*schema, error) {
	raw, err := fs.ReadFile(tree, "variables.yml")
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	var file struct {
		Variables []Variable `yaml:"variables"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("inventory: variables.yml: %w", err)
	}
	s := &schema{list: file.Variables, byName: map[string]Variable{}}
	for _, v := range s.list {
		if _, twice := s.byName[v.Name]; twice {
			return nil, fmt.Errorf("inventory: variables.yml has %s twice", v.Name)
		}
		s.byName[v.Name] = v
	}
	for _, v := range s.list {
		if v.AliasOf != "" && s.byName[v.AliasOf].Type != v.Type {
			return nil, fmt.Errorf("inventory: variables.yml: %s is no alias of a variable of its type", v.Name)
		}
		if v.Default != nil {
			if why := v.Type.mismatch(v.Default); why != "" {
				return nil, fmt.Errorf("inventory: variables.yml: the default of %s %s", v.Name, why)
			}
		}
	}
	return s, nil
}

// overridable returns the names that a cluster may set, sorted.
func (s *schema) overridable() []string {
	var names []string
	for _, v := range s.list {
		if v.Override {
			names = append(names, v.Name)
		}
	}
	sort.Strings(names)
	return names
}

// mismatch says why value is none of the type, and nothing when it is. An empty string is an unset address or range.
func (t Type) mismatch(value any) string {
	switch t {
	case TypeString:
		if _, ok := value.(string); !ok {
			return "must be a string"
		}
	case TypeInt:
		switch n := value.(type) {
		case int, int64:
		case float64: // JSON knows no other number
			if n != float64(int64(n)) {
				return "must be a whole number"
			}
		default:
			return "must be a whole number"
		}
	case TypeBool:
		if _, ok := value.(bool); !ok {
			return "must be true or false"
		}
	case TypeAddress:
		s, ok := value.(string)
		if _, err := netip.ParseAddr(s); !ok || (s != "" && err != nil) {
			return "must be an IP address"
		}
	case TypeCIDR:
		s, ok := value.(string)
		if _, err := netip.ParsePrefix(s); !ok || (s != "" && err != nil) {
			return "must be a range of addresses such as 10.244.0.0/16"
		}
	case TypeStrings:
		if !every(value, func(item any) bool { _, ok := item.(string); return ok }) {
			return "must be a list of strings"
		}
	case TypeAliases:
		if !every(value, func(item any) bool { return hasOnly(item, "address", "names") }) {
			return "must be a list of {address, names}"
		}
	case TypeLabels:
		if m, ok := value.(map[string]any); ok {
			for _, v := range m {
				if _, ok := v.(string); !ok {
					return "must hold strings by name"
				}
			}
		} else if _, ok := value.(map[string]string); !ok {
			return "must hold strings by name"
		}
	case TypeNetworks:
		if !every(value, func(item any) bool { return hasOnly(item, "role", "name", "cidr", "gateway") }) {
			return "must be a list of {role, name, cidr, gateway}"
		}
	case TypeInterfaces:
		if !every(value, func(item any) bool { return hasOnly(item, "role", "device", "network", "address", "mac") }) {
			return "must be a list of {role, device, network, address, mac}"
		}
	case TypeTaints:
		if value != nil && !every(value, func(item any) bool { return hasOnly(item, "key", "value", "effect") }) {
			return "must be a list of {key, value, effect}"
		}
	case TypeChecksums:
		if !sums(value) {
			return "must hold a SHA-256 in hexadecimal for each name"
		}
	default:
		return "has the unknown type " + string(t)
	}
	return ""
}

func every(value any, ok func(any) bool) bool {
	switch list := value.(type) {
	case []string:
		return true
	case []any:
		for _, item := range list {
			if !ok(item) {
				return false
			}
		}
		return true
	case []map[string]any:
		for _, item := range list {
			if !ok(item) {
				return false
			}
		}
		return true
	}
	return false
}

var sumRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

func sums(value any) bool {
	switch m := value.(type) {
	case map[string]string:
		for _, sum := range m {
			if !sumRE.MatchString(sum) {
				return false
			}
		}
		return true
	case map[string]any:
		for _, v := range m {
			if sum, ok := v.(string); !ok || !sumRE.MatchString(sum) {
				return false
			}
		}
		return true
	}
	return false
}

func hasOnly(item any, names ...string) bool {
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for name := range m {
		if !known[name] {
			return false
		}
	}
	return true
}

// unset says whether a value is none for a required variable.
func unset(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(v) == ""
	case []any:
		return len(v) == 0
	case []string:
		return len(v) == 0
	}
	return false
}
