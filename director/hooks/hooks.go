// Package hooks tells endpoints of the phases of plans, and takes their answers.
//
// What is to be told is written by the transaction that journals it, see store.Tx.Append. The service sends it: in the
// order of the journal for each plan and hook, a few at once for each hook, and again until it is received. River
// carries none of it: it knows neither an order within a plan nor a bound for each endpoint, and endpoints that hang
// would take the workers of all others.
package hooks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhookkeys"
)

// Engine moves plans.
type Engine interface {
	// Wake lets a step that is not ready run now, after do in the same transaction.
	Wake(ctx context.Context, ref plan.StepRef, by, why string, do func(engine.Tx) error) error
	Changed() <-chan struct{}
}

// Accounts opens client certificates.
type Accounts interface {
	OpenHook(ctx context.Context, hook string, h model.Hook) (director.Credentials, error)
}

// Observer is told what comes of attempts.
type Observer interface {
	// HookSent counts an attempt; received tells whether the endpoint took it, after how long.
	HookSent(hook string, received bool, took time.Duration)
}

// Config is what New needs. All fields must be set.
type Config struct {
	Store    *store.Store
	Sealer   webhookkeys.Sealer
	Engine   Engine
	Accounts Accounts
	Observer Observer
	URL      string                  // of the director, as endpoints reach it
	Own      func() []netip.AddrPort // where the director listens: no hook leads there
	Instance string                  // id of the state directory, of no other director's
	Version  string
	Shared   bool // other directors may share the database
	Now      func() time.Time
	Log      *slog.Logger
}

// Service is safe for concurrent use.
type Service struct {
	c     Config
	owner string
	keys  *webhookkeys.Keys
	look  chan struct{} // asks the dispatcher to look at once

	mu   sync.Mutex
	busy map[string]int // deliveries in flight, by hook

	stop    context.CancelFunc
	running sync.WaitGroup
}

// New returns the service. It sends nothing before Start.
func New(c Config) *Service {
	return &Service{
		c: c, owner: c.Instance + "/" + randomID(), look: make(chan struct{}, 1), busy: map[string]int{},
		keys: webhookkeys.New(c.Store, c.Sealer, c.Now),
	}
}

func randomID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// Asker tells steps what their hooks have answered.
type Asker struct {
	Store *store.Store
	Now   func() time.Time
}

// Asked returns the delivery by which the step asks now, or nil. One whose deadline has passed is expired by it.
func (a Asker) Asked(ctx context.Context, planID, stepID string) (*director.HookDelivery, error) {
	d, err := a.Store.AskedBy(ctx, planID, stepID)
	if err != nil || d == nil || !d.State.Open() || a.Now().Before(d.Deadline) {
		return d, err
	}
	err = a.Store.Update(ctx, func(tx *store.Tx) error {
		now, err := tx.Delivery(d.ID)
		if err != nil {
			return err
		}
		*d = now
		if !d.State.Open() {
			return nil
		}
		d.State = director.HookExpired
		return tx.SetDelivery(*d)
	})
	return d, err
}

// owner is whose keys sign requests of the hook.
func owner(doc model.Stored) webhookkeys.Owner {
	return webhookkeys.Owner{Ref: doc.Ref(), UID: doc.UID, Algorithm: doc.Hook.Signature}
}

// Keys returns the keys that requests of the hook are signed with, the current one first. secrets also opens what
// receivers of an HMAC need; that is audited.
func (s *Service) Keys(ctx context.Context, actor, name string, secrets bool) ([]webhookkeys.View, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.keys.List(ctx, actor, owner(doc), secrets)
}

// RotateKey makes another key for the hook. The former one signs besides it for a day.
func (s *Service) RotateKey(ctx context.Context, actor, name string) ([]webhookkeys.View, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.keys.Rotate(ctx, actor, owner(doc))
}

// View is a hook as it is now.
type View struct {
	model.Stored
	Gone bool // its endpoint has said that it is gone: nothing is sent before its document changes or a test succeeds
}

// List returns the hooks by name.
func (s *Service) List(ctx context.Context) ([]View, error) {
	docs, err := s.c.Store.Documents(ctx, model.KindHook)
	if err != nil {
		return nil, err
	}
	gone, err := s.c.Store.GoneHooks(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(docs))
	for i, d := range docs {
		out[i] = View{d, gone[d.UID] == d.Generation}
	}
	return out, nil
}

func (s *Service) document(ctx context.Context, name string) (model.Stored, error) {
	return s.c.Store.Document(ctx, model.Ref{Kind: model.KindHook, Name: name})
}

