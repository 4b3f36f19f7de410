package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

// notificationStore keeps what people are told.
type notificationStore struct{ *database }

// notificationTx changes it.
type notificationTx struct{ *txn }

const opNotifications = "store.notifications"

type notificationItemRow struct {
	Notification       string `gorm:"primaryKey"`
	Item               string `gorm:"primaryKey"`
	Body               string
	SeenAt             int64
	Message            string
	ToldAt, ResolvedAt int64
}

func (notificationItemRow) TableName() string { return "notification_items" }

func (r notificationItemRow) toDomain() (director.NotificationItem, error) {
	var i director.NotificationItem
	if err := json.Unmarshal([]byte(r.Body), &i); err != nil {
		return i, director.Errorf(
			director.KindInternal, opNotifications, "the row of item %s cannot be read: %w", r.Item, err,
		)
	}
	return i, nil
}

type notificationMessageRow struct {
	ID, Notification, Name, State, Items string
	More                                 int
	CreatedAt                            int64 `gorm:"autoCreateTime:false"`
	NextAt, SentAt                       int64
	Attempts                             int
	Problem, Received                    string
}

func (notificationMessageRow) TableName() string { return "notification_messages" }

func (r notificationMessageRow) toDomain() (director.NotificationMessage, error) {
	m := director.NotificationMessage{
		ID: r.ID, Notification: r.Name, UID: r.Notification, State: director.NotificationState(r.State), More: r.More,
		Created: instant(r.CreatedAt), Next: instant(r.NextAt), Sent: instant(r.SentAt), Attempts: r.Attempts,
		Problem: r.Problem,
	}
	err := json.Unmarshal([]byte(r.Items), &m.Items)
	if err == nil {
		err = json.Unmarshal([]byte(r.Received), &m.Received)
	}
	if err != nil {
		return m, director.Errorf(
			director.KindInternal, opNotifications, "the row of message %s cannot be read: %w", r.ID, err,
		)
	}
	return m, nil
}

// TakeNotifying makes the owner the only director that tells people, until the time; false while another one does.
func (s *notificationStore) TakeNotifying(ctx context.Context, owner string, now, until time.Time) (bool, error) {
	res := s.write.WithContext(ctx).Exec(
		"INSERT INTO notification_sender (one, owner, until) VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE "+
			"SET owner = excluded.owner, until = excluded.until "+
			"WHERE notification_sender.owner = excluded.owner OR notification_sender.until < ?",
		owner, micros(until), micros(now),
	)
	return res.RowsAffected > 0, dbError(opNotifications, "the sender", res.Error)
}

// FoundItems writes down everything that holds now for the document with the uid, and returns its outbox. What is over
// is dropped if no message tells of it yet. What is over and comes again within the time is not told again.
func (s *notificationStore) FoundItems(
	ctx context.Context, uid string, found []director.NotificationItem, now time.Time, again time.Duration,
) (out director.NotificationOutbox, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		var rows []notificationItemRow
		if err := tx.db.Where("notification = ?", uid).Find(&rows).Error; err != nil {
			return dbError(opNotifications, "items", err)
		}
		known := map[string]notificationItemRow{}
		for _, r := range rows {
			known[r.Item] = r
		}
		for _, i := range found {
			r, ok := known[i.Key]
			if err := tx.found(uid, i, r, ok, now, again); err != nil {
				return err
			}
			delete(known, i.Key)
		}
		for _, r := range known {
			if err := tx.over(r, now, again); err != nil {
				return err
			}
		}
		out, err = tx.outbox(uid)
		return err
	})
	return out, err
}

// found writes down one item that holds.
func (t *notificationTx) found(
	uid string, i director.NotificationItem, r notificationItemRow, known bool, now time.Time, again time.Duration,
) error {
	next := notificationItemRow{
		Notification: uid, Item: i.Key, Body: marshal(i), SeenAt: micros(now),
	}
	if !known {
		return dbError(opNotifications, "item "+i.Key, t.db.Create(&next).Error)
	}
	if r.ResolvedAt == 0 || instant(r.ToldAt).Add(again).After(now) {
		next.SeenAt, next.Message, next.ToldAt = r.SeenAt, r.Message, r.ToldAt
	}
	if next == r {
		return nil
	}
	return dbError(opNotifications, "item "+i.Key, t.db.Save(&next).Error)
}

