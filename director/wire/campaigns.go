package wire

import (
	"encoding/json"
	"time"
)

// CampaignNew is one change for many clusters, as a person asks for it.
type CampaignNew struct {
	Name     string           `json:"name" maxLength:"100" doc:"What it is for, in a few words."`
	Selector CampaignSelector `json:"selector"`
	Target   CampaignTarget   `json:"target"`
	Canary   int              `json:"canary,omitempty" minimum:"0" doc:"Clusters of the first wave; 0 for none of its own."`
	Wave     string           `json:"wave,omitempty" maxLength:"8" doc:"Clusters of a wave: 10, or 10%. Default 10%."`
	Pause    string           `json:"pause,omitempty" maxLength:"16" doc:"Between waves: a time such as 1h, or agreed (the default): a wave can be agreed to when it comes up."`
	Failures string           `json:"failures,omitempty" maxLength:"8" doc:"How many clusters may fail: 2, or 5%. Default 0: the first failure stops the campaign."`
	AtOnce   int              `json:"at_once,omitempty" minimum:"0" doc:"Clusters of a wave whose plans run at the same time. Default 10."`
	Window   *CampaignWindow  `json:"window,omitempty" doc:"When plans may start; absent for always."`
}

// CampaignSelector says which clusters a campaign is for. What is absent does not narrow.
type CampaignSelector struct {
	Clusters []string `json:"clusters,omitempty" maxItems:"5000" doc:"Names, in the order in which the clusters are changed."`
	Labels   []string `json:"labels,omitempty" maxItems:"20" doc:"key, or key=value."`
	Statuses []string `json:"statuses,omitempty" maxItems:"10" doc:"Statuses of clusters, such as ready."`
	Versions []string `json:"versions,omitempty" maxItems:"20" doc:"Kubernetes versions that run now: v1.36 is each v1.36.x."`
}

// CampaignTarget is what becomes of each cluster: a release, a patch, or an operation.
type CampaignTarget struct {
	Release   string          `json:"release,omitempty" maxLength:"64" doc:"Release to upgrade to."`
	Image     string          `json:"image,omitempty" maxLength:"64" doc:"Image that comes with the release."`
	Patch     json.RawMessage `json:"patch,omitempty" doc:"Merge patch of the spec of the cluster's document."`
	Operation string          `json:"operation,omitempty" doc:"cluster.rotate_pull_password."`
}

// CampaignWindow is when plans may start.
type CampaignWindow struct {
	Cron       string  `json:"cron" maxLength:"100" doc:"When it opens."`
	TimeZone   string  `json:"time_zone,omitempty" maxLength:"64" doc:"Of cron. Default UTC."`
	ForSeconds float64 `json:"for_seconds" doc:"How long it stays open."`
}

