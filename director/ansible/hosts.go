package ansible

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// list names hosts for a sentence: runs of three or more that differ in their last number as first..last, at most five
// names or runs, and how many there are more.
func list(hosts []string) string {
	if len(hosts) == 0 {
		return "some hosts"
	}
	if len(hosts) == 1 {
		return "host " + hosts[0]
	}
	return "hosts " + compress(hosts)
}

func compress(hosts []string) string {
	const most = 5
	sorted := slices.Clone(hosts)
	slices.SortFunc(sorted, naturally)
	sorted = slices.Compact(sorted)
	var parts []string
	shown := 0
	for i := 0; i < len(sorted) && len(parts) < most; {
		end := i + 1
		for end < len(sorted) && sorted[end] == successor(sorted[end-1]) {
			end++
		}
		if end-i < 3 {
			end = i + 1
			parts = append(parts, sorted[i])
		} else {
			parts = append(parts, sorted[i]+".."+sorted[end-1])
		}
		shown += end - i
		i = end
	}
	text := strings.Join(parts, ", ")
	if more := len(sorted) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

var lastNumber = regexp.MustCompile(`^(.*?)([0-9]{1,9})$`)

// successor returns the name with its last number counted up, and "" for a name that does not end in one.
func successor(host string) string {
	m := lastNumber.FindStringSubmatch(host)
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s%0*d", m[1], len(m[2]), n+1)
}

// naturally compares names so that node-2 comes before node-10.
func naturally(a, b string) int {
	x, y := lastNumber.FindStringSubmatch(a), lastNumber.FindStringSubmatch(b)
	if x == nil || y == nil || x[1] != y[1] {
		return strings.Compare(a, b)
	}
	n, _ := strconv.Atoi(x[2]) // up to nine digits
	k, _ := strconv.Atoi(y[2])
	if n != k {
		return n - k
	}
	return strings.Compare(a, b)
}
