package docs

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// Every link from a Markdown file to a file of the repository leads somewhere, and so does every anchor.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]map[string]bool{}
	for _, page := range pages {
		anchors[page.Path] = page.Anchors()
	}
	checked := 0
	for _, page := range pages {
		for _, l := range page.Links() {
			checked++
			target := page.Path
			if l.Path != "" {
				target = path.Join(path.Dir(page.Path), l.Path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil || strings.HasPrefix(target, "..") {
				t.Errorf("%s:%d: there is no file %s", page.Path, l.Line, target)
				continue
			}
			if l.Anchor != "" && !anchors[target][l.Anchor] {
				t.Errorf("%s:%d: %s has no heading #%s", page.Path, l.Line, target, l.Anchor)
			}
		}
	}
	if len(pages) < 40 || checked < 100 {
		t.Errorf("%d links of %d pages were checked, which are fewer than there are", checked, len(pages))
	}
}

func TestReadingLinksAndAnchors(t *testing.T) {
	t.Parallel()
	page := Page{Lines: lines(strings.Join([]string{
		"# What `directorctl` doesn't do",
		"See [one](a.md), [two](b.md#part-two) and [here](#see-also), not [outside](https://example.org/c.md) nor " +
			"`[code](d.md)`.",
		"````sh", "# no heading", "[no](link.md)", "```", "# no heading either", "````",
		"## See [also](e.md)", "## See also",
	}, "\n"))}
	want := []Link{{2, "a.md", ""}, {2, "b.md", "part-two"}, {2, "", "see-also"}, {9, "e.md", ""}}
	if diff := cmp.Diff(want, page.Links()); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	anchors := map[string]bool{"what-directorctl-doesnt-do": true, "see-also": true, "see-also-1": true}
	if diff := cmp.Diff(anchors, page.Anchors()); diff != "" {
		t.Errorf("anchors (-want +got):\n%s", diff)
	}
}
