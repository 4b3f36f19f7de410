package hypervisor

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Late returns err, or unavailable with what to do if the provider took longer than patience. soon is ctx with that
// end.
func Late(ctx, soon context.Context, op, provider string, patience time.Duration, err error) error {
	if err == nil || ctx.Err() != nil || soon.Err() == nil {
		return err
	}
	return director.Errorf(director.KindUnavailable, op, "provider %s does not answer within %s", provider, patience).
		WithHint("find out what is slow: directorctl provider test %s", provider)
}
