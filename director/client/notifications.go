package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Notifications lists who is told what.
func (c receiverCalls) Notifications(ctx context.Context) (wire.Notifications, error) {
	var v wire.Notifications
	err := c.call(ctx, request{method: http.MethodGet, path: "/notifications"}, &v)
	return v, err
}

// TestNotification sends a test, once. The problem in the answer says why it was not received.
func (c receiverCalls) TestNotification(ctx context.Context, name string) (wire.NotificationMessage, error) {
	var v wire.NotificationMessage
	err := c.call(ctx, request{method: http.MethodPost, path: ofNotification(name) + "/test"}, &v)
	return v, err
}

// NotificationMessages lists messages of the notification, or of all if the name is empty, the newest first.
func (c receiverCalls) NotificationMessages(
	ctx context.Context, name string, limit int,
) (wire.NotificationMessages, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if name != "" {
		q.Set("notification", name)
	}
	var v wire.NotificationMessages
	err := c.call(ctx, request{method: http.MethodGet, path: "/notification-messages", query: q}, &v)
	return v, err
}

// NotificationKeys returns the public keys that verify the requests of the notification.
func (c receiverCalls) NotificationKeys(ctx context.Context, name string) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{method: http.MethodGet, path: ofNotification(name) + "/keys"}, &v)
	return v, err
}

// NotificationSecret is NotificationKeys with what receivers of hmac verify with.
func (c receiverCalls) NotificationSecret(
	ctx context.Context, name string, password director.Secret,
) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{
		method: http.MethodPost, path: ofNotification(name) + "/secret",
		body: wire.HookPassword{Password: password.Reveal()},
	}, &v)
	return v, err
}

// RotateNotificationKey makes another key for the notification.
func (c receiverCalls) RotateNotificationKey(ctx context.Context, name string) (wire.HookKeys, error) {
	var v wire.HookKeys
	err := c.call(ctx, request{method: http.MethodPost, path: ofNotification(name) + "/rotate-key"}, &v)
	return v, err
}

func ofNotification(name string) string { return "/notifications/" + url.PathEscape(name) }
