package wire

import (
	"time"

	"github.com/director-kaas/kaas/director/rootdisk"
)

// DrainPath and ReleasePath are what the socket for root answers, too: start no more steps and wait until none runs;
// and begin to work, after a start in which nothing was done.
const (
	DrainPath   = "/drain"
	ReleasePath = "/release"
)

// Appliance is which directors the appliance has, and the last change between them.
type Appliance struct {
	Running ApplianceRoot    `json:"running"`
	Kept    *ApplianceRoot   `json:"kept,omitempty" doc:"The director that a rollback starts."`
	Change  *ApplianceChange `json:"change,omitempty" doc:"The last upgrade or rollback."`

	Packages *AppliancePackages `json:"packages,omitempty" doc:"How the Debian packages of the running root are."`
}

// AppliancePackages is how the packages of the running root are.
type AppliancePackages struct {
	Of           *time.Time     `json:"of,omitempty" doc:"The state of Debian's archives that they are from."`
	List         *time.Time     `json:"list,omitempty" doc:"Date of the security updates they were compared with; without it, missing is not known."`
	Missing      []ApplianceFix `json:"missing,omitempty" doc:"Security updates that the root has not."`
	ListOutdated bool           `json:"list_outdated,omitempty" doc:"The list is older than the packages: it says nothing of newer updates."`
}

// ApplianceFix is a security update of a package.
type ApplianceFix struct {
	Package   string `json:"package"`
	Installed string `json:"installed"`
	Fixed     string `json:"fixed"`
}

// ApplianceRoot is a root with its director.
type ApplianceRoot struct {
	Slot    string    `json:"slot" enum:"a,b" doc:"Which of the two root partitions it is in."`
	Version string    `json:"version"`
	BuiltAt time.Time `json:"built_at" doc:"When its source was changed last."`
	Schema  string    `json:"schema" doc:"Version of the database that it uses."`
}

// ApplianceChange is one change of the root.
type ApplianceChange struct {
	Verb     string         `json:"verb,omitempty" enum:"upgrade,rollback"`
	By       string         `json:"by,omitempty"`
	Task     string         `json:"task,omitempty" doc:"Of an outer plan that asked for it."`
	Stage    string         `json:"stage" enum:"checking,writing,draining,saving,trying,done,failed"`
	From     *ApplianceRoot `json:"from,omitempty"`
	To       *ApplianceRoot `json:"to,omitempty"`
	Done     int64          `json:"done,omitempty" doc:"Bytes of the root that are written."`
	Total    int64          `json:"total,omitempty"`
	BeganAt  *time.Time     `json:"began_at,omitempty"`
	EndedAt  *time.Time     `json:"ended_at,omitempty"`
	Reason   string         `json:"reason,omitempty" doc:"Why it failed."`
	Hint     string         `json:"hint,omitempty"`
	Restores bool           `json:"restores,omitempty" doc:"The data of before the upgrade is restored."`
}

// ApplianceUpgrade asks for an upgrade.
type ApplianceUpgrade struct {
	Upload string `json:"upload" maxLength:"64" doc:"Id of an upload of the kind release that has wholly arrived: director-upgrade.tar."`
	ApplianceWaits
}

// ApplianceRollback asks for the former root.
type ApplianceRollback struct {
	LoseChanges bool `json:"lose_changes,omitempty" doc:"Agree that the data of before the upgrade is restored, if the former director does not know the database."`
	ApplianceWaits
}

// ApplianceWaits are bounds of a change, in seconds.
type ApplianceWaits struct {
	Drain  int `json:"drain,omitempty" minimum:"1" maximum:"7200" doc:"Seconds that running steps of plans have to end; 900 if it is left out. The rest is interrupted, and runs again."`
	Within int `json:"within,omitempty" minimum:"60" maximum:"7200" doc:"Seconds that the other root has to become healthy; 900 if it is left out."`
}

// ApplianceOf converts a state.
func ApplianceOf(s rootdisk.State) Appliance {
	root := func(h rootdisk.Held) *ApplianceRoot {
		if h.Slot == "" {
			return nil
		}
		return &ApplianceRoot{
			Slot: string(h.Slot), Version: h.Version, BuiltAt: h.BuiltAt(), Schema: h.Schema,
		}
	}
	var out Appliance
	if r := root(s.Running); r != nil {
		out.Running = *r
	}
	if s.Kept != nil {
		out.Kept = root(*s.Kept)
	}
	if p := s.Packages; p != nil {
		out.Packages = &AppliancePackages{
			Of: Optional(p.Of), List: Optional(p.List), ListOutdated: p.ListOutdated(),
		}
		for _, f := range p.Missing {
			out.Packages.Missing = append(out.Packages.Missing, ApplianceFix(f))
		}
	}
	if c := s.Change; c.Stage != "" {
		out.Change = &ApplianceChange{
			Verb: c.Verb, By: c.By, Task: c.Task, Stage: string(c.Stage), From: root(c.From), To: root(c.To),
			Done: c.Done, Total: c.Total, BeganAt: Optional(c.Began), EndedAt: Optional(c.Ended), Reason: c.Reason,
			Hint: c.Hint, Restores: c.Restores,
		}
	}
	return out
}
