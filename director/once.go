package director

import "context"

// Once is a request that its caller has given a key, so that it happens once however often it is sent.
type Once struct {
	Actor   string
	Key     string
	Request string // fingerprint of what was asked: the same key for something else is a mistake
	Claim   string // names the try that works on it; another try takes over under another name
	// written with the work itself: what a try did that died before it answered; empty if nothing happened yet
	Witness string
	Status  int // of the answer; 0 while there is none
	Header  map[string]string
	Body    []byte
}

type onceKey struct{}

// WithOnce returns ctx with the request that it belongs to.
func WithOnce(ctx context.Context, o Once) context.Context {
	return context.WithValue(ctx, onceKey{}, o)
}

// OnceOf returns the request that ctx belongs to, if its caller gave it a key. The one that does the work notes it in
// the same transaction.
func OnceOf(ctx context.Context) (Once, bool) {
	o, ok := ctx.Value(onceKey{}).(Once)
	return o, ok
}
