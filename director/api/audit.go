package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/wire"
)

const kindAudit = "Audit"

type listAuditInput struct {
	ListInput
	Actor   string    `query:"actor" maxLength:"128" doc:"Only what this user or schedule tried."`
	Action  string    `query:"action" maxLength:"128" doc:"Only this action, such as login or apply."`
	Object  string    `query:"object" maxLength:"512" doc:"Only what is about this object: Kind/name, or Kind/ for all of the kind."`
	Outcome string    `query:"outcome" enum:"ok,refused,failed" doc:"Only attempts that ended so."`
	From    time.Time `query:"from" doc:"Only entries from this time on."`
	Until   time.Time `query:"until" doc:"Only entries before this time."`
	Limit   int       `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many."`
}

type exportAuditInput struct {
	From  time.Time `query:"from" doc:"Every entry from this time on. The file begins earlier, at the last signed entry before it."`
	Until time.Time `query:"until" doc:"Only entries before this time."`
}

func (s *server) auditTrail(api huma.API) {
	tags := []string{"Audit"}
	operation(s, api, listing[wire.AuditTrail](api, huma.Operation{
		OperationID: "list-audit", Path: "/audit", Tags: tags, Summary: "Read the audit trail",
		Description: "The newest first, or by id. Entries that were archived are in files on the director.",
	}), director.ActRead, kindAudit,
		func(ctx context.Context, _ director.Actor, in *listAuditInput) (*anyOf, error) {
			return s.listAudit(ctx, api, in)
		})
	verify := describe[wire.AuditVerification](api, huma.Operation{
		OperationID: "verify-audit", Method: http.MethodPost, Path: "/audit/verify", Tags: tags,
		Summary: "Verify the audit trail",
		Description: "Reads all of the trail that is in the database and says whether it is as it was written, and " +
			"otherwise which entry is the first bad one. One verification runs at a time.",
		Errors: []int{http.StatusTooManyRequests},
	})
	operation(s, api, verify, director.ActRead, kindAudit,
		func(ctx context.Context, _ director.Actor, _ *struct{}) (*body[wire.AuditVerification], error) {
			r, err := s.Trail.Verify(ctx)
			if err != nil {
				return nil, err
			}
			return &body[wire.AuditVerification]{wire.AuditVerificationOf(r)}, nil
		})
	operation(s, api, huma.Operation{
		OperationID: "get-audit-key", Method: http.MethodGet, Path: "/audit/key", Tags: tags,
		Summary:     "Get the key that verifies the audit trail without the director",
		Description: "Keep it where the director's administrators cannot write.",
	}, director.ActRead, kindAudit,
		func(context.Context, director.Actor, *struct{}) (*body[wire.AuditKey], error) {
			return &body[wire.AuditKey]{wire.AuditKey{Key: s.Trail.Key().String()}}, nil
		})
	operation(s, api, huma.Operation{
		OperationID: "export-audit", Method: http.MethodGet, Path: "/audit/export", Tags: tags,
		Summary: "Download the audit trail",
		Description: "Lines of JSON that can be verified without the director. It ends with a signed checkpoint. The " +
			"export is noted in the trail.",
		Responses: linesResponse(schemaOf[wire.AuditEntry](api), schemaOf[wire.AuditSigned](api)),
	}, director.ActRead, kindAudit, s.exportAudit)
}

func (s *server) listAudit(ctx context.Context, api huma.API, in *listAuditInput) (*anyOf, error) {
	filters := []any{in.Actor, in.Action, in.Object, in.Outcome, in.From.UnixMicro(), in.Until.UnixMicro()}
	p, err := in.page(in.Limit, "-id", filters...)
	if err == nil {
		err = oneOf(p, "id")
	}
	if err != nil {
		return nil, err
	}
	entries, place, err := s.Trail.List(ctx, audit.Query{
		Actor: in.Actor, Action: in.Action, Object: in.Object, Outcome: in.Outcome, From: in.From, Until: in.Until,
	}, p)
	if err != nil {
		return nil, err
	}
	items := make([]wire.AuditEntry, len(entries))
	for i, e := range entries {
		items[i] = wire.AuditEntryOf(e)
	}
	return listAnswer(api, items, in.Fields, next(p, place, filters...))
}

func (s *server) exportAudit(ctx context.Context, a director.Actor, in *exportAuditInput) (*anyOf, error) {
	write, err := s.Trail.Export(ctx, a.User, in.From, in.Until)
	if err != nil {
		return nil, err
	}
	return &anyOf{Body: func(hctx huma.Context) {
		unlimited(hctx)
		hctx.SetHeader("Content-Type", typeLines)
		hctx.SetHeader("Content-Disposition", `attachment; filename="audit.jsonl"`)
		hctx.SetStatus(http.StatusOK)
		humagin.Unwrap(hctx).Writer.Flush() // what breaks off from here on is a broken answer, and not none
		if err := write(ctx, hctx.BodyWriter()); err != nil {
			s.Log.ErrorContext(ctx, "export of the audit trail broke off", "request_id", requestID(ctx), "err", err)
			panic(http.ErrAbortHandler) // half an export must not look like a whole one
		}
	}}, nil
}
