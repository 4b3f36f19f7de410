package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director/wire"
)

// auditCalls read the audit trail.
type auditCalls struct{ *connection }

// AuditFilter narrows AuditTrail. What is empty does not narrow.
type AuditFilter struct {
	Actor, Action, Object, Outcome string
	From, Until                    time.Time
	Limit                          int // 0 for all
}

// AuditTrail returns the newest entries of the audit trail, the newest first.
func (c *auditCalls) AuditTrail(ctx context.Context, f AuditFilter) ([]wire.AuditEntry, error) {
	const part = 1000
	q := auditTimes(f.From, f.Until)
	for key, value := range map[string]string{
		"actor": f.Actor, "action": f.Action, "object": f.Object, "outcome": f.Outcome,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	var all []wire.AuditEntry
	for {
		size := part
		if f.Limit > 0 {
			size = min(part, f.Limit-len(all))
		}
		q.Set("limit", strconv.Itoa(size))
		var l wire.AuditTrail
		if err := c.call(ctx, request{method: http.MethodGet, path: "/audit", query: q}, &l); err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if l.Continue == "" || f.Limit > 0 && len(all) >= f.Limit {
			return all, nil
		}
		q.Set("continue", l.Continue)
	}
}

func auditTimes(from, until time.Time) url.Values {
	q := url.Values{}
	for key, at := range map[string]time.Time{"from": from, "until": until} {
		if !at.IsZero() {
			q.Set(key, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// VerifyAudit verifies the trail that is in the director's database.
func (c *auditCalls) VerifyAudit(ctx context.Context) (wire.AuditVerification, error) {
	var v wire.AuditVerification
	err := c.call(ctx, request{method: http.MethodPost, path: "/audit/verify"}, &v)
	return v, err
}

// AuditKey returns what verifies an export of the trail.
func (c *auditCalls) AuditKey(ctx context.Context) (string, error) {
	var k wire.AuditKey
	err := c.call(ctx, request{method: http.MethodGet, path: "/audit/key"}, &k)
	return k.Key, err
}

// ExportAudit returns the entries of the time, one a line. The caller closes it.
func (c *auditCalls) ExportAudit(ctx context.Context, from, until time.Time) (io.ReadCloser, error) {
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/audit/export", query: auditTimes(from, until),
		accept: "application/x-ndjson",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
