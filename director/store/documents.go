package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

type documentRow struct {
	Kind, Name, UID, Body string
	Generation            int64
	CreatedAt, UpdatedAt  int64 `gorm:"autoCreateTime:false;autoUpdateTime:false"`
	UpdatedBy             string
	Project               string // of a cluster
}

func (documentRow) TableName() string { return "documents" }

func (r documentRow) toDomain() (model.Stored, error) {
	docs, err := model.ParseStored([]byte(r.Body))
	if err != nil {
		return model.Stored{}, &director.Error{
			Kind: director.KindInternal, Op: "store.document",
			Msg: "the stored " + r.Kind + "/" + r.Name + " cannot be read", Err: err,
		}
	}
	return model.Stored{
		Document: docs[0], UID: r.UID, Generation: r.Generation,
		Created: instant(r.CreatedAt), Updated: instant(r.UpdatedAt), UpdatedBy: r.UpdatedBy,
	}, nil
}

// Documents lists the documents of a kind by name; kind "" means all.
func (s *documentStore) Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error) {
	return documents(s.read.WithContext(ctx), kind)
}

// SelfRepairing returns the clusters whose documents ask for automatic repair, by name. The documents of all others are
// not decoded.
func (s *documentStore) SelfRepairing(ctx context.Context) ([]model.Stored, error) {
	auto := s.jsonText("body", "spec", "maintenance", "repair", "auto") + " IN ('true', '1')"
	return documents(s.read.WithContext(ctx).Where(auto), model.KindCluster)
}

