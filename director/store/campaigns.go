package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// campaignStore keeps campaigns.
type campaignStore struct{ *database }

// campaignTx changes campaigns.
type campaignTx struct{ *txn }

type campaignRow struct {
	ID, Name, Spec   string
	CreatedAt        int64 `gorm:"autoCreateTime:false"`
	CreatedBy        string
	Revision         int64
	PausedAt         int64
	PausedBy, Reason string
	EndedAt          int64
	EndedBy, Owner   string
	LeaseUntil       int64
}

func (campaignRow) TableName() string { return "campaigns" }

func (r campaignRow) toDomain() (director.Campaign, error) {
	c := director.Campaign{
		ID: r.ID, Name: r.Name, Created: instant(r.CreatedAt), CreatedBy: r.CreatedBy, Revision: r.Revision,
		Paused: instant(r.PausedAt), PausedBy: r.PausedBy, Reason: r.Reason, Ended: instant(r.EndedAt),
		EndedBy: r.EndedBy, Owner: r.Owner, Lease: instant(r.LeaseUntil),
	}
	return c, json.Unmarshal([]byte(r.Spec), &c.Spec)
}

type campaignClusterRow struct {
	CampaignID, Name, UID            string
	Ord, Wave                        int
	Verdict, PlanID                  string
	Message, Hint, Path, Difference  string
	Checked                          int
	AgreedHash, AgreedBy             string
	AgreedAt                         int64
	SkippedBy                        string
	SkippedAt                        int64
	Why, Tolerated                   string
	Status, Hash, Summary, PlanWords string `gorm:"->"`
	StartedAt, FinishedAt, MadeAt    int64  `gorm:"->"`
	Since                            int64  `gorm:"->"`
	Project                          string
	ProjectNow                       string `gorm:"->"`
	There                            int    `gorm:"->"` // the cluster is the one that the campaign was made for
}

func (campaignClusterRow) TableName() string { return "campaign_clusters" }

func (r campaignClusterRow) toDomain() (director.CampaignCluster, error) {
	c := director.CampaignCluster{
		Name: r.Name, UID: r.UID, Order: r.Ord, Wave: r.Wave, Verdict: director.CampaignVerdict(r.Verdict),
		Plan: r.PlanID, Message: r.Message, Hint: r.Hint, Difference: r.Difference, Checked: r.Checked != 0,
		AgreedHash: r.AgreedHash, AgreedBy: r.AgreedBy, AgreedAt: instant(r.AgreedAt), SkippedBy: r.SkippedBy,
		Why: r.Why, SkippedAt: instant(r.SkippedAt), Tolerated: r.Tolerated, Status: r.Status, Hash: r.Hash,
		Summary: r.Summary, PlanMessage: r.PlanWords, Started: instant(r.StartedAt), Finished: instant(r.FinishedAt),
		Since: instant(r.Since), Made: instant(r.MadeAt), Project: r.Project,
	}
	if r.There != 0 {
		c.Project = r.ProjectNow
	}
	if r.Path == "" {
		return c, nil
	}
	return c, json.Unmarshal([]byte(r.Path), &c.Path)
}

// AddCampaign stores a new campaign with its clusters.
func (t *campaignTx) AddCampaign(c director.Campaign) error {
	row := campaignRow{
		ID: c.ID, Name: c.Name, Spec: marshal(c.Spec), CreatedAt: micros(c.Created), CreatedBy: c.CreatedBy,
	}
	err := t.db.Create(&row).Error
	rows := make([]map[string]any, len(c.Clusters))
	for i, m := range c.Clusters {
		rows[i] = map[string]any{"campaign_id": c.ID, "name": m.Name, "uid": m.UID, "ord": i, "project": m.Project}
	}
	for len(rows) > 0 && err == nil {
		part := rows[:min(200, len(rows))]
		rows, err = rows[len(part):], t.db.Table("campaign_clusters").Create(part).Error
	}
	return dbError("store.campaign", "campaign "+c.ID, err)
}

// Campaign returns the campaign with its clusters and the state of their plans, or not_found.
func (s *campaignStore) Campaign(ctx context.Context, id string) (c director.Campaign, err error) {
	err = s.read.WithContext(ctx).Transaction(func(tx *gorm.DB) error { // one snapshot for all tables
		c, err = loadCampaign(tx, tx, id)
		return err
	}, s.snapshot())
	return c, dbError("store.campaign", "campaign "+id, err)
}

