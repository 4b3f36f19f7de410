package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v2"
)

type envelope struct {
	APIVersion string   `json:"apiVersion"`
	Kind       Kind     `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       any      `json:"spec"`
}

// EncodeJSON renders the document as one line of JSON. The same document gives the same bytes.
func EncodeJSON(d Document) ([]byte, error) {
	b, err := json.Marshal(envelope{APIVersion: APIVersion, Kind: d.Kind, Metadata: d.Metadata, Spec: d.Spec()})
	if err != nil {
		return nil, fmt.Errorf("model: encoding %s: %w", d.Ref(), err)
	}
	return b, nil
}

// Encode renders the document as YAML, which Parse reads back to the same document.
func Encode(d Document) ([]byte, error) {
	b, err := EncodeJSON(d)
	if err != nil {
		return nil, err
	}
	// JSON is read by its own parser: YAML's would need several times the memory.
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("model: encoding %s: %w", d.Ref(), err)
	}
	return yaml.Marshal(numbers(v))
}

// numbers replaces the JSON numbers in v by Go's.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = numbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = numbers(inner)
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64() // json wrote it, so it is in range
		return f
	}
	return v
}
