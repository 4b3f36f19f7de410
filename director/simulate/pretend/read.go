package pretend

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// options is what of the command line a pretence needs.
type options struct {
	inventory string
	limit     []string
	forks     int
	check     bool
	playbooks []string
}

// valued are the options of ansible-playbook that take a value, as the director's runner writes them.
var valued = map[string]bool{
	"--inventory": true, "-i": true, "--limit": true, "--forks": true, "--tags": true, "--skip-tags": true,
	"--user":        true,
	"--private-key": true, "--extra-vars": true, "--timeout": true,
}

func parse(args []string) (options, error) {
	o := options{forks: 5}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") {
			o.playbooks = append(o.playbooks, arg)
			continue
		}
		name, value, glued := strings.Cut(arg, "=")
		if valued[name] && !glued {
			if len(args) == 0 {
				return o, fmt.Errorf("option %s needs a value", name)
			}
			value, args = args[0], args[1:]
		}
		switch name {
		case "--inventory", "-i":
			o.inventory = value
		case "--limit":
			o.limit = strings.Split(value, ",")
		case "--forks":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return o, fmt.Errorf("--forks: %q is not a number", value)
			}
			o.forks = n
		case "--check", "-C":
			o.check = true
		}
	}
	if len(o.playbooks) == 0 || o.inventory == "" {
		return o, errors.New("a playbook and --inventory are needed")
	}
	return o, nil
}

// limited tells whether the limit lets the host take part.
func (o options) limited(host string, inv inventory) bool {
	if len(o.limit) == 0 {
		return true
	}
	for _, l := range o.limit {
		if l == host || slices.Contains(inv.groups[l], host) {
			return true
		}
	}
	return false
}

// inventory is the hosts by group, in the order of the file.
type inventory struct {
	groups map[string][]string
}

// readInventory reads the INI form: groups, hosts with variables, children.
func readInventory(file string) (inventory, error) {
	f, err := os.Open(file)
	if err != nil {
		return inventory{}, err
	}
	defer func() { _ = f.Close() }()
	inv := inventory{groups: map[string][]string{}}
	children := map[string][]string{}
	group, section := "ungrouped", ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			group, section, _ = strings.Cut(strings.Trim(line, "[]"), ":")
		case section == "children":
			children[group] = append(children[group], line)
		case section == "":
			inv.add(group, strings.Fields(line)[0])
		}
	}
	for group, below := range children {
		for _, child := range below {
			for _, h := range inv.groups[child] {
				inv.add(group, h)
			}
		}
	}
	return inv, lines.Err()
}

func (inv inventory) add(group, host string) {
	for _, g := range []string{group, "all"} {
		if !slices.Contains(inv.groups[g], host) {
			inv.groups[g] = append(inv.groups[g], host)
		}
	}
}

var indexed = regexp.MustCompile(`^(.+)\[(\d+)\]$`)

// match returns the hosts of a play's pattern: groups, hosts, wildcards, group[n], a union by colon or comma, an
// exclusion by !.
func (inv inventory) match(pattern string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(pattern, func(r rune) bool { return r == ':' || r == ',' }) {
		part = strings.TrimSpace(part)
		if not, exclude := strings.CutPrefix(part, "!"); exclude {
			out = slices.DeleteFunc(out, func(h string) bool { return slices.Contains(inv.one(not), h) })
			continue
		}
		for _, h := range inv.one(part) {
			if !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}

func (inv inventory) one(part string) []string {
	if m := indexed.FindStringSubmatch(part); m != nil {
		hosts := inv.one(m[1])
		if n, err := strconv.Atoi(m[2]); err == nil && n < len(hosts) {
			return hosts[n : n+1]
		}
		return nil
	}
	if hosts, ok := inv.groups[part]; ok {
		return slices.Clone(hosts)
	}
	var out []string
	for _, h := range inv.groups["all"] {
		if ok, _ := path.Match(part, h); ok {
			out = append(out, h)
		}
	}
	return out
}

// play is what a pretence needs of a play.
type play struct {
	name, hosts string
	file        string
	line        int
}

var (
	item = regexp.MustCompile(`^- +(\w+): *(.*?) *$`)
	key  = regexp.MustCompile(`^  (\w+|ansible\.builtin\.\w+): *(.*?) *$`)
)

// readPlays reads the names and host patterns of a playbook's plays, in the form in which the director's playbooks are
// written, and follows import_playbook. A playbook that is written otherwise is one play on all hosts.
func readPlays(file string) ([]play, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var plays []play
	lines, number := bufio.NewScanner(f), 0
	set := func(k, v string) error {
		p := &plays[len(plays)-1]
		v = strings.Trim(v, `"'`)
		switch k {
		case "name":
			p.name = v
		case "hosts":
			p.hosts = v
		case "import_playbook", "ansible.builtin.import_playbook":
			more, err := readPlays(filepath.Join(filepath.Dir(file), v))
			plays = append(plays[:len(plays)-1], more...)
			return err
		}
		return nil
	}
	for lines.Scan() {
		number++
		if m := item.FindStringSubmatch(lines.Text()); m != nil {
			plays = append(plays, play{file: file, line: number, hosts: "all"})
			err = set(m[1], m[2])
		} else if m := key.FindStringSubmatch(lines.Text()); m != nil && len(plays) > 0 {
			err = set(m[1], m[2])
		}
		if err != nil {
			return nil, err
		}
	}
	if len(plays) == 0 {
		plays = []play{{name: filepath.Base(file), hosts: "all", file: file, line: 1}}
	}
	return plays, lines.Err()
}
