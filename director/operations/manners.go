package operations

import (
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
)

// check looks for the document among the stored ones and holds the condition against it.
func check(c api.Condition, ref model.Ref, stored []model.Stored) error {
	for i := range stored {
		if stored[i].Ref() == ref {
			return c.Check(ref, &stored[i])
		}
	}
	return c.Check(ref, nil)
}
