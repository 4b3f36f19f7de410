package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tagged lists the files that name the build tags of the director.
var tagged = []string{
	".golangci.yml", "Makefile", "images/director/build.sh", "images/director/vms.py", "test/go.sh",
}

var tagList = regexp.MustCompile(`\blibvirt_dlopen(?:, ?[a-z_]+)*`)

// TestBuildTagsAgree holds that all that compiles the director does it with the same tags: a program that was tested
// with others is another program, and nothing of it is in Go's cache.
func TestBuildTagsAgree(t *testing.T) {
	var want string
	for _, name := range tagged {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		tags := strings.ReplaceAll(tagList.FindString(string(text)), " ", "")
		// The director of a next version, for the appliance's test of upgrades.
		tags = strings.TrimSuffix(tags, ",nextschema")
		if want == "" {
			want = tags
		}
		if tags == "" || tags != want {
			t.Errorf("%s has the build tags %q, and %s has %q: use the same", name, tags, tagged[0], want)
		}
	}
}
