package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// Notifications are who is told what waits for a person and what went wrong.
type Notifications struct {
	Items []Notification `json:"items"`
}

// Notification is who is told, as it is now. Its document says the rest.
type Notification struct {
	Name       string     `json:"name"`
	To         []string   `json:"to" doc:"Addresses of people, or the one of an endpoint."`
	About      []string   `json:"about" doc:"What is told."`
	QuietUntil *time.Time `json:"quiet_until,omitempty" doc:"Until when nothing is sent; absent outside of quiet times."`
	Gone       bool       `json:"gone" doc:"The endpoint has answered 410: nothing is sent to it before its document changes or a test succeeds."`
}

// NotificationMessages are messages, the newest first.
type NotificationMessages struct {
	Items    []NotificationMessage `json:"items"`
	Continue string                `json:"continue,omitempty" doc:"Where the next part of the list begins; absent at its end."`
}

// NotificationMessage is one message for who a notification names.
type NotificationMessage struct {
	ID           string             `json:"id" doc:"Also the id of the mail or of the event: what is sent twice has the same."`
	Notification string             `json:"notification"`
	State        string             `json:"state" enum:"due,sent,dropped,failed" doc:"due: it is sent, and again until it is received. sent: it was received. dropped: all that it told of was over before it was received. failed: a test that was not received."`
	Test         bool               `json:"test"`
	Items        []NotificationItem `json:"items" doc:"What it tells of."`
	More         int                `json:"more,omitempty" doc:"How many more things it counts without naming them."`
	CreatedAt    time.Time          `json:"created_at"`
	NextAt       *time.Time         `json:"next_at,omitempty" doc:"When it is sent next; not before the end of a quiet time."`
	SentAt       *time.Time         `json:"sent_at,omitempty"`
	Attempts     int                `json:"attempts"`
	Problem      string             `json:"problem,omitempty" doc:"Of the last attempt; of a message that was sent: who did not get it."`
}

// NotificationItem is one thing that a message tells of.
type NotificationItem struct {
	About   string     `json:"about" enum:"approvals,failures,backups,drills,certificates"`
	Cluster string     `json:"cluster,omitempty" doc:"Absent for the director itself."`
	Text    string     `json:"text"`
	Path    string     `json:"path" doc:"Of the console's page about it."`
	Since   *time.Time `json:"since,omitempty"`
}

// NotificationMessageOf returns m in the API's form.
func NotificationMessageOf(m director.NotificationMessage) NotificationMessage {
	out := NotificationMessage{
		ID: m.ID, Notification: m.Notification, State: string(m.State), Test: m.Test(), More: m.More,
		Items: make([]NotificationItem, len(m.Items)), CreatedAt: m.Created, SentAt: Optional(m.Sent),
		Attempts: m.Attempts, Problem: m.Problem,
	}
	if m.State == director.NotificationDue {
		out.NextAt = Optional(m.Next)
	}
	for i, of := range m.Items {
		out.Items[i] = NotificationItem{of.About, of.Cluster, of.Text, of.Path, Optional(of.Since)}
	}
	return out
}
