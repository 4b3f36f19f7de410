package planner

import (
	"fmt"

	"golang.org/x/mod/semver"
)

// older reports whether version a comes before b.
func older(a, b string) bool { return semver.Compare(a, b) < 0 }

// Upgrades reports whether an upgrade goes from one version to the other at once: Kubernetes does not go back, and
// skips no minor version.
func Upgrades(from, to string) bool { return older(from, to) && minor(to)-minor(from) <= 1 }

// minor returns the minor version of one such as v1.37.2.
func minor(version string) int {
	var n int
	if _, err := fmt.Sscanf(semver.MajorMinor(version), "v1.%d", &n); err != nil {
		return -1 // the model lets no other version through
	}
	return n
}
