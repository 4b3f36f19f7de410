package store

import (
	"context"
	"slices"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// grantRow is one subject of a Grant. The document is the truth; rows are written with it.
type grantRow struct{ Document, Provider, Subject, Role, Project, Cluster string }

func (grantRow) TableName() string { return "grants" }

// putGrant replaces the rows of a Grant; a nil grant has none.
func (t *documentTx) putGrant(name string, g *model.Grant) error {
	if err := t.db.Where("document = ?", name).Delete(&grantRow{}).Error; err != nil || g == nil {
		return err
	}
	var rows []grantRow
	add := func(provider, subject string) {
		r := grantRow{name, provider, subject, g.Role, g.Project, g.Cluster}
		if !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	for _, user := range g.Users {
		add("", user)
	}
	for _, group := range g.Groups {
		add(group.Provider, group.Group)
	}
	return t.db.Create(&rows).Error
}

// GrantsOf returns what grants give to the user and to the user's groups, without doubles.
func (s *userStore) GrantsOf(ctx context.Context, u director.User) ([]director.Granted, error) {
	q := s.read.WithContext(ctx).Model(&grantRow{}).Where("provider = '' AND subject = ?", u.Name)
	if u.Provider != "" && len(u.Groups) > 0 {
		q = q.Or("provider = ? AND subject IN ?", u.Provider, u.Groups)
	}
	var rows []director.Granted
	err := q.Distinct("role", "project", "cluster").Order("role, project, cluster").Find(&rows).Error
	return rows, dbError("store.grants", "grants of "+u.Name, err)
}

// grantsNaming returns the names of the Grants that name the user.
func (t *userTx) grantsNaming(user string) (names []string, err error) {
	err = t.db.Model(&grantRow{}).Where("provider = '' AND subject = ?", user).Order("document").
		Pluck("document", &names).Error
	return names, err
}

// UnknownUsers returns which of the names are not of users. Until the transaction ends, none of the others is deleted.
func (t *userTx) UnknownUsers(names []string) ([]string, error) {
	if err := t.store.exclusive(t.db, lockUsers); err != nil {
		return nil, dbError("store.users", "users", err)
	}
	return unknown(t.db, names)
}

// UnknownUsers returns which of the names are not of users now.
func (s *userStore) UnknownUsers(ctx context.Context, names []string) ([]string, error) {
	return unknown(s.read.WithContext(ctx), names)
}

func unknown(db *gorm.DB, names []string) ([]string, error) {
	var known []string
	err := db.Model(&userRow{}).Where("name IN ?", names).Pluck("name", &known).Error
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(known, n) }),
		dbError("store.users", "users", err)
}

// ClusterScope returns the cluster of the name with its project, or not_found.
func (s *planStore) ClusterScope(ctx context.Context, name string) (director.Object, error) {
	o := director.Object{Kind: string(model.KindCluster), Name: name, Cluster: name}
	err := one(s.read.WithContext(ctx).Raw(
		"SELECT project FROM documents WHERE kind = ? AND name = ?", model.KindCluster, name,
	), &o.Project)
	return o, dbError("store.document", "Cluster/"+name, err)
}

// PlanScope returns the plan with the cluster and the project that it belongs to, also one that is archived, or
// not_found. A plan that was made before the cluster of the name belongs to an older one: to the project of that, and
// to no cluster.
func (s *planStore) PlanScope(ctx context.Context, id string) (director.Object, error) {
	o := director.Object{Kind: kindPlan, Name: id}
	err := one(s.read.WithContext(ctx).Raw(
		"SELECT COALESCE(d.name, ''), COALESCE(d.project, p.project) FROM ("+
			"SELECT id, cluster, project, created_at FROM plans WHERE id = ? UNION ALL "+
			"SELECT plan_id, cluster, project, created_at FROM plan_archives WHERE plan_id = ?) AS p "+
			"LEFT JOIN documents AS d ON d.kind = ? AND d.name = p.cluster AND d.created_at <= p.created_at",
		id, id, model.KindCluster,
	), &o.Cluster, &o.Project)
	return o, dbError("store.plan", "plan "+id, err)
}

// one reads the only row of a query, or fails with gorm.ErrRecordNotFound.
func one(q *gorm.DB, into ...any) error {
	err := q.Row().Scan(into...)
	if isNoRows(err) {
		return gorm.ErrRecordNotFound
	}
	return err
}

// seen keeps rows about clusters that v shows, and all of them if v is nil. The columns say the cluster of a row, when
// it is from, and the project at that time ("”" if the table has none). A row from before the cluster of the name is
// about an older one.
func seen(q *gorm.DB, v *director.Visible, cluster, at, project string) *gorm.DB {
	if v == nil {
		return q
	}
	// An empty list would be IN (NULL), which holds nothing in both databases.
	return q.Where(
		"(EXISTS (SELECT 1 FROM documents AS own WHERE own.kind = ? AND own.name = "+cluster+
			" AND own.created_at <= "+at+" AND (own.name IN ? OR own.project IN ? AND own.project <> ''))"+
			" OR "+project+" IN ? AND "+project+" <> '' AND NOT EXISTS (SELECT 1 FROM documents AS own WHERE "+
			"own.kind = ? AND own.name = "+cluster+" AND own.created_at <= "+at+"))",
		model.KindCluster, v.Clusters, v.Projects, v.Projects, model.KindCluster,
	)
}

// seenDocuments keeps the documents of the kind that v shows, and all of them if v is nil.
func seenDocuments(q *gorm.DB, v *director.Visible, kind model.Kind) *gorm.DB {
	if v == nil {
		return q
	}
	switch kind {
	case model.KindCluster:
		return q.Where("(name IN ? OR project IN ? AND project <> '')", v.Clusters, v.Projects)
	case model.KindProject:
		return q.Where("name IN ?", v.Projects)
	case model.KindRelease:
		return q
	}
	return q.Where("1 = 0")
}
