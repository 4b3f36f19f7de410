package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director/api"
)

// TestStreamsHaveSchemas looks for every event stream in the description: the types of its messages are what the code
// sends, and each has a schema that is there. So have the lines of every answer of lines.
func TestStreamsHaveSchemas(t *testing.T) {
	t.Parallel()
	const at = "#/components/schemas/"
	text, err := api.OpenAPI("v1")
	if err != nil {
		t.Fatal(err)
	}
	type ref struct {
		Ref string `yaml:"$ref"`
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						Messages map[string]ref `yaml:"x-messages"`
						Lines    struct {
							Ref   string `yaml:"$ref"`
							OneOf []ref  `yaml:"oneOf"`
						} `yaml:"x-lines"`
					} `yaml:"schema"`
				} `yaml:"content"`
			} `yaml:"responses"`
		} `yaml:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]ref `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	got, lines := map[string]map[string]string{}, map[string][]string{}
	for path, ops := range doc.Paths {
		for _, op := range ops {
			for kind, content := range op.Responses["200"].Content {
				if kind == "application/x-ndjson" {
					l := content.Schema.Lines
					for _, r := range append(l.OneOf, ref{l.Ref}) {
						if _, there := doc.Components.Schemas[strings.TrimPrefix(r.Ref, at)]; there {
							lines[path] = append(lines[path], strings.TrimPrefix(r.Ref, at))
						}
					}
				}
				if kind != "text/event-stream" {
					continue
				}
				got[path] = map[string]string{}
				for name, m := range content.Schema.Messages {
					got[path][name] = m.Ref
				}
			}
		}
	}
	want := map[string]map[string]string{
		"/events":               {"event": at + "StreamEvent", "gap": at + "StreamGap"},
		"/plans/{id}/events":    {"event": at + "Event", "gap": at + "EventGap", "end": at + "End"},
		"/plans/{id}/log/lines": {"line": at + "LogLine", "end": at + "LogEnd"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, messages := range want {
		for _, m := range messages {
			if _, there := doc.Components.Schemas[m[len(at):]]; !there {
				t.Errorf("%s is not there", m)
			}
		}
	}
	if r := doc.Components.Schemas["LogLine"].Properties["record"].Ref; r != at+"LogRecord" {
		t.Errorf("a line's record is %q", r)
	}
	wantLines := map[string][]string{
		"/plans/{id}/log": {"LogRecord"}, "/audit/export": {"AuditEntry", "AuditSigned"},
	}
	if diff := cmp.Diff(wantLines, lines); diff != "" {
		t.Error(diff)
	}
}
