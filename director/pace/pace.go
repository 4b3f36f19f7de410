// Package pace ends requests whose bodies come too slowly. A limit on the whole time of a request would cut off long
// transfers that are well.
package pace

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Limits are what a sender has to keep to.
type Limits struct {
	Quiet time.Duration // how long it may send nothing
	Rate  int64         // bytes a second that it must send on average, apart from one Quiet
}

// Default is what the director asks of senders: much less than the slowest line gives.
var Default = Limits{Quiet: 30 * time.Second, Rate: 16 << 10}

// Body returns body with the limits. control is of the response to the same request. A sender that does not keep to
// them gets its connection closed, and Read fails with os.ErrDeadlineExceeded. The time that the reader takes between
// two reads counts for the rate as well.
func (l Limits) Body(body io.ReadCloser, control *http.ResponseController) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	b := &paced{ReadCloser: body, limits: l, control: control, began: time.Now()}
	b.deadline() // also for who never reads: the server reads what is left
	return b
}

type paced struct {
	io.ReadCloser
	limits  Limits
	control *http.ResponseController
	began   time.Time
	read    int64
}

// deadline sets how long the next read may take, and returns false if there is no time left.
func (b *paced) deadline() bool {
	now := time.Now()
	until := now.Add(b.limits.Quiet)
	owed := b.began.Add(b.limits.Quiet + time.Duration(float64(b.read)/float64(b.limits.Rate)*float64(time.Second)))
	if owed.Before(until) {
		until = owed
	}
	_ = b.control.SetReadDeadline(until) // a connection without deadlines has no way to set one
	return until.After(now)
}

// Read implements io.Reader.
func (b *paced) Read(p []byte) (int, error) {
	if !b.deadline() {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if errors.Is(err, io.EOF) { // what is done with it may take its time
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
