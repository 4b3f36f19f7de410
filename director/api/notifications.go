package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/notifications"
	"github.com/director-kaas/kaas/director/wire"
)

// Notifications is what the API offers of who is told what. All methods return *director.Error and are safe for
// concurrent use.
type Notifications interface {
	signer
	// List returns the notifications by name.
	List(ctx context.Context) ([]notifications.View, error)
	// Test sends a test once, and returns what came of it.
	Test(ctx context.Context, actor, name string) (director.NotificationMessage, error)
	// Messages lists messages of the notification, or of all if the name is empty, the newest first.
	Messages(ctx context.Context, name, before string, limit int) ([]director.NotificationMessage, error)
}

const kindNotification = string(model.KindNotification)

type notificationInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the notification."`
}

type messagesInput struct {
	Notification string `query:"notification" maxLength:"64" doc:"Only messages of this notification."`
	Limit        int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many at most."`
	Continue     string `query:"continue" maxLength:"200" doc:"Where the list continues; from the part before."`
}

func (s *planRoutes) notifications(api huma.API) {
	tags := []string{"Notifications"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-notifications", Method: http.MethodGet, Path: "/notifications", Tags: tags,
		Summary: "List who is told what, with quiet times that last",
	}, director.ActRead, kindNotification, s.listNotifications)
	operation(s.server, api, huma.Operation{
		OperationID: "test-notification", Method: http.MethodPost, Path: "/notifications/{name}/test", Tags: tags,
		Summary: "Send a test, once, also in a quiet time",
		Description: "problem in the answer says why it was not received. A test that is received lets messages be " +
			"sent at once that were not received before.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindNotification,
		func(ctx context.Context, a director.Actor, in *notificationInput) (*body[wire.NotificationMessage], error) {
			m, err := s.Notifications.Test(ctx, a.User, in.Name)
			if err != nil {
				return nil, err
			}
			return &body[wire.NotificationMessage]{wire.NotificationMessageOf(m)}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "list-notification-messages", Method: http.MethodGet, Path: "/notification-messages", Tags: tags,
		Summary: "List what was told and is due, the newest first; of the last 30 days",
	}, director.ActRead, kindNotification, s.listMessages)
	s.signingKeys(api, tags, kindNotification, "notification", func() signer { return s.Notifications })
}

func (s *planRoutes) listNotifications(
	ctx context.Context, _ director.Actor, _ *empty,
) (*body[wire.Notifications], error) {
	list, err := s.Notifications.List(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.Notifications{Items: make([]wire.Notification, len(list))}
	for i, n := range list {
		next := wire.Notification{
			Name: n.Metadata.Name, About: n.Notification.About, Gone: n.Gone, QuietUntil: wire.Optional(n.Quiet),
		}
		if len(next.About) == 0 {
			next.About = model.Abouts()
		}
		if n.Notification.Mail != nil {
			next.To = n.Notification.Mail.To
		} else {
			next.To = []string{n.Notification.Webhook.URL}
		}
		out.Items[i] = next
	}
	return &body[wire.Notifications]{out}, nil
}

func (s *planRoutes) listMessages(
	ctx context.Context, _ director.Actor, in *messagesInput,
) (*body[wire.NotificationMessages], error) {
	list, err := s.Notifications.Messages(ctx, in.Notification, in.Continue, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := wire.NotificationMessages{Items: []wire.NotificationMessage{}}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		out.Continue = list[len(list)-1].ID
	}
	for _, m := range list {
		out.Items = append(out.Items, wire.NotificationMessageOf(m))
	}
	return &body[wire.NotificationMessages]{out}, nil
}