func documents(db *gorm.DB, kind model.Kind) ([]model.Stored, error) {
	var rows []documentRow
	q := db.Order("kind, name")
	if kind != "" {
		q = q.Where("kind = ?", kind)
	}
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.documents", "documents", err)
	}
	out := make([]model.Stored, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = r.toDomain(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Document returns one document, or not_found.
func (s *documentStore) Document(ctx context.Context, ref model.Ref) (model.Stored, error) {
	var row documentRow
	if err := s.read.WithContext(ctx).Where("kind = ? AND name = ?", ref.Kind, ref.Name).Take(&row).Error; err != nil {
		return model.Stored{}, dbError("store.document", ref.String(), err)
	}
	return row.toDomain()
}

// Documents lists every document as the transaction sees them. Until it ends, no other transaction changes any: what
// was found to fit together stays so.
func (t *documentTx) Documents() ([]model.Stored, error) {
	if err := t.store.exclusive(t.db, lockDocuments); err != nil {
		return nil, dbError("store.documents", "documents", err)
	}
	return documents(t.db, "")
}

// PutDocument stores the document: as generation 1 with a new uid if the name is new, and as the next generation
// otherwise.
func (t *documentTx) PutDocument(d model.Document, actor string, now time.Time) error {
	body, err := model.EncodeJSON(d)
	if err != nil {
		return &director.Error{
			Kind: director.KindInternal, Op: "store.put", Msg: d.Ref().String() + " cannot be stored", Err: err,
		}
	}
	if err := t.store.exclusive(t.db, lockDocuments); err != nil {
		return dbError("store.put", d.Ref().String(), err)
	}
	project := ""
	if d.Cluster != nil {
		project = d.Cluster.Project
	}
	if d.Kind == model.KindGrant {
		if err := t.putGrant(d.Metadata.Name, d.Grant); err != nil {
			return dbError("store.put", d.Ref().String(), err)
		}
	}
	res := t.db.Model(&documentRow{}).Where("kind = ? AND name = ?", d.Kind, d.Metadata.Name).Updates(map[string]any{
		"body": string(body), "generation": gorm.Expr("generation + 1"), "updated_at": micros(now), "updated_by": actor,
		"project": project,
	})
	if res.Error == nil && res.RowsAffected == 0 {
		res = t.db.Create(&documentRow{
			Kind: string(d.Kind), Name: d.Metadata.Name, UID: newID("u"), Body: string(body), Generation: 1,
			CreatedAt: micros(now), UpdatedAt: micros(now), UpdatedBy: actor, Project: project,
		})
	}
	return dbError("store.put", d.Ref().String(), res.Error)
}

// DeleteDocument removes the document. No error if it is gone.
func (t *documentTx) DeleteDocument(ref model.Ref) error {
	if err := t.store.exclusive(t.db, lockDocuments); err != nil {
		return dbError("store.delete", ref.String(), err)
	}
	err := t.db.Where("kind = ? AND name = ?", ref.Kind, ref.Name).Delete(&documentRow{}).Error
	if err == nil && ref.Kind == model.KindGrant {
		err = t.putGrant(ref.Name, nil)
	}
	return dbError("store.delete", ref.String(), err)
}

// Installed is what was really installed of a cluster.
type Installed struct {
	UID        string
	Name       string
	Generation int64 // of the document that was installed
	Document   model.Document
	Endpoint   string // host:port of the Kubernetes API
	Registries string // digest of the outer registries that its nodes were told of; empty for none
	At         time.Time
}

type clusterRow struct {
	UID                 string `gorm:"primaryKey"`
	Name                string
	InstalledGeneration int64
	InstalledBody       string
	Endpoint            string
	InstalledRegistries string
	InstalledAt         int64
}

func (clusterRow) TableName() string { return "clusters" }

// Installed returns what was installed under the cluster's name, and false if nothing was.
func (s *documentStore) Installed(ctx context.Context, name string) (Installed, bool, error) {
	return installed(s.read.WithContext(ctx), name)
}

// Installed returns what was installed under the cluster's name, and false if nothing was.
func (t *documentTx) Installed(name string) (Installed, bool, error) { return installed(t.db, name) }

func installed(db *gorm.DB, name string) (Installed, bool, error) {
	var rows []clusterRow
	if err := db.Where("name = ?", name).Find(&rows).Error; err != nil || len(rows) == 0 {
		return Installed{}, false, dbError("store.installed", "cluster "+name, err)
	}
	r := rows[0]
	docs, err := model.ParseStored([]byte(r.InstalledBody))
	if err != nil {
		return Installed{}, false, &director.Error{
			Kind: director.KindInternal, Op: "store.installed",
			Msg: "the record of cluster " + name + " cannot be read", Err: err,
		}
	}
	return Installed{
		UID: r.UID, Name: r.Name, Generation: r.InstalledGeneration, Document: docs[0], Endpoint: r.Endpoint,
		Registries: r.InstalledRegistries, At: instant(r.InstalledAt),
	}, true, nil
}

// InstalledReleases returns the names of the releases that clusters run. No document is decoded.
func (s *documentStore) InstalledReleases(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read.WithContext(ctx).Raw(
		"SELECT DISTINCT "+s.jsonText("c.installed_body", "spec", "release")+
			" FROM clusters AS c JOIN documents AS d ON d.kind = ? AND d.uid = c.uid", model.KindCluster,
	).Scan(&names).Error
	return names, dbError("store.installed", "clusters", err)
}

// PutInstalled records what was installed. Idempotent. A record that a deleted cluster of the same name has left goes
// with its secrets.
func (t *documentTx) PutInstalled(i Installed) error {
	var former []string
	if err := t.db.Model(&clusterRow{}).Where("name = ? AND uid <> ?", i.Name, i.UID).Pluck(
		"uid", &former,
	).Error; err != nil {
		return dbError("store.install", "cluster "+i.Name, err)
	}
	for _, uid := range former {
		if err := t.ForgetCluster(uid, i.Name); err != nil {
			return err
		}
	}
	body, err := model.EncodeJSON(i.Document)
	if err != nil {
		return &director.Error{
			Kind: director.KindInternal, Op: "store.install", Msg: "cluster " + i.Name + " cannot be stored", Err: err,
		}
	}
	err = t.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "uid"}}, UpdateAll: true}).Create(&clusterRow{
		UID: i.UID, Name: i.Name, InstalledGeneration: i.Generation, InstalledBody: string(body), Endpoint: i.Endpoint,
		InstalledRegistries: i.Registries, InstalledAt: micros(i.At),
	}).Error
	return dbError("store.install", "cluster "+i.Name, err)
}

