package cloudinit_test

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

func TestCleanUpIsRenderedFirstAndChecked(t *testing.T) {
	t.Parallel()
	g := master(t)
	g.CleanUp = cloudinit.CleanUp{What: []string{"repositories"}}
	seed, err := cloudinit.Render(g)
	if err != nil {
		t.Fatal(err)
	}
	text := string(seed.UserData)
	clean, disk := strings.Index(text, cloudinit.CleanedDir), strings.Index(text, "mkfs.ext4")
	if clean < 0 || disk < clean || !strings.Contains(text, "preserve_sources_list: true") {
		t.Errorf("not as it should be:\n%s", text)
	}
	g.CleanUp = cloudinit.CleanUp{
		What: []string{"everything"}, Paths: []string{"relative", "/a b", "/a*/b", "/etc/$(x)", "/etc/../x"},
	}
	if _, err := cloudinit.Render(g); err == nil || strings.Count(err.Error(), "clean_up.") != 6 {
		t.Errorf("got %v", err)
	}
}
