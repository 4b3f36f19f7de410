package tree_test

import (
	"os"
	"testing"

	"github.com/director-kaas/kaas/test/tree"
)

func TestPath(t *testing.T) {
	for _, from := range []string{".", "..", "../../director/hypervisor/hypervisortest/columns"} {
		t.Run(from, func(t *testing.T) {
			t.Chdir(from)
			if _, err := os.Stat(tree.Path(t, "test/tree/tree_test.go")); err != nil {
				t.Error(err)
			}
		})
	}
}
