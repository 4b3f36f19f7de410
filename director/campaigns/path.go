package campaigns

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// path returns the releases over which the cluster comes to the target, for one that cannot go there at once.
func (s *Service) path(ctx context.Context, t director.CampaignTarget, cluster string) ([]string, error) {
	if t.Release == "" {
		return nil, nil
	}
	from, err := s.version(ctx, cluster)
	if err != nil || from == "" {
		return nil, err
	}
	docs, err := s.Store.Documents(ctx, model.KindRelease)
	if err != nil {
		return nil, err
	}
	releases := map[string]string{}
	for _, d := range docs {
		releases[d.Metadata.Name] = d.Release.Kubernetes
	}
	return pathOf(from, t.Release, releases), nil
}

// pathOf returns the newest release of each minor version between, and the target; nil where there is none between. A
// minor version without a release is named by itself. releases are versions by the names of documents.
func pathOf(from, target string, releases map[string]string) []string {
	have, want := minorOf(from), minorOf(releases[target])
	if have < 0 || want-have < 2 {
		return nil
	}
	var out []string
	for minor := have + 1; minor < want; minor++ {
		best := ""
		for name, version := range releases {
			if minorOf(version) != minor {
				continue
			}
			if best == "" || cmp.Or(newer(version, releases[best]), strings.Compare(name, best)) > 0 {
				best = name
			}
		}
		prefix := "v1." + strconv.Itoa(minor)
		if best == "" {
			out = append(out, prefix+" (no release of it)")
			continue
		}
		out = append(out, releases[best]+" (Release/"+best+")")
	}
	return append(out, releases[target]+" (Release/"+target+")")
}

// minorOf is the minor version of v1.N.x, or -1.
func minorOf(version string) int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "1" {
		return -1
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1
	}
	return n
}

// newer compares two versions number by number.
func newer(a, b string) int {
	number := func(v string) []int {
		var out []int
		for _, part := range strings.Split(strings.TrimPrefix(v, "v"), ".") {
			n, _ := strconv.Atoi(part) // what is no number counts as 0
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(number(a), number(b))
}
