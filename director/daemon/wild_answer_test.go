package daemon

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
)

// unlikeAnswer returns what in the answer to an operation is not as the description says.
func (g *generator) unlikeAnswer(o wildOperation, resp *http.Response, body []byte) []string {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/json" && media != "application/problem+json" {
		return nil
	}
	described, ok := o.answers[strconv.Itoa(resp.StatusCode)].(map[string]any)
	if !ok {
		if described, ok = o.answers["default"].(map[string]any); !ok {
			return []string{fmt.Sprintf("there is nothing about %d", resp.StatusCode)}
		}
	}
	content, _ := described["content"].(map[string]any)
	form, ok := content[media].(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%d comes as %s", resp.StatusCode, media)}
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return []string{err.Error()}
	}
	return g.unlike(form["schema"], value, "answer")
}

// unlike returns what in an answer is not as its schema says: values that are not listed, required fields that are
// missing, and other types.
func (g *generator) unlike(schema, value any, at string) []string {
	s, ok := g.resolve(schema).(map[string]any)
	if !ok {
		return nil
	}
	if all, ok := s["enum"].([]any); ok && value != nil && !slices.Contains(all, value) {
		return []string{fmt.Sprintf("%s is %v, not one of %v", at, value, all)}
	}
	kind, _ := s["type"].(string)
	switch v := value.(type) {
	case map[string]any:
		if kind != "" && kind != "object" {
			return []string{fmt.Sprintf("%s is an object, not of type %s", at, kind)}
		}
		return g.unlikeFields(s, v, at)
	case []any:
		if kind != "" && kind != "array" {
			return []string{fmt.Sprintf("%s is a list, not of type %s", at, kind)}
		}
		var out []string
		for i, e := range v {
			out = append(out, g.unlike(s["items"], e, fmt.Sprintf("%s[%d]", at, i))...)
		}
		return out
	case string:
		if kind != "" && kind != "string" {
			return []string{fmt.Sprintf("%s is a text, not of type %s", at, kind)}
		}
	case nil:
		if kind != "" {
			return []string{at + " is null"}
		}
	}
	return nil
}

func (g *generator) unlikeFields(s, fields map[string]any, at string) []string {
	var out []string
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := fields[name.(string)]; !ok {
			out = append(out, fmt.Sprintf("%s has no %s", at, name))
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, v := range fields {
		schema := properties[name]
		if schema == nil {
			schema = s["additionalProperties"]
		}
		out = append(out, g.unlike(schema, v, at+"."+name)...)
	}
	return out
}
