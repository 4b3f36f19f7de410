package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

type certificateRow struct {
	ID                                   string `gorm:"primaryKey"`
	ClusterUID, Cluster, Node            string
	Source, Place, Name                  string
	CA                                   bool
	Subject, Issuer, Serial, Fingerprint string
	BeginsAt, EndsAt, SeenAt, AskedAt    int64
	Problem                              string
}

func (certificateRow) TableName() string { return "certificates" }

// PutCertificates writes down what looks brought, all or none. What a source no longer shows is deleted, and what did
// not answer keeps what was seen there last.
func (s *machineStore) PutCertificates(ctx context.Context, sights []director.CertificateSight) error {
	const op = "store.certificates"
	return s.Update(ctx, func(tx *Tx) error {
		for _, sight := range sights {
			there := tx.db.Model(&certificateRow{}).Where(
				"cluster_uid = ? AND node = ? AND source = ?", sight.ClusterUID, sight.Node, string(sight.Source),
			)
			if sight.Place != "" {
				there = there.Where("place = ?", sight.Place)
			}
			if sight.Problem != "" {
				err := there.Updates(map[string]any{
					"asked_at": micros(sight.At), "problem": sight.Problem,
				}).Error
				if err != nil {
					return dbError(op, "certificates", err)
				}
				continue
			}
			if err := there.Delete(&certificateRow{}).Error; err != nil {
				return dbError(op, "certificates", err)
			}
			if err := insertCertificates(tx.db, sight); err != nil {
				return dbError(op, "certificates", err)
			}
		}
		return nil
	})
}

func insertCertificates(db *gorm.DB, sight director.CertificateSight) error {
	seen := map[string]bool{}
	var rows []certificateRow
	for _, c := range sight.Certificates {
		sum := sha256.Sum256([]byte(strings.Join([]string{
			sight.ClusterUID, sight.Node, string(sight.Source), c.Place, c.Name, c.Fingerprint,
		}, "\x00")))
		id := hex.EncodeToString(sum[:12])
		if seen[id] {
			continue
		}
		seen[id] = true
		rows = append(rows, certificateRow{
			ID: id, ClusterUID: sight.ClusterUID, Cluster: sight.Cluster, Node: sight.Node,
			Source: string(sight.Source), Place: c.Place, Name: c.Name, CA: c.CA, Subject: c.Subject,
			Issuer: c.Issuer, Serial: c.Serial, Fingerprint: c.Fingerprint, BeginsAt: micros(c.Begins),
			EndsAt: micros(c.Ends), SeenAt: micros(sight.At), AskedAt: micros(sight.At), Problem: c.Problem,
		})
	}
	if len(rows) == 0 {
		return nil
	}
	return db.CreateInBatches(rows, 100).Error
}

// KeepCertificates deletes what was seen of clusters other than those, and of nodes that they do not have.
func (s *machineStore) KeepCertificates(ctx context.Context, nodes map[string][]string) error {
	return s.Update(ctx, func(tx *Tx) error {
		var known []struct{ ClusterUID, Node string }
		err := tx.db.Model(&certificateRow{}).Distinct("cluster_uid", "node").Find(&known).Error
		for _, k := range known {
			keep := k.ClusterUID == "" || nodes[k.ClusterUID] != nil && k.Node == ""
			for _, name := range nodes[k.ClusterUID] {
				keep = keep || name == k.Node
			}
			if err == nil && !keep {
				err = tx.db.Where("cluster_uid = ? AND node = ?", k.ClusterUID, k.Node).
					Delete(&certificateRow{}).Error
			}
		}
		return dbError("store.certificates", "certificates", err)
	})
}

var certificateOrders = map[string]order{
	"": {"ends_at", true}, "ends_at": {"ends_at", true}, "seen_at": {"seen_at", true}, "cluster": {"cluster", false},
	"node": {"node", false}, "name": {"name", false},
}

// Certificates lists what was seen of certificates, by their ends. next is nil at the end of the list.
func (s *machineStore) Certificates(
	ctx context.Context, f director.CertificateQuery, p director.Page,
) (list []director.Certificate, next *director.Place, err error) {
	by, err := sortBy(certificateOrders, p.Sort, "certificates")
	if err != nil {
		return nil, nil, err
	}
	q, err := page(narrowCertificates(s.read.WithContext(ctx).Model(&certificateRow{}), f), p, by, "id")
	if err != nil {
		return nil, nil, err
	}
	var rows []certificateRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, nil, dbError("store.certificates", "certificates", err)
	}
	if p.Limit > 0 && len(rows) > p.Limit {
		rows = rows[:p.Limit]
		last := rows[len(rows)-1]
		next = &director.Place{Name: last.ID, Value: map[string]string{
			"ends_at": strconv.FormatInt(last.EndsAt, 10), "seen_at": strconv.FormatInt(last.SeenAt, 10),
			"cluster": last.Cluster, "node": last.Node, "name": last.Name,
		}[by.column]}
	}
	list = make([]director.Certificate, len(rows))
	for i, r := range rows {
		list[i] = director.Certificate{
			ClusterUID: r.ClusterUID, Cluster: r.Cluster, Node: r.Node, Source: director.CertificateSource(r.Source),
			Place: r.Place, Name: r.Name, CA: r.CA, Subject: r.Subject, Issuer: r.Issuer, Serial: r.Serial,
			Fingerprint: r.Fingerprint, Begins: instant(r.BeginsAt), Ends: instant(r.EndsAt), Seen: instant(r.SeenAt),
			Asked: instant(r.AskedAt), Problem: r.Problem,
		}
	}
	return list, next, nil
}

func narrowCertificates(q *gorm.DB, f director.CertificateQuery) *gorm.DB {
	for column, value := range map[string]string{
		"cluster": f.Cluster, "node": f.Node, "source": string(f.Source), "name": f.Name,
	} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	if f.Director {
		q = q.Where("cluster_uid = ''")
	}
	if !f.EndsBefore.IsZero() {
		q = q.Where("ends_at < ?", micros(f.EndsBefore))
	}
	if v := f.Visible; v != nil {
		q = q.Where(
			"cluster_uid IN (SELECT uid FROM documents "+
				"WHERE kind = ? AND (name IN ? OR project IN ? AND project <> ''))",
			model.KindCluster, v.Clusters, v.Projects,
		)
	}
	return q
}

// CertificateEnds returns when the first certificate that was read in files of each node ends, authorities aside, by
// node.
func (s *machineStore) CertificateEnds(ctx context.Context, uid string) (map[string]time.Time, error) {
	var rows []struct {
		Node string
		Ends int64
	}
	err := s.read.WithContext(ctx).Model(&certificateRow{}).Select("node, MIN(ends_at) AS ends").Where(
		"cluster_uid = ? AND source = ? AND ca = ?", uid, string(director.CertificateFile), false,
	).Group("node").Find(&rows).Error
	ends := map[string]time.Time{}
	for _, r := range rows {
		ends[r.Node] = instant(r.Ends)
	}
	return ends, dbError("store.certificates", "certificates", err)
}
