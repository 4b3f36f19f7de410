package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/wire"
)

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	type item struct {
		Names []string `json:"names"`
		Bytes []byte   `json:"bytes"`
	}
	type list struct {
		Items   []item            `json:"items"`
		Left    []item            `json:"left,omitempty"`
		Counts  map[string]int    `json:"counts,omitempty"`
		Raw     json.RawMessage   `json:"raw"`
		When    time.Time         `json:"when"`
		Pointer *item             `json:"pointer"`
		Text    string            `json:"text"`
		Zero    int               `json:"zero,omitempty"`
		Labels  map[string]string `json:"labels"`
	}
	moment := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		give any
		want string
	}{
		"nothing": {
			list{Raw: json.RawMessage(`{"b":1,"a":null}`), When: moment, Text: "<a> & \u2028"},
			`{"items":[],"raw":{"b":1,"a":null},"when":"2030-01-02T03:04:05Z","pointer":null,` +
				`"text":"\u003ca\u003e \u0026 \u2028","labels":{}}`,
		},
		"an item without names": {
			list{Items: []item{{}}, Raw: json.RawMessage(`1`), When: moment},
			`{"items":[{"names":[],"bytes":""}],"raw":1,"when":"2030-01-02T03:04:05Z","pointer":null,"text":"",` +
				`"labels":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.Marshal(tt.give)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
			var line strings.Builder
			if err := wire.MarshalWrite(&line, tt.give); err != nil || line.String() != tt.want+"\n" {
				t.Errorf("got %s, %v, want a line of %s", &line, err, tt.want)
			}
			indented, err := wire.MarshalIndent(tt.give)
			if err != nil || !strings.HasPrefix(string(indented), "{\n  \"items\": [") {
				t.Errorf("got %s, %v", indented, err)
			}
		})
	}
}
