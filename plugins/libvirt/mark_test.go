package libvirt

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMark(t *testing.T) {
	t.Parallel()
	m := mark{Director: `d"1`, ID: "m<1>", Made: "yes"}
	for _, whole := range []bool{true, false} {
		text := `<other xmlns="urn:x"><machine director="no"/></other>` + m.element("machine", whole)
		got, ok := parseMark("machine", text)
		got.XMLName.Local, got.XMLName.Space = "", ""
		if diff := cmp.Diff(m, got); diff != "" || !ok {
			t.Errorf("whole=%t: %s", whole, diff)
		}
	}
	if _, ok := parseMark("machine", "<other/>"); ok {
		t.Error("found a mark where none is")
	}
}
