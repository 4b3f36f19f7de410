package inventory

import (
	"bytes"
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
	// TypeServices is a list of {id, name, address, port, tags, scheme, check_port, path, interval}.
	TypeServices Type = "services"
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

const schemaFile = "variables.yml"

// theText is part of the binary, so it must be there.
var theText = sync.OnceValue(func() []byte {
	raw, err := fs.ReadFile(inventorytemplates.FS(), schemaFile)
	if err != nil {
		panic(err)
	}
	return raw
})

// theSchema is part of the binary, so it is read once and must be right; a test reads it.
var theSchema = sync.OnceValue(func() *schema {
	s, err := parseSchema(theText())
	if err != nil {
		panic(err)
	}
	return s
})

// readSchema returns the schema of a tree. That of this binary, which nearly every tree has, is not read again: that
// takes a hundred times as long as to compare it.
func readSchema(tree fs.FS) (*schema, error) {
	raw, err := fs.ReadFile(tree, schemaFile)
	if err != nil {
		return nil, fmt.Errorf("inventory: %w", err)
	}
	if bytes.Equal(raw, theText()) {
		return theSchema(), nil
	}
	return parseSchema(raw)
}

func parseSchema(raw []byte) (*schema, error) {
	var file struct {
		Variables []Variable `yaml:"variables"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
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

// shapes tells of each type whether a value has it, and what it must be. An empty string is an unset address or range.
var shapes = map[Type]struct {
	has  func(value any) bool
	must string
}{
	TypeString:  {isString, "must be a string"},
	TypeInt:     {isWhole, "must be a whole number"},
	TypeBool:    {func(value any) bool { _, ok := value.(bool); return ok }, "must be true or false"},
	TypeAddress: {isAddress, "must be an IP address"},
	TypeCIDR:    {isRange, "must be a range of addresses such as 10.244.0.0/16"},
	TypeStrings: {func(value any) bool { return every(value, isString) }, "must be a list of strings"},
	TypeAliases: {listOf("address", "names"), "must be a list of {address, names}"},
	TypeLabels:  {isLabels, "must hold strings by name"},
	TypeNetworks: {
		listOf("role", "name", "cidr", "gateway"), "must be a list of {role, name, cidr, gateway}",
	},
	TypeInterfaces: {
		listOf("role", "device", "network", "address", "mac"),
		"must be a list of {role, device, network, address, mac}",
	},
	TypeServices: {
		listOf("id", "name", "address", "port", "tags", "scheme", "check_port", "path", "interval"),
		"must be a list of {id, name, address, port, tags, scheme, check_port, path, interval}",
	},
	TypeTaints: {
		func(value any) bool { return value == nil || listOf("key", "value", "effect")(value) },
		"must be a list of {key, value, effect}",
	},
	TypeChecksums: {sums, "must hold a SHA-256 in hexadecimal for each name"},
}

// mismatch says why value is none of the type, and nothing when it is.
func (t Type) mismatch(value any) string {
	shape, known := shapes[t]
	switch {
	case !known:
		return "has the unknown type " + string(t)
	case !shape.has(value):
		return shape.must
	}
	return ""
}

func isString(value any) bool { _, ok := value.(string); return ok }

func isWhole(value any) bool {
	switch n := value.(type) {
	case int, int64:
		return true
	case float64: // JSON knows no other number
		return n == float64(int64(n))
	}
	return false
}

func isAddress(value any) bool {
	s, ok := value.(string)
	_, err := netip.ParseAddr(s)
	return ok && (s == "" || err == nil)
}

func isRange(value any) bool {
	s, ok := value.(string)
	_, err := netip.ParsePrefix(s)
	return ok && (s == "" || err == nil)
}

func isLabels(value any) bool {
	m, ok := value.(map[string]any)
	if !ok {
		_, ok := value.(map[string]string)
		return ok
	}
	for _, v := range m {
		if !isString(v) {
			return false
		}
	}
	return true
}

// listOf tells of a value whether it is a list of objects with no other keys.
func listOf(keys ...string) func(any) bool {
	return func(value any) bool {
		return every(value, func(item any) bool { return hasOnly(item, keys...) })
	}
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