// Campaign returns the campaign as the transaction sees it. Until it ends, no other transaction changes the campaign.
func (t *campaignTx) Campaign(id string) (director.Campaign, error) {
	return loadCampaign(t.locked(), t.db, id)
}

func loadCampaign(locked, db *gorm.DB, id string) (director.Campaign, error) {
	fail := func(err error) (director.Campaign, error) {
		return director.Campaign{}, dbError("store.campaign", "campaign "+id, err)
	}
	var row campaignRow
	if err := locked.Where("id = ?", id).Take(&row).Error; err != nil {
		return fail(err)
	}
	c, err := row.toDomain()
	if err != nil {
		return fail(err)
	}
	c.Clusters, err = campaignClusters(db, id)
	return c, err
}

// campaignClusters reads the clusters with their plans, also those that are archived.
func campaignClusters(db *gorm.DB, id string) ([]director.CampaignCluster, error) {
	var rows []campaignClusterRow
	err := db.Raw(`SELECT c.*, COALESCE(p.phase, a.phase, '') AS status, COALESCE(p.hash, '') AS hash,
		COALESCE(p.summary, a.summary, '') AS summary, COALESCE(p.message, '') AS plan_words,
		COALESCE(p.started_at, a.started_at, 0) AS started_at, COALESCE(p.finished_at, a.finished_at, 0) AS finished_at,
		COALESCE(p.created_at, a.created_at, 0) AS made_at, COALESCE(p.since, a.finished_at, 0) AS since,
		COALESCE(d.project, '') AS project_now, CASE WHEN d.name IS NULL THEN 0 ELSE 1 END AS there
		FROM campaign_clusters AS c LEFT JOIN plans AS p ON p.id = c.plan_id
		LEFT JOIN plan_archives AS a ON a.plan_id = c.plan_id AND c.plan_id <> ''
		LEFT JOIN documents AS d ON d.kind = ? AND d.name = c.name AND d.uid = c.uid
		WHERE c.campaign_id = ? ORDER BY c.ord`, model.KindCluster, id).Scan(&rows).Error
	if err != nil {
		return nil, dbError("store.campaign", "campaign "+id, err)
	}
	out := make([]director.CampaignCluster, len(rows))
	for i, r := range rows {
		if out[i], err = r.toDomain(); err != nil {
			return nil, dbError("store.campaign", "campaign "+id, err)
		}
	}
	return out, nil
}

// mostCampaigns are the campaigns of a list; those that have not ended are listed without a limit.
const mostCampaigns = 200

// Campaigns returns the ids of campaigns, the newest first: the newest 200, or all that have not ended.
func (s *campaignStore) Campaigns(ctx context.Context, open bool) ([]string, error) {
	q := s.read.WithContext(ctx).Model(&campaignRow{}).Order("created_at DESC, id")
	if open {
		q = q.Where("ended_at = 0")
	} else {
		q = q.Limit(mostCampaigns)
	}
	var ids []string
	return ids, dbError("store.campaigns", "campaigns", q.Pluck("id", &ids).Error)
}

// LeaseCampaign lets owner move the campaign on until the given time. It returns false while another owner does, and
// for a campaign that has ended.
func (s *campaignStore) LeaseCampaign(ctx context.Context, id, owner string, now, until time.Time) (bool, error) {
	var rows int64
	err := s.retried(ctx, func() error {
		res := s.write.WithContext(ctx).Exec(
			"UPDATE campaigns SET owner = ?, lease_until = ? "+
				"WHERE id = ? AND ended_at = 0 AND (owner = ? OR lease_until < ?)",
			owner, micros(until), id, owner, micros(now),
		)
		rows = res.RowsAffected
		return res.Error
	})
	return rows > 0, dbError("store.campaign", "campaign "+id, err)
}

// FreeCampaigns gives up what owner moves on.
func (s *campaignStore) FreeCampaigns(ctx context.Context, owner string) error {
	err := s.retried(ctx, func() error {
		return s.write.WithContext(ctx).Exec("UPDATE campaigns SET lease_until = 0 WHERE owner = ?", owner).Error
	})
	return dbError("store.campaign", "campaigns", err)
}