// Deliveries lists deliveries, the newest first.
func (s *Service) Deliveries(ctx context.Context, f director.HookQuery) ([]director.HookDelivery, error) {
	return s.c.Store.Deliveries(ctx, f)
}

// Delivery returns one, or not_found.
func (s *Service) Delivery(ctx context.Context, id string) (director.HookDelivery, error) {
	return s.c.Store.Delivery(ctx, id)
}

// Answer gives the final answer to what a plan asks. The first one counts: the same again changes nothing. Errors:
// conflict for another decision, and for what no plan waits for any more.
func (s *Service) Answer(
	ctx context.Context, actor, id string, decision director.HookDecision, reason string,
) (director.HookDelivery, error) {
	const op = "hooks.answer"
	d, err := s.c.Store.Delivery(ctx, id)
	if err != nil {
		return d, err
	}
	if !d.Blocks() {
		return d, director.Errorf(director.KindConflict, op, "no plan waits for an answer to %s", id)
	}
	if err := s.mayAnswer(ctx, actor, d.Hook); err != nil {
		return director.HookDelivery{}, err
	}
	if d.State == director.HookAnswered && d.Decision == decision {
		return d, nil
	}
	reason = webhook.Clip(reason, webhook.MostReason)
	ref := plan.StepRef{Plan: d.Plan, Step: d.Step}
	err = s.c.Engine.Wake(ctx, ref, actor, said(actor, decision, reason), func(etx engine.Tx) error {
		tx := etx.(*store.Tx)
		if d, err = tx.Delivery(id); err != nil {
			return err
		}
		now := s.c.Now()
		switch {
		case d.State == director.HookAnswered && d.Decision == decision:
			return nil
		case d.State == director.HookAnswered:
			return director.Errorf(
				director.KindConflict, op, "%s was answered already by %s: %s", id, d.AnsweredBy, d.Decision,
			).WithHint("the first answer counts; ask again with: directorctl retry %s --step %s", d.Plan, d.Step)
		case !d.State.Open() || !now.Before(d.Deadline):
			return director.Errorf(
				director.KindConflict, op, "no plan waits for an answer to %s any more: it is %s", id, stateAt(d, now),
			).WithHint("see what the plan waits for: directorctl follow %s", d.Plan)
		}
		answer(&d, now, actor, decision, reason)
		if err := tx.SetDelivery(d); err != nil {
			return err
		}
		return tx.Audit(now, actor, "answer "+string(decision), "HookDelivery/"+id)
	})
	return d, err
}

// mayAnswer is forbidden for those whom the hook does not name, if it names any: what another service may do with plans
// is not to speak for this one. An administrator who has to go on skips the step, or changes the document.
func (s *Service) mayAnswer(ctx context.Context, actor, hook string) error {
	doc, err := s.document(ctx, hook)
	if err != nil {
		return err
	}
	if by := doc.Hook.AnsweredBy; len(by) > 0 && !slices.Contains(by, actor) {
		return director.Errorf(
			director.KindForbidden, "hooks.answer", "%s does not answer for Hook/%s: its spec.answeredBy names others",
			actor, hook,
		).WithHint("add the user there, or continue without the answer: directorctl skip PLAN --step STEP --reason WHY")
	}
	return nil
}

func stateAt(d director.HookDelivery, now time.Time) director.HookState {
	if d.State.Open() && !now.Before(d.Deadline) {
		return director.HookExpired
	}
	return d.State
}

func answer(d *director.HookDelivery, now time.Time, by string, decision director.HookDecision, reason string) {
	d.State, d.Decision, d.Reason, d.AnsweredBy, d.Answered = director.HookAnswered, decision, reason, by, now
	d.Problem = ""
}

func said(by string, decision director.HookDecision, reason string) string {
	text := by + " answers: " + string(decision)
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// Replay lets a delivery be sent again under its id. Errors: conflict for a question that has its answer, or that no
// plan asks any more.
func (s *Service) Replay(ctx context.Context, actor, id string) (director.HookDelivery, error) {
	var d director.HookDelivery
	err := s.c.Store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if d, err = tx.Delivery(id); err != nil {
			return err
		}
		if d.Blocks() && !d.State.Open() {
			return director.Errorf(
				director.KindConflict, "hooks.replay", "no plan waits for an answer to %s any more: it is %s", id,
				d.State,
			).WithHint("ask again with: directorctl retry %s --step %s", d.Plan, d.Step)
		}
		if d.Plan == "" {
			return director.Errorf(director.KindConflict, "hooks.replay", "%s was a test", id).
				WithHint("test again: directorctl hooks test %s", d.Hook)
		}
		now := s.c.Now()
		d.State, d.Next, d.Attempts, d.Problem, d.Replayed = director.HookDue, now, 0, "", d.Replayed+1
		if err := tx.SetDelivery(d); err != nil {
			return err
		}
		return tx.Audit(now, actor, "replay", "HookDelivery/"+id)
	})
	s.wake()
	return d, err
}

