package model

import (
	"slices"
	"strings"
)

// FitsVersion reports whether the version of Kubernetes is one of those wanted, or none is wanted: v1.36 is each
// v1.36.x.
func FitsVersion(wanted []string, version string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool {
		w = "v" + strings.TrimPrefix(w, "v")
		return w == version || strings.HasPrefix(version, w+".")
	})
}