// Campaign is a campaign with how far it is.
type Campaign struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Selector  CampaignSelector  `json:"selector"`
	Target    CampaignTarget    `json:"target"`
	Canary    int               `json:"canary"`
	WaveSize  string            `json:"wave_size"`
	Pause     string            `json:"pause"`
	MayFail   string            `json:"may_fail" doc:"How many clusters may fail, as it was asked for."`
	AtOnce    int               `json:"at_once"`
	Window    *CampaignWindow   `json:"window,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	CreatedBy string            `json:"created_by"`
	Status    string            `json:"status" enum:"planning,waiting,resting,closed,running,paused,done,ended" doc:"waiting: for a person to agree to the wave. resting: in the pause between waves. closed: outside of the window of time."`
	Reason    string            `json:"reason,omitempty" doc:"Why it is paused or has ended."`
	PausedAt  *time.Time        `json:"paused_at,omitempty"`
	PausedBy  string            `json:"paused_by,omitempty" doc:"Absent if the campaign stopped itself."`
	EndedAt   *time.Time        `json:"ended_at,omitempty"`
	EndedBy   string            `json:"ended_by,omitempty"`
	Until     *time.Time        `json:"until,omitempty" doc:"Of a pause or a closed window."`
	Wave      int               `json:"wave" doc:"The current wave, from 1; 0 for none."`
	Failed    int               `json:"failed" doc:"Clusters that count against the stop rule."`
	Allowed   int               `json:"allowed" doc:"More failed clusters than this stop the campaign."`
	Counts    map[string]int    `json:"counts" doc:"Clusters by state."`
	Waves     []CampaignWave    `json:"waves"`
	Clusters  []CampaignCluster `json:"clusters" doc:"Empty in a list of campaigns."`
}

// CampaignWave is how far a wave is.
type CampaignWave struct {
	Number   int            `json:"number"`
	Clusters int            `json:"clusters"`
	Counts   map[string]int `json:"counts" doc:"Clusters by state."`
	Hash     string         `json:"hash,omitempty" doc:"Over the plans of its clusters. Who agrees names it."`
	Current  bool           `json:"current"`
	Over     bool           `json:"over"`
}

// CampaignCluster is a cluster of a campaign.
type CampaignCluster struct {
	Name       string     `json:"name"`
	Wave       int        `json:"wave" doc:"0 for a cluster that is in no wave."`
	State      string     `json:"state" enum:"unplanned,refused,nothing,outdated,planned,agreed,running,done,failed,skipped" doc:"failed: its plan has failed, or is parked."`
	Plan       string     `json:"plan,omitempty" doc:"Id of its plan."`
	PlanStatus string     `json:"plan_status,omitempty"`
	Hash       string     `json:"hash,omitempty" doc:"Of its plan."`
	Summary    string     `json:"summary,omitempty" doc:"Of its plan."`
	Message    string     `json:"message,omitempty" doc:"Why there is no plan, why it did not start, or why it failed."`
	Hint       string     `json:"hint,omitempty"`
	Path       []string   `json:"path,omitempty" doc:"Releases on the way to the target, for a cluster that cannot go there at once."`
	Difference string     `json:"difference,omitempty" doc:"Of its plan from the one before."`
	Tolerated  bool       `json:"tolerated,omitempty" doc:"A person let the campaign continue with its failure."`
	AgreedBy   string     `json:"agreed_by,omitempty"`
	AgreedAt   *time.Time `json:"agreed_at,omitempty"`
	SkippedBy  string     `json:"skipped_by,omitempty"`
	Reason     string     `json:"reason,omitempty" doc:"Why it was skipped."`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Campaigns is a list of campaigns.
type Campaigns struct {
	Items []Campaign `json:"items"`
}

// CampaignAgree agrees to a wave.
type CampaignAgree struct {
	Wave int    `json:"wave" minimum:"1"`
	Hash string `json:"hash" maxLength:"64" doc:"Of the wave: it says which plans were read."`
}

// CampaignReason says why.
type CampaignReason struct {
	Reason string `json:"reason,omitempty" maxLength:"500"`
}

// CampaignSkip takes a cluster out of a campaign.
type CampaignSkip struct {
	Cluster string `json:"cluster" maxLength:"64"`
	Reason  string `json:"reason" maxLength:"500" doc:"Why it is left out."`
}

// CampaignPreviewRequest asks what a campaign would be for.
type CampaignPreviewRequest struct {
	Campaign CampaignNew `json:"campaign"`
	Look     []string    `json:"look,omitempty" maxItems:"20" doc:"Clusters whose plans are computed."`
}

// CampaignPreview is what a campaign would be for.
type CampaignPreview struct {
	Clusters []CampaignForeseen `json:"clusters" doc:"In the order in which they would be changed."`
	Waves    []int              `json:"waves" doc:"How many clusters each wave would have, if each gets a plan."`
	Problems []ProblemField     `json:"problems" doc:"Everything that the campaign would be refused for."`
}

// CampaignForeseen is a cluster that a campaign would be for.
type CampaignForeseen struct {
	Name    string        `json:"name"`
	Project string        `json:"project,omitempty"`
	Version string        `json:"version,omitempty" doc:"Of Kubernetes that is installed; absent for none."`
	Wave    int           `json:"wave"`
	Busy    string        `json:"busy,omitempty" doc:"Id of the campaign that has it."`
	Look    *CampaignLook `json:"look,omitempty" doc:"What it would get, if that was asked for."`
}

// CampaignLook is the plan that a cluster would get, or why there would be none.
type CampaignLook struct {
	Operation string         `json:"operation,omitempty" doc:"Absent if there would be no plan."`
	Summary   string         `json:"summary,omitempty"`
	Steps     int            `json:"steps"`
	Problems  []ProblemField `json:"problems"`
	Path      []string       `json:"path,omitempty" doc:"Releases on the way, for a cluster that cannot go to the target at once."`
}
