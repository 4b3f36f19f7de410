package director

import (
	"encoding/json"
	"time"
)

// CampaignSpec is one change for many clusters, as a person asked for it.
type CampaignSpec struct {
	Selector CampaignSelector `json:"selector"`
	Target   CampaignTarget   `json:"target"`
	Canary   int              `json:"canary,omitempty"` // clusters of the first wave; 0 for none of its own
	Wave     string           `json:"wave"`             // clusters of a wave: 10, or 10%
	Pause    string           `json:"pause"`            // between waves: a duration, or PauseAgreed
	Failures string           `json:"failures"`         // how many clusters may fail: 2, or 5%
	AtOnce   int              `json:"at_once"`          // clusters of a wave whose plans run at the same time
	Window   *CampaignWindow  `json:"window,omitempty"` // when plans may start; nil for always
}

// PauseAgreed is the pause that ends when a person agrees: no wave can be agreed to ahead.
const PauseAgreed = "agreed"

// CampaignSelector says which clusters a campaign is for. What is empty does not narrow.
type CampaignSelector struct {
	Clusters []string `json:"clusters,omitempty"` // in the order in which they are changed
	Labels   []string `json:"labels,omitempty"`   // key or key=value
	Statuses []string `json:"statuses,omitempty"` // of clusters, such as ready
	Versions []string `json:"versions,omitempty"` // v1.36 is each v1.36.x
}

// CampaignTarget is what becomes of each cluster. One of Release, Patch and Operation is set; Image may come with
// Release.
type CampaignTarget struct {
	Release   string          `json:"release,omitempty"`
	Image     string          `json:"image,omitempty"`
	Patch     json.RawMessage `json:"patch,omitempty"`     // merge patch of the spec of the cluster's document
	Operation string          `json:"operation,omitempty"` // of a plan that changes no document
}

// Changes reports whether the target changes the documents of clusters.
func (t CampaignTarget) Changes() bool { return t.Operation == "" }

// CampaignWindow is when plans may start: from each time of Cron on for so long.
type CampaignWindow struct {
	Cron     string        `json:"cron"`
	TimeZone string        `json:"time_zone"`
	For      time.Duration `json:"for"`
}

// Campaign is a CampaignSpec with what people said of it. How far it is follows from the plans of its clusters.
type Campaign struct {
	ID, Name  string
	Spec      CampaignSpec
	Created   time.Time
	CreatedBy string
	Revision  int64 // counts what people said

	// Paused is since when no plan starts: because a person said so, or too many clusters failed. Reason says why.
	Paused   time.Time
	PausedBy string
	Reason   string
	Ended    time.Time // nothing starts any more
	EndedBy  string    // empty if every cluster is through
	Owner    string    // the director that moves it on
	Lease    time.Time
	Clusters []CampaignCluster
}

// CampaignVerdict is what a planning pass said of a cluster.
type CampaignVerdict string

// The verdicts.
const (
	CampaignUnplanned CampaignVerdict = ""        // not planned yet
	CampaignPlanned   CampaignVerdict = "planned" // Plan is its frozen plan
	CampaignRefused   CampaignVerdict = "refused" // Message says why there is no plan
	CampaignNothing   CampaignVerdict = "nothing" // it is as the target says
)

// CampaignCluster is a cluster of a campaign. Status, Hash and the times are those of its plan, read with it.
type CampaignCluster struct {
	Name, UID string
	Order     int
	Wave      int // from 1; 0 before the first planning pass has ended, and for clusters without a plan in it
	Verdict   CampaignVerdict
	Plan      string
	// Message and Hint say why there is no plan, or why it did not start; Path are the releases on the way.
	Message, Hint string
	Path          []string
	Difference    string // of the newest plan from the one before
	Checked       bool   // it was planned again when its wave came up

	AgreedHash, AgreedBy string // of the plan that a person agreed to
	AgreedAt             time.Time
	SkippedBy, Why       string
	SkippedAt            time.Time
	Tolerated            string // id of a failed plan with which a person let the campaign continue

	Status            string // of the plan; empty if it is gone
	Hash, Summary     string
	Started, Finished time.Time
	Since             time.Time // of the status
	Made              time.Time
	PlanMessage       string
	Project           string // of the cluster; of a deleted one, as it was when the campaign was made
}
