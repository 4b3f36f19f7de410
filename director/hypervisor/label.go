package hypervisor

import (
	"regexp"
	"strings"
)

// mostLabel keeps names that a label is part of below what file systems take.
const mostLabel = 120

var notLabel = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// Text renders the label as part of a file's name: cluster, pool and node with dots between. Where that is too long,
// the node alone is left.
func (l DiskLabel) Text() string {
	parts := []string{l.Cluster, l.Pool, l.Node}
	for i, p := range parts {
		parts[i] = notLabel.ReplaceAllString(p, "-")
	}
	if text := strings.Join(parts, "."); len(text) <= mostLabel {
		return text
	}
	return ".." + parts[2][:min(len(parts[2]), mostLabel)]
}

// ParseDiskLabel is the inverse of Text; a zero label for what is none.
func ParseDiskLabel(text string) DiskLabel {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return DiskLabel{}
	}
	return DiskLabel{Cluster: parts[0], Pool: parts[1], Node: parts[2]}
}
