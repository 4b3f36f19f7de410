// Package notifications tells people, by mail, and programs of theirs, by signed requests, what waits for them and what
// went wrong.
//
// A pass looks at what is so now, and compares it with what it has written down for each document. What is new waits
// for its group, and then becomes a message in the database, which is sent until it is received. What is over before
// that is not told. One director of a database does this at a time.
package notifications

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhookkeys"
)

// How the service works.
const (
	lease      = 2 * time.Minute // another director tells when this one has said nothing for so long
	atOnce     = 8               // messages in flight
	slowly     = time.Minute     // how often backups and certificates are looked at
	pruneEvery = time.Hour
	keptFor    = 30 * 24 * time.Hour // how long messages can be looked at
	// again is after what time something is told again that was over meanwhile: what comes and goes is no news.
	again = time.Hour
	// mostListed is how many things a message names; those beyond are counted.
	mostListed = 30
)

// retries are the waits before a message is sent again; the last one repeats.
var retries = []time.Duration{
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
}

// World says what is so now. All methods are safe for concurrent use.
type World interface {
	// Waits returns what plans wait for a person for, failed plans included.
	Waits(ctx context.Context) ([]Wait, error)
	// Questions returns what plans wait for hooks to answer.
	Questions(ctx context.Context) ([]Question, error)
	// Backups returns how the backups and the restore drills of clusters are.
	Backups(ctx context.Context) ([]Backup, error)
	// Schedules returns how the runs of schedules ended.
	Schedules(ctx context.Context) ([]Schedule, error)
	// Certificates returns those that end before the time.
	Certificates(ctx context.Context, before time.Time) ([]director.Certificate, error)
}

// Accounts opens what messages are sent with.
type Accounts interface {
	OpenNotification(ctx context.Context, name string, n model.Notification) (director.Credentials, error)
}

// Observer is told what comes of attempts.
type Observer interface {
	// NotificationSent counts an attempt; received tells whether the message was received, after how long.
	NotificationSent(notification string, received bool, took time.Duration)
}

// Config is what New needs. All fields must be set.
type Config struct {
	Store    *store.Store
	Sealer   webhookkeys.Sealer
	World    World
	Accounts Accounts
	Observer Observer
	URL      string                  // of the director, as people reach it
	Own      func() []netip.AddrPort // where the director listens: no request leads there
	Instance string                  // id of the state directory, of no other director's
	Version  string
	Now      func() time.Time
	Log      *slog.Logger
}

// Service is safe for concurrent use, but for Tick, which is for one goroutine.
type Service struct {
	c      Config
	keys   *webhookkeys.Keys
	seen   seen
	pruned time.Time
}

// New returns the service. It tells nothing but in Tick.
func New(c Config) *Service { return &Service{c: c, keys: webhookkeys.New(c.Store, c.Sealer, c.Now)} }

