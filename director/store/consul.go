package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
)

type consulRow struct {
	Consul    string `gorm:"primaryKey"`
	LookedAt  int64
	Body      string
	Confirmed string
}

func (consulRow) TableName() string { return "consul_states" }

// ClaimConsul reports whether the caller is to compare the Consul now: no director has begun to since the time.
func (s *documentStore) ClaimConsul(ctx context.Context, name string, since, now time.Time) (bool, error) {
	r := s.write.WithContext(ctx).Exec(
		"INSERT INTO consul_states (consul, looked_at, body, confirmed) VALUES (?, ?, '{}', '') "+
			"ON CONFLICT (consul) DO UPDATE SET looked_at = excluded.looked_at WHERE consul_states.looked_at < ?",
		name, micros(now), micros(since),
	)
	return r.RowsAffected > 0, dbError("store.consul", "Consul/"+name, r.Error)
}

// SaveConsul keeps how a comparison went. The Consul was claimed before.
func (s *documentStore) SaveConsul(ctx context.Context, state director.ConsulState) error {
	body, err := json.Marshal(state)
	if err != nil {
		return err
	}
	err = s.write.WithContext(ctx).Model(&consulRow{}).Where("consul = ?", state.Consul).Update("body", string(body)).
		Error
	return dbError("store.consul", "Consul/"+state.Consul, err)
}

// ConfirmConsul keeps that a person agrees to the removals of that id, and has the next comparison begin at once.
func (s *documentStore) ConfirmConsul(ctx context.Context, name, id string) error {
	err := s.write.WithContext(ctx).Model(&consulRow{}).Where("consul = ?", name).
		Updates(map[string]any{"confirmed": id, "looked_at": 0}).Error
	return dbError("store.consul", "Consul/"+name, err)
}

// ConfirmedConsul returns the id of the removals that a person has agreed to last, or "".
func (s *documentStore) ConfirmedConsul(ctx context.Context, name string) (string, error) {
	var id string
	err := s.read.WithContext(ctx).Raw("SELECT confirmed FROM consul_states WHERE consul = ?", name).Scan(&id).Error
	return id, dbError("store.consul", "Consul/"+name, err)
}

// ConsulStates returns how the last comparisons went, by the names of the Consuls.
func (s *documentStore) ConsulStates(ctx context.Context) (map[string]director.ConsulState, error) {
	var rows []consulRow
	if err := s.read.WithContext(ctx).Find(&rows).Error; err != nil {
		return nil, dbError("store.consul", "Consul", err)
	}
	states := make(map[string]director.ConsulState, len(rows))
	for _, r := range rows {
		var state director.ConsulState
		if err := json.Unmarshal([]byte(r.Body), &state); err != nil {
			return nil, dbError("store.consul", "Consul/"+r.Consul, err)
		}
		state.Consul = r.Consul
		states[r.Consul] = state
	}
	return states, nil
}