// over writes down that an item does not hold any more.
func (t *notificationTx) over(r notificationItemRow, now time.Time, again time.Duration) error {
	own := t.db.Where("notification = ? AND item = ?", r.Notification, r.Item)
	var err error
	switch {
	case r.Message == "" || r.ResolvedAt > 0 && !instant(r.ToldAt).Add(again).After(now):
		err = own.Delete(&notificationItemRow{}).Error
	case r.ResolvedAt == 0:
		err = own.Model(&notificationItemRow{}).Update("resolved_at", micros(now)).Error
	}
	return dbError(opNotifications, "item "+r.Item, err)
}

// outbox reads what is to be told for the document.
func (t *notificationTx) outbox(uid string) (director.NotificationOutbox, error) {
	var out director.NotificationOutbox
	var due []notificationMessageRow
	err := t.db.Where("notification = ? AND state = ?", uid, director.NotificationDue).Order("created_at").
		Limit(1).Find(&due).Error
	if err != nil {
		return out, dbError(opNotifications, "messages", err)
	}
	if len(due) > 0 {
		m, err := due[0].toDomain()
		if err != nil {
			return out, err
		}
		if m.Items, _, err = t.items(uid, m.ID); err != nil {
			return out, err
		}
		out.Due = &m
	}
	if out.Open, out.Seen, err = t.items(uid, ""); err != nil {
		return out, err
	}
	var last int64
	err = t.db.Raw(
		"SELECT COALESCE(MAX(created_at), 0) FROM notification_messages WHERE notification = ? AND items <> '[]'", uid,
	).Row().Scan(&last)
	out.Last = instant(last)
	if err == nil {
		err = t.db.Raw(
			"SELECT COALESCE(MAX(generation), 0) FROM notification_gone WHERE notification = ?", uid,
		).Row().Scan(&out.Gone)
	}
	return out, dbError(opNotifications, "messages", err)
}

// items returns what holds and is in the message, and when the first of it was found.
func (t *notificationTx) items(uid, message string) ([]director.NotificationItem, time.Time, error) {
	var rows []notificationItemRow
	err := t.db.Where("notification = ? AND message = ? AND resolved_at = 0", uid, message).Order("seen_at, item").
		Find(&rows).Error
	out := make([]director.NotificationItem, len(rows))
	for i, r := range rows {
		if out[i], err = r.toDomain(); err != nil {
			return nil, time.Time{}, err
		}
	}
	if err != nil || len(rows) == 0 {
		return nil, time.Time{}, dbError(opNotifications, "items", err)
	}
	return out, instant(rows[0].SeenAt), nil
}

// ComposeNotification writes a message that tells of everything that holds and is in no message yet.
func (s *notificationStore) ComposeNotification(ctx context.Context, m director.NotificationMessage) error {
	return s.Update(ctx, func(tx *Tx) error {
		if err := tx.AddNotification(m); err != nil {
			return err
		}
		err := tx.db.Model(&notificationItemRow{}).Where("notification = ? AND message = ''", m.UID).
			Updates(map[string]any{"message": m.ID, "told_at": micros(m.Created)}).Error
		return dbError(opNotifications, "items", err)
	})
}

// AddNotification writes a message.
func (t *notificationTx) AddNotification(m director.NotificationMessage) error {
	row := notificationMessageRow{
		ID: m.ID, Notification: m.UID, Name: m.Notification, State: string(m.State), Items: notNull(m.Items),
		More: m.More, CreatedAt: micros(m.Created), NextAt: micros(m.Next), Received: notNull(m.Received),
	}
	return dbError(opNotifications, "message "+m.ID, t.db.Create(&row).Error)
}

// notNull renders a list; none is [].
func notNull[T any](items []T) string {
	if items == nil {
		items = []T{}
	}
	return marshal(items)
}

