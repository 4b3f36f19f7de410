package api

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// Fields whose names promise a few values list them, so that programs and the console can be checked against them.
func TestFieldsOfFewValuesListThem(t *testing.T) {
	t.Parallel()
	names := []string{"status", "state", "verb", "operation", "outcome", "power", "plan_status", "mode", "role", "kind"}
	open := []string{ // what others name
		"BackupExtract.kind",   // a kind of Kubernetes
		"Event.kind",           // readers skip those that they do not know
		"StreamEvent.kind",     // the same
		"HookDelivery.outcome", // of the receiver
		"LogRecord.role",       // of Ansible
		"LogRecord.status",     // of a module, or of the whole run
	}
	_, _, api := build(Config{Log: slog.New(slog.DiscardHandler)})
	for schema, s := range api.OpenAPI().Components.Schemas.Map() {
		for field, p := range s.Properties {
			at := schema + "." + field
			if p.Type == "string" && len(p.Enum) == 0 && slices.Contains(names, field) && !slices.Contains(open, at) {
				t.Errorf("%s lists no values; put it into fewValues, or give it a tag", at)
			}
		}
	}
	for _, v := range fewValues() {
		if len(v.of) < 2 || slices.Contains(v.of, any("")) {
			t.Errorf("%s: %v are no values", strings.Join(v.fields, ", "), v.of)
		}
	}
}
