package audit

import (
	"context"
	"io"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/store"
)

// Query narrows List. What is empty does not narrow.
type Query struct {
	Actor, Action, Outcome string
	Object                 string    // Kind/name with all that is about it, or Kind/ for all of the kind
	From, Until            time.Time // Until is the first moment that does not count
}

// List lists the entries that are in the database, by id.
func (s *Service) List(ctx context.Context, q Query, p director.Page) ([]chain.Entry, *director.Place, error) {
	return s.store.AuditList(ctx, store.AuditQuery(q), p)
}

// Key returns what verifies the trail without the director.
func (s *Service) Key() chain.Key {
	return chain.Key{Installation: s.store.DirectorID(), Public: s.Public()}
}

// Export returns a function that writes every entry of the time, one a line, so that the file can be verified alone: it
// begins at the last signed entry before from, or with the first one of the database, and ends with a checkpoint. That
// actor exported the trail is recorded before anything is returned. Zero times do not narrow.
func (s *Service) Export(
	ctx context.Context, actor string, from, until time.Time,
) (write func(ctx context.Context, w io.Writer) error, err error) {
	const op = "audit.export"
	if !from.IsZero() && !until.IsZero() && !from.Before(until) {
		return nil, director.Invalid(op, "the time is wrong", []director.Field{
			{Path: "query.until", Msg: "is not after from", Hint: "choose a later time"},
		})
	}
	if err := s.Attempt(ctx, Attempt{Actor: actor, Action: "export", Object: "Audit/trail"}); err != nil {
		return nil, err
	}
	start, err := s.store.AuditStart(ctx, from)
	if err != nil {
		return nil, err
	}
	var end int64
	if until.IsZero() {
		seen, serr := s.store.SeeAudit(ctx)
		end, err = seen.LastID, serr
	} else {
		end, err = s.store.AuditEnd(ctx, until)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, w io.Writer) error {
		_, _, err := s.store.WriteAudit(ctx, w, start, end, s.Checkpoint)
		return err
	}, nil
}