func randomID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// Tick does one pass: it looks at what is so, and sends what is due. It waits for what it sends. A crash at any point
// loses nothing that still holds, and what may have been received already is sent again under its id.
func (s *Service) Tick(ctx context.Context) error {
	docs, err := s.c.Store.Documents(ctx, model.KindNotification)
	if err != nil {
		return err
	}
	now := s.c.Now()
	mine, err := s.c.Store.TakeNotifying(ctx, s.c.Instance, now, now.Add(lease))
	if err != nil || !mine {
		return err
	}
	if err := s.prune(ctx, docs, now); err != nil || len(docs) == 0 {
		return err
	}
	if err := s.look(ctx, docs, now); err != nil {
		return err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	free := make(chan struct{}, atOnce)
	for _, doc := range docs {
		m, err := s.due(ctx, doc, now)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		free <- struct{}{}
		sending.Go(func() {
			defer func() { <-free }()
			if err := s.deliver(ctx, doc, *m); err != nil && ctx.Err() == nil {
				s.c.Log.ErrorContext(ctx, "a notification could not be written down", "notification", m.ID, "err", err)
			}
		})
	}
	return nil
}

func (s *Service) prune(ctx context.Context, docs []model.Stored, now time.Time) error {
	if now.Sub(s.pruned) < pruneEvery && len(docs) > 0 {
		return nil
	}
	uids := make([]string, len(docs))
	for i, d := range docs {
		uids[i] = d.UID
	}
	err := s.c.Store.PruneNotifications(ctx, uids, now.Add(-keptFor))
	if err == nil {
		s.pruned = now
	}
	return err
}

// due returns the message that is to be sent for the document now, or nil. It makes one if it is time.
func (s *Service) due(ctx context.Context, doc model.Stored, now time.Time) (*director.NotificationMessage, error) {
	n := *doc.Notification
	box, err := s.c.Store.FoundItems(ctx, doc.UID, s.seen.of(n, now), now, again)
	if err != nil {
		return nil, err
	}
	if m := box.Due; m != nil && len(m.Items) == 0 {
		m.State, m.Problem = director.NotificationDropped, "all that it told of was over before it was received"
		return nil, s.c.Store.SetNotification(ctx, *m, 0)
	}
	if !n.QuietUntil(now).IsZero() || box.Gone == doc.Generation {
		return nil, nil
	}
	if m := box.Due; m != nil {
		if m.Next.After(now) {
			return nil, nil
		}
		cut(m)
		return m, nil
	}
	group := time.Duration(n.Group)
	if len(box.Open) == 0 || now.Before(box.Seen.Add(group)) || !box.Last.IsZero() && now.Before(box.Last.Add(group)) {
		return nil, nil
	}
	m := &director.NotificationMessage{
		ID: "n" + randomID(), Notification: doc.Metadata.Name, UID: doc.UID, State: director.NotificationDue,
		Items: box.Open, Created: now, Next: now,
	}
	cut(m)
	return m, s.c.Store.ComposeNotification(ctx, *m)
}

// cut keeps as many items as a message names, the most urgent, and counts the others.
func cut(m *director.NotificationMessage) {
	arrange(m.Items)
	m.More = max(0, len(m.Items)-mostListed)
	m.Items = m.Items[:len(m.Items)-m.More]
}

// deliver sends the message once, and writes down what came of it.
func (s *Service) deliver(ctx context.Context, doc model.Stored, m director.NotificationMessage) error {
	began := s.c.Now()
	o := s.send(ctx, doc, &m)
	if ctx.Err() != nil && !o.received {
		return nil // the director stops: the next one sends it
	}
	s.c.Observer.NotificationSent(m.Notification, o.received, s.c.Now().Sub(began))
	now := s.c.Now()
	m.Attempts++
	m.Problem = o.problem
	var gone int64
	switch {
	case o.received:
		m.State, m.Sent = director.NotificationSent, now
	case o.gone:
		gone = doc.Generation
		m.Next = now
	default:
		m.Next = now.Add(max(o.retry, retries[min(m.Attempts, len(retries))-1]))
		s.c.Log.WarnContext(ctx, "a notification was not received", "notification", m.Notification, "message", m.ID,
			"problem", m.Problem)
	}
	return s.c.Store.SetNotification(context.WithoutCancel(ctx), m, gone)
}

// View is a notification as it is now.
type View struct {
	model.Stored
	Gone  bool      // its endpoint is gone: nothing is sent before its document changes or a test succeeds
	Quiet time.Time // when its quiet time ends; zero outside of one
}

// List returns the notifications by name.
func (s *Service) List(ctx context.Context) ([]View, error) {
	docs, err := s.c.Store.Documents(ctx, model.KindNotification)
	if err != nil {
		return nil, err
	}
	gone, err := s.c.Store.GoneNotifications(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(docs))
	for i, d := range docs {
		out[i] = View{d, gone[d.UID] == d.Generation, d.Notification.QuietUntil(s.c.Now())}
	}
	return out, nil
}

func (s *Service) document(ctx context.Context, name string) (model.Stored, error) {
	return s.c.Store.Document(ctx, model.Ref{Kind: model.KindNotification, Name: name})
}

// Messages lists messages of the notification with the name, or of all, the newest first: those behind the message with
// the id before.
func (s *Service) Messages(
	ctx context.Context,
	name, before string,
	limit int,
) ([]director.NotificationMessage, error) {
	return s.c.Store.NotificationMessages(ctx, name, before, limit)
}

// Test sends a test at once, once, also in quiet times, and returns what came of it. A test that is received lets
// messages be sent again at once that were not received before.
func (s *Service) Test(ctx context.Context, actor, name string) (director.NotificationMessage, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return director.NotificationMessage{}, err
	}
	now := s.c.Now()
	m := director.NotificationMessage{
		ID: "test-" + randomID(), Notification: name, UID: doc.UID, State: director.NotificationFailed, Created: now,
		Next: now,
	}
	if err := s.c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddNotification(m); err != nil {
			return err
		}
		return tx.Audit(now, actor, "test", "Notification/"+name)
	}); err != nil {
		return m, err
	}
	o := s.send(ctx, doc, &m)
	m.Attempts, m.Problem = 1, o.problem
	if !o.received {
		return m, s.c.Store.SetNotification(context.WithoutCancel(ctx), m, 0)
	}
	m.State, m.Sent = director.NotificationSent, s.c.Now()
	if err := s.c.Store.SetNotification(context.WithoutCancel(ctx), m, 0); err != nil {
		return m, err
	}
	return m, s.c.Store.ReviveNotification(context.WithoutCancel(ctx), doc.UID, s.c.Now())
}

// owner is whose keys sign requests of the notification.
func (s *Service) owner(ctx context.Context, name string) (webhookkeys.Owner, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return webhookkeys.Owner{}, err
	}
	if doc.Notification.Webhook == nil {
		return webhookkeys.Owner{}, director.Errorf(
			director.KindConflict, "notifications.key", "%s sends mail, which has no key", doc.Ref(),
		).WithHint("only notifications with spec.webhook have keys")
	}
	return ownerOf(doc), nil
}

func ownerOf(doc model.Stored) webhookkeys.Owner {
	return webhookkeys.Owner{Ref: doc.Ref(), UID: doc.UID, Algorithm: doc.Notification.Webhook.Signature}
}

// Keys returns the keys that requests of the notification are signed with, the current one first. secrets also opens
// what receivers of an HMAC need; that is audited.
func (s *Service) Keys(ctx context.Context, actor, name string, secrets bool) ([]webhookkeys.View, error) {
	o, err := s.owner(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.keys.List(ctx, actor, o, secrets)
}

// RotateKey makes another key for the notification. The former one signs besides it for a day.
func (s *Service) RotateKey(ctx context.Context, actor, name string) ([]webhookkeys.View, error) {
	o, err := s.owner(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.keys.Rotate(ctx, actor, o)
}