// SetNotification stores what has become of a message. gone is the generation of the document whose endpoint has said
// that it is gone; 0 leaves that as it is.
func (s *notificationStore) SetNotification(ctx context.Context, m director.NotificationMessage, gone int64) error {
	return s.Update(ctx, func(tx *Tx) error {
		now := map[string]any{
			"state": string(m.State), "next_at": micros(m.Next), "sent_at": micros(m.Sent), "attempts": m.Attempts,
			"problem": text(m.Problem), "received": notNull(m.Received),
		}
		if len(m.Items) > 0 { // what was over in the end stays to be looked at
			now["items"], now["more"] = notNull(m.Items), m.More
		}
		err := tx.db.Model(&notificationMessageRow{}).Where("id = ?", m.ID).Updates(now).Error
		if err == nil && gone > 0 {
			err = tx.db.Exec(
				"INSERT INTO notification_gone (notification, generation) VALUES (?, ?) ON CONFLICT (notification) "+
					"DO UPDATE SET generation = excluded.generation", m.UID, gone,
			).Error
		}
		return dbError(opNotifications, "message "+m.ID, err)
	})
}

// ReviveNotification lets a document be told by again after its endpoint had said that it is gone, and lets the message
// that is due be sent at once.
func (s *notificationStore) ReviveNotification(ctx context.Context, uid string, now time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.db.Exec("DELETE FROM notification_gone WHERE notification = ?", uid).Error
		if err == nil {
			err = tx.db.Model(&notificationMessageRow{}).
				Where("notification = ? AND state = ?", uid, director.NotificationDue).
				Update("next_at", micros(now)).Error
		}
		return dbError(opNotifications, "messages", err)
	})
}

// GoneNotifications returns the generations of the documents whose endpoints are gone, by uid.
func (s *notificationStore) GoneNotifications(ctx context.Context) (map[string]int64, error) {
	var rows []struct {
		Notification string
		Generation   int64
	}
	err := s.read.WithContext(ctx).Raw("SELECT notification, generation FROM notification_gone").Scan(&rows).Error
	out := map[string]int64{}
	for _, r := range rows {
		out[r.Notification] = r.Generation
	}
	return out, dbError(opNotifications, "messages", err)
}

// NotificationMessages lists messages of the document with the name, or of all, the newest first: those behind the
// message with the id before.
func (s *notificationStore) NotificationMessages(
	ctx context.Context, name, before string, limit int,
) ([]director.NotificationMessage, error) {
	q := s.read.WithContext(ctx).Order("created_at DESC, id DESC").Limit(limit)
	if name != "" {
		q = q.Where("name = ?", name)
	}
	if before != "" {
		q = q.Where("(created_at, id) < (SELECT created_at, id FROM notification_messages WHERE id = ?)", before)
	}
	var rows []notificationMessageRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError(opNotifications, "messages", err)
	}
	out := make([]director.NotificationMessage, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = r.toDomain(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// CountNotifications counts the messages by state.
func (s *notificationStore) CountNotifications(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		State string
		N     int
	}
	err := s.read.WithContext(ctx).Raw("SELECT state, COUNT(*) AS n FROM notification_messages GROUP BY state").
		Scan(&rows).Error
	out := map[string]int{}
	for _, r := range rows {
		out[r.State] = r.N
	}
	return out, dbError(opNotifications, "messages", err)
}

// PruneNotifications removes final messages from before the time, and what was found for documents other than those
// with the uids. A message that was due for one of these is dropped.
func (s *notificationStore) PruneNotifications(ctx context.Context, keep []string, before time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		other := func() *gorm.DB {
			if len(keep) == 0 {
				return tx.db.Where("1 = 1")
			}
			return tx.db.Where("notification NOT IN ?", slices.Clone(keep))
		}
		err := other().Delete(&notificationItemRow{}).Error
		if err == nil {
			err = other().Model(&notificationMessageRow{}).Where("state = ?", director.NotificationDue).
				Updates(map[string]any{
					"state": director.NotificationDropped, "problem": "its document was deleted",
				}).Error
		}
		if err == nil {
			err = tx.db.Where("state <> ? AND created_at < ?", director.NotificationDue, micros(before)).
				Delete(&notificationMessageRow{}).Error
		}
		return dbError(opNotifications, "messages", err)
	})
}