// Test sends an event of the type test at once, once, and returns what came of it. A test that is received lets the
// hook be called again if its endpoint had said that it is gone.
func (s *Service) Test(ctx context.Context, actor, name string) (director.HookDelivery, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return director.HookDelivery{}, err
	}
	now := s.c.Now()
	d := director.HookDelivery{
		ID: "test-" + randomID(), Hook: name, Event: director.HookEvent{Phase: "test", Summary: "a test by " + actor},
		State: director.HookFailed, Created: now, Next: now,
	}
	if err := s.c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddDelivery(d); err != nil {
			return err
		}
		return tx.Audit(now, actor, "test", "Hook/"+name)
	}); err != nil {
		return d, err
	}
	o := s.send(ctx, doc, d)
	d.Attempts, d.Status, d.Problem = 1, o.Status, o.Problem
	if o.Received {
		d.State, d.First = director.HookDelivered, s.c.Now()
	}
	err = s.c.Store.Update(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		if o.Received {
			if err := tx.SetGone(doc.UID, 0, now); err != nil {
				return err
			}
		}
		return tx.SetDelivery(d)
	})
	return d, err
}

// send makes one attempt.
func (s *Service) send(ctx context.Context, doc model.Stored, d director.HookDelivery) webhook.Outcome {
	h := *doc.Hook
	to := webhook.Endpoint{
		URL: h.URL, Allow: confine.Allowed(h.Allow), Own: s.c.Own(), Timeout: time.Duration(h.Timeout),
		Agent: "director/" + s.c.Version,
	}
	if h.TLS.CA != "" {
		to.Roots = x509.NewCertPool()
		to.Roots.AppendCertsFromPEM([]byte(h.TLS.CA))
	}
	if h.TLS.ClientCredentials != "" {
		c, err := s.c.Accounts.OpenHook(ctx, doc.Metadata.Name, h)
		if err != nil {
			return webhook.Outcome{Problem: problem(err)}
		}
		pair, err := tls.X509KeyPair([]byte(c.Password.Reveal()), []byte(c.Password.Reveal()))
		if err != nil { // its text may quote the key
			return webhook.Outcome{Problem: "the credentials " + c.Name + " are no certificate with its key in PEM"}
		}
		to.Client = &pair
	}
	body, err := s.event(doc, d).Encode()
	if err != nil {
		return webhook.Outcome{Problem: err.Error()}
	}
	keys, err := s.keys.Signers(ctx, owner(doc))
	if err != nil {
		return webhook.Outcome{Problem: problem(err)}
	}
	return to.Send(ctx, webhook.Request{ID: d.ID, Body: body, Keys: keys, At: s.c.Now()})
}

func problem(err error) string {
	if hint := director.HintOf(err); hint != "" {
		return webhook.Clip(err.Error()+"; "+hint, webhook.MostReason)
	}
	return webhook.Clip(err.Error(), webhook.MostReason)
}

// typePrefix comes before the phase in the type of an event.
const typePrefix = "io.github.director-kaas.hook."

// data is what an event says.
type data struct {
	Hook string `json:"hook"`
	director.HookEvent
	Answer string `json:"answer,omitempty"` // where a later answer is posted to
}

func (s *Service) event(doc model.Stored, d director.HookDelivery) webhook.Event {
	e := webhook.Event{
		ID: d.ID, Source: s.c.URL, Type: typePrefix + d.Event.Phase, Time: d.Created.UTC(),
		Subject: "hook/" + doc.Metadata.Name,
	}
	if d.Plan != "" {
		e.Subject = "cluster/" + d.Event.Cluster
	}
	if d.Event.Node != "" {
		e.Subject += "/node/" + d.Event.Node
	}
	of := data{Hook: doc.Metadata.Name, HookEvent: d.Event}
	if d.Blocks() {
		of.Answer = s.c.URL + "/api/v1/hook-deliveries/" + d.ID + "/answer"
	}
	e.Data = of
	return e
}
