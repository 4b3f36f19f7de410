package director

import "time"

// NotificationItem is one thing that is to be told: that something waits for a person, or went wrong. It holds while
// the director finds it so.
type NotificationItem struct {
	Key     string    `json:"key"`               // the same as long as it is the same thing
	About   string    `json:"about"`             // such as approvals
	Cluster string    `json:"cluster,omitempty"` // empty for the director itself
	Text    string    `json:"text"`              // one line, for people
	Path    string    `json:"path"`              // of the console's page about it
	Since   time.Time `json:"since"`
}

// NotificationState is how far a message is.
type NotificationState string

// The states of a message. A crash leaves each as it is.
const (
	NotificationDue     NotificationState = "due"     // sent at its time, and again until it is received
	NotificationSent    NotificationState = "sent"    // received; final
	NotificationDropped NotificationState = "dropped" // what it told of was over before it was received; final
	NotificationFailed  NotificationState = "failed"  // a test that was not received; final
)

// NotificationMessage is one message for who a document names. Its id is that of all attempts to send it.
type NotificationMessage struct {
	ID           string
	Notification string // name of the document
	UID          string // of the document
	State        NotificationState
	Items        []NotificationItem // none in a test
	More         int                // items that are counted only
	Created      time.Time
	Next         time.Time // when it is sent, while it is due
	Sent         time.Time
	Attempts     int
	Problem      string   // of the last attempt
	Received     []string // addresses that have the mail already
}

// NotificationOutbox is what the director has written down for a document.
type NotificationOutbox struct {
	Open []NotificationItem   // found, and in no message yet
	Due  *NotificationMessage // at most one at a time
	Last time.Time            // when the newest message was made; zero without one
	Seen time.Time            // when the first of Open was found
	Gone int64                // generation of the document whose endpoint has said that it is gone; or 0
}

// Test reports whether a person asked for the message, to see whether it arrives.
func (m NotificationMessage) Test() bool { return len(m.Items) == 0 }
