package ansible

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Group is one failure that happened on one or more hosts.
type Group struct {
	Hosts   []string // in the order of their numbers
	Failure Failure  // as it was on the first host that had it
	Cause   *Cause   // the known cause, or nil
}

// grouper puts equal failures together: the same task, and the same known cause or a message that differs in nothing
// but the host's own name and in numbers.
type grouper struct {
	causes []Cause
	index  map[string]int
	groups []Group
}

func newGrouper(causes []Cause) *grouper { return &grouper{causes: causes, index: map[string]int{}} }

// add returns the failure's group, with it. The group is the caller's own.
func (g *grouper) add(f Failure) Group {
	cause := causeOf(g.causes, f)
	key := f.Role + "\x00" + f.Task + "\x00"
	if cause != nil {
		key += "cause " + cause.ID
	} else {
		key += digits.ReplaceAllString(strings.ReplaceAll(f.Msg, f.Host, "<host>"), "0")
	}
	i, ok := g.index[key]
	if !ok {
		i = len(g.groups)
		g.index[key] = i
		g.groups = append(g.groups, Group{Failure: f, Cause: cause})
	}
	if at, twice := slices.BinarySearchFunc(g.groups[i].Hosts, f.Host, naturally); !twice {
		g.groups[i].Hosts = slices.Insert(g.groups[i].Hosts, at, f.Host)
	}
	out := g.groups[i]
	out.Hosts = slices.Clone(out.Hosts)
	return out
}

// group puts equal failures together, the most frequent first.
func group(failures []Failure, causes []Cause) []Group {
	g := newGrouper(causes)
	for _, f := range failures {
		g.add(f)
	}
	sort.SliceStable(g.groups, func(i, j int) bool { return len(g.groups[i].Hosts) > len(g.groups[j].Hosts) })
	return g.groups
}

var digits = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// String says in one line which hosts failed in which task and why.
func (g Group) String() string {
	what := "failed"
	if g.Failure.Unreachable {
		what = "could not reach the machine"
	}
	s := fmt.Sprintf(
		"%s: task '%s' %s: %s", list(g.Hosts), taskName(g.Failure.Role, g.Failure.Task), what, brief(g.Failure),
	)
	if g.Cause != nil {
		s += " (" + g.Cause.Explain + ")"
	}
	return s
}

// details are the lines below String: the command and those lines of its output that matter, as far as String does not
// say them.
func (g Group) details() []string {
	var out []string
	if c := strings.Join(strings.Fields(g.Failure.Command), " "); c != "" {
		out = append(out, "  command: "+clip(c, 300))
	}
	for _, line := range keyLines(g.Failure, g.Cause) {
		out = append(out, "  | "+line)
	}
	return out
}

// telling finds the lines that say what went wrong among those that only accompany it.
var telling = regexp.MustCompile(
	`(?i)\b(error|fatal|fail(ed|ure)?|denied|refused|cannot|could not|unable|invalid|timed? ?out|` +
		`no such|not found|panic|exception)\b`,
)

// boilerplate is what tools add to every error.
var boilerplate = regexp.MustCompile(
	`^To see the stack trace of this error|^\[preflight\] If you know what you are doing`,
)

// keyLines are the few lines of a failure's message and output that matter, in their order: those that its known cause
// was recognised by and those that sound like an error, or the last ones if none does.
func keyLines(f Failure, c *Cause) []string {
	const most, width = 5, 200
	said := brief(f)
	var all, good []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(connecting.ReplaceAllString(f.Msg, "")+"\n"+f.Tail, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" || seen[line] || empty.MatchString(line) || boilerplate.MatchString(line) {
			continue
		}
		seen[line] = true
		known := c != nil && c.match != nil && c.match.MatchString(line)
		if strings.Contains(said, line) {
			continue
		}
		all = append(all, clip(line, width))
		if known || telling.MatchString(line) {
			good = append(good, clip(line, width))
		}
	}
	if len(good) > 0 {
		return good[:min(len(good), most)]
	}
	return all[max(len(all)-3, 0):]
}
