package rootdisk

import "time"

// PackagesFile is in the directory of upgrades, like StateFile: a Packages.
const PackagesFile = "packages.json"

// PackagesAge is the age at which the packages of a root are called old. Debian fixes something that the appliance has
// about every month.
const PackagesAge = 60 * 24 * time.Hour

// Packages is how the Debian packages of the running root are. A root is replaced as a whole, never updated.
type Packages struct {
	Of      time.Time `json:"of,omitzero"`       // state of Debian's archives that they are from; zero if not known
	List    time.Time `json:"list,omitzero"`     // date of the security updates they were compared with; zero without
	Missing []Fix     `json:"missing,omitempty"` // security updates that the root has not, by package
}

// ListOutdated reports whether the security updates are older than the packages: updates that came later are not among
// them, and none that is missing says nothing.
func (p Packages) ListOutdated() bool {
	return !p.List.IsZero() && p.List.Before(p.Of)
}

// Fix is a security update of a package.
type Fix struct {
	Package   string `json:"package"`
	Installed string `json:"installed"`
	Fixed     string `json:"fixed"`
}
