package director

import "context"

// Origin says where a request came from, for the audit trail.
type Origin struct {
	Address string // of who asks
	Request string // id of the request
}

type originKey struct{}

// WithOrigin returns a context of a request that came from there.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns where the request of the context came from; the zero Origin is for what the director does by itself.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
