package engine

import (
	"context"
	"errors"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
)

// notified is River's driver for SQLite with the one thing that it lacks: being told of new jobs. No other process
// inserts any, so this one's own news will do, and River need not ask the database twenty times a second.
type notified struct {
	*riversqlite.Driver
	news *broadcast
}

// SupportsListener implements riverdriver.Driver. Jobs still cannot be announced through the database
// (SupportsListenNotify).
func (notified) SupportsListener() bool { return true }

// GetListener implements riverdriver.Driver.
func (d notified) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{news: d.news, next: d.news.wait()}
}

// listener tells River to look for jobs whenever there is news. The engine sends news behind every transaction that may
// have queued one.
type listener struct {
	news *broadcast
	next <-chan struct{} // closed by news that River has not heard of
}

// The topic and the payload with which River's own trigger announces a job in the one queue that is used.
const (
	jobsInserted = "river_insert"
	inTheQueue   = `{"queue":"` + river.QueueDefault + `"}`
)

func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-l.next:
		l.next = l.news.wait()
		return &riverdriver.Notification{Topic: jobsInserted, Payload: inTheQueue}, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), context.Cause(ctx))
	}
}

func (*listener) Close(context.Context) error            { return nil }
func (*listener) Connect(context.Context) error          { return nil }
func (*listener) Listen(context.Context, string) error   { return nil }
func (*listener) Unlisten(context.Context, string) error { return nil }
func (*listener) Ping(context.Context) error             { return nil }
func (*listener) Schema() string                         { return "" }
func (*listener) SetAfterConnectExec(string)             {}