// BusyInCampaigns returns which of the clusters are in campaigns that have not ended, with the ids of these: what two
// campaigns planned for one cluster would take each other's plans away. Until the transaction ends, no other campaign
// is made.
func (t *campaignTx) BusyInCampaigns(clusters []director.CampaignCluster) (map[string]string, error) {
	if err := t.store.exclusive(t.db, lockCampaigns); err != nil {
		return nil, dbError("store.campaign", "campaigns", err)
	}
	return busyInCampaigns(t.db, clusters)
}

// ClustersInCampaigns is BusyInCampaigns for those who only look: a campaign may be made right after.
func (s *campaignStore) ClustersInCampaigns(
	ctx context.Context, clusters []director.CampaignCluster,
) (map[string]string, error) {
	return busyInCampaigns(s.read.WithContext(ctx), clusters)
}

func busyInCampaigns(db *gorm.DB, clusters []director.CampaignCluster) (map[string]string, error) {
	var rows []struct{ Name, UID, CampaignID string }
	err := db.Raw(`SELECT m.name, m.uid, m.campaign_id FROM campaign_clusters AS m
		JOIN campaigns AS c ON c.id = m.campaign_id
		WHERE c.ended_at = 0 AND m.skipped_at = 0 AND m.verdict NOT IN ?`,
		[]director.CampaignVerdict{director.CampaignRefused, director.CampaignNothing}).Scan(&rows).Error
	in := map[string]string{}
	for _, r := range rows {
		in[r.Name+"/"+r.UID] = r.CampaignID
	}
	out := map[string]string{}
	for _, m := range clusters {
		if id, ok := in[m.Name+"/"+m.UID]; ok {
			out[m.Name] = id
		}
	}
	return out, dbError("store.campaign", "campaigns", err)
}

// OpCampaign is the operation of the errors that say that a campaign is another one by now.
const OpCampaign = "store.hold_campaign"

// MovedOn reports whether the error says that a campaign is another one by now.
func MovedOn(err error) bool {
	e, ok := errors.AsType[*director.Error](err)
	return ok && e.Op == OpCampaign
}

// HoldCampaign returns the campaign for a step of owner. It is a conflict if another director moves the campaign on by
// now, or a person has said something since the revision.
func (t *campaignTx) HoldCampaign(id, owner string, revision int64) (director.Campaign, error) {
	c, err := t.Campaign(id)
	if err == nil && (c.Owner != owner || c.Revision != revision || !c.Ended.IsZero()) {
		err = director.Errorf(director.KindConflict, OpCampaign, "campaign %s was moved on meanwhile", id)
	}
	return c, err
}

// SetCampaign stores what a person, or the campaign itself, said of the campaign, and counts it.
func (t *campaignTx) SetCampaign(c director.Campaign) error {
	err := t.db.Model(&campaignRow{}).Where("id = ?", c.ID).Updates(map[string]any{
		"paused_at": micros(c.Paused), "paused_by": c.PausedBy, "reason": text(c.Reason), "ended_at": micros(c.Ended),
		"ended_by": c.EndedBy, "revision": gorm.Expr("revision + 1"),
	}).Error
	return dbError("store.campaign", "campaign "+c.ID, err)
}

// SetCampaignCluster stores what is known of a cluster of the campaign.
func (t *campaignTx) SetCampaignCluster(id string, c director.CampaignCluster) error {
	path, checked := "", 0
	if len(c.Path) > 0 {
		path = marshal(c.Path)
	}
	if c.Checked {
		checked = 1
	}
	err := t.db.Table("campaign_clusters").Where("campaign_id = ? AND name = ?", id, c.Name).Updates(map[string]any{
		"wave": c.Wave, "verdict": string(c.Verdict), "plan_id": c.Plan, "message": text(c.Message),
		"hint": text(c.Hint), "path": path, "difference": text(c.Difference), "checked": checked,
		"agreed_hash": c.AgreedHash, "agreed_by": c.AgreedBy, "agreed_at": micros(c.AgreedAt),
		"skipped_by": c.SkippedBy, "skipped_at": micros(c.SkippedAt), "why": text(c.Why), "tolerated": c.Tolerated,
	}).Error
	return dbError("store.campaign", "campaign "+id, err)
}
