package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Hooks lists the hooks.
func (c receiverCalls) Hooks(ctx context.Context) (wire.Hooks, error) {
	var v wire.Hooks
	err := c.call(ctx, request{method: http.MethodGet, path: "/hooks"}, &v)
	return v, err
}

// TestHook sends a test event, once. The problem in the answer says why it was not received.
func (c receiverCalls) TestHook(ctx context.Context, name string) (wire.HookDelivery, error) {
	var v wire.HookDelivery
	err := c.call(ctx, request{method: http.MethodPost, path: "/hooks/" + url.PathEscape(name) + "/test"}, &v)
	return v, err
}

// HookKeys returns the public keys that verify the requests of the hook.
func (c receiverCalls) HookKeys(ctx context.Context, name string) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{method: http.MethodGet, path: "/hooks/" + url.PathEscape(name) + "/keys"}, &v)
	return v, err
}

// HookSecret is HookKeys with what receivers of hmac verify with.
func (c receiverCalls) HookSecret(ctx context.Context, name string, password director.Secret) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/hooks/" + url.PathEscape(name) + "/secret",
		body: wire.HookPassword{Password: password.Reveal()},
	}, &v)
	return v, err
}

// RotateHookKey makes another key for the hook.
func (c receiverCalls) RotateHookKey(ctx context.Context, name string) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{method: http.MethodPost, path: "/hooks/" + url.PathEscape(name) + "/rotate-key"}, &v)
	return v, err
}

// HookDeliveries lists deliveries, the newest first; what is empty does not narrow them.
func (c receiverCalls) HookDeliveries(
	ctx context.Context, hook, plan string, waiting bool, limit int,
) (wire.HookDeliveries, error) {
	q := url.Values{}
	for key, value := range map[string]string{"hook": hook, "plan": plan} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if waiting {
		q.Set("waiting", "true")
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var v wire.HookDeliveries
	err := c.call(ctx, request{method: http.MethodGet, path: "/hook-deliveries", query: q}, &v)
	return v, err
}

// ReplayHookDelivery has an event sent again under its id.
func (c receiverCalls) ReplayHookDelivery(ctx context.Context, id string) (wire.HookDelivery, error) {
	var v wire.HookDelivery
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/hook-deliveries/" + url.PathEscape(id) + "/replay",
	}, &v)
	return v, err
}

// AnswerHookDelivery answers what a plan asks.
func (c receiverCalls) AnswerHookDelivery(
	ctx context.Context, id string, a wire.HookAnswer,
) (wire.HookDelivery, error) {
	var v wire.HookDelivery
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/hook-deliveries/" + url.PathEscape(id) + "/answer", body: a,
	}, &v)
	return v, err
}