// ForgetCluster removes the record of a cluster, its secrets and its document. No error if they are gone.
func (t *documentTx) ForgetCluster(uid, name string) error {
	err := t.db.Exec("DELETE FROM clusters WHERE uid = ?", uid).Error
	if err == nil {
		err = t.endAnonymousPulls(uid)
	}
	if err == nil {
		err = t.db.Exec(
			"DELETE FROM secrets WHERE owner = ? OR owner IN (SELECT id FROM machines WHERE cluster_uid = ?)", uid, uid,
		).Error
	}
	if err == nil {
		err = t.db.Exec("DELETE FROM cluster_access WHERE uid = ?", uid).Error
	}
	if err == nil {
		err = t.db.Exec("DELETE FROM claims WHERE cluster_uid = ?", uid).Error
	}
	if err == nil {
		err = t.db.Exec("DELETE FROM documents WHERE uid = ?", uid).Error
	}
	return dbError("store.forget", "cluster "+name, err)
}

// ForgetSecrets removes all secrets of the owner. No error if there are none.
func (t *documentTx) ForgetSecrets(owner string) error {
	return dbError("store.secret", "secrets of "+owner, t.db.Exec("DELETE FROM secrets WHERE owner = ?", owner).Error)
}

// Secret returns the sealed blob, and nil if there is none.
func (s *documentStore) Secret(ctx context.Context, owner, name string) ([]byte, error) {
	var sealed []byte
	err := s.read.WithContext(ctx).Raw(
		"SELECT sealed FROM secrets WHERE owner = ? AND name = ?", owner, name,
	).Row().Scan(&sealed)
	if isNoRows(err) {
		return nil, nil
	}
	return sealed, dbError("store.secret", "secret "+name, err)
}

// SecretsOf returns the sealed blobs of those owners under those names, by owner and name.
func (s *documentStore) SecretsOf(ctx context.Context, owners, names []string) (map[[2]string][]byte, error) {
	all := map[[2]string][]byte{}
	for some := range slices.Chunk(owners, 500) { // a database bounds the parameters of a query
		var rows []struct {
			Owner, Name string
			Sealed      []byte
		}
		err := s.read.WithContext(ctx).Raw(
			"SELECT owner, name, sealed FROM secrets WHERE owner IN ? AND name IN ?", some, names,
		).Scan(&rows).Error
		if err != nil {
			return nil, dbError("store.secrets", "secrets", err)
		}
		for _, r := range rows {
			all[[2]string{r.Owner, r.Name}] = r.Sealed
		}
	}
	return all, nil
}

// AddSecret stores the sealed blob unless there is one, and returns the one that is stored then: two that race end up
// with the same secret.
func (s *documentStore) AddSecret(ctx context.Context, owner, name string, sealed []byte) ([]byte, error) {
	err := s.write.WithContext(ctx).Exec(
		"INSERT INTO secrets (owner, name, sealed) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", owner, name, sealed,
	).Error
	if err != nil {
		return nil, dbError("store.secret", "secret "+name, err)
	}
	return s.Secret(ctx, owner, name)
}

// SetSecret replaces the sealed blob, and deletes it if blob is nil.
func (s *documentStore) SetSecret(ctx context.Context, owner, name string, sealed []byte) error {
	statement, args := "DELETE FROM secrets WHERE owner = ? AND name = ?", []any{owner, name}
	if sealed != nil {
		statement = "INSERT INTO secrets (owner, name, sealed) VALUES (?, ?, ?) ON CONFLICT (owner, name) DO UPDATE " +
			"SET sealed = excluded.sealed"
		args = append(args, sealed)
	}
	return dbError("store.secret", "secret "+name, s.write.WithContext(ctx).Exec(statement, args...).Error)
}

// marshal renders a value that this package defines.
func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("store: " + err.Error()) // plain structs of our own
	}
	return string(b)
}
