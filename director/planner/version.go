package planner

import (
	"fmt"

	"golang.org/x/mod/semver"
)

// older reports whether version a comes before b.
func older(a, b string) bool { return semver.Compare(a, b) < 0 }

// minor returns the minor version of one such as v1.37.2.
func minor(version string) int {
	var n int
	if _, err := fmt.Sscanf(semver.MajorMinor(version), "v1.%d", &n); err != nil {
		return -1 // the model lets no other version through
	}
	return n
}
