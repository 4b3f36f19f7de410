package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
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
	return yaml.JSONToYAML(b)
}

// Diff returns the lines that differ between two texts, in the manner of diff -U1 without headers, or "" when they are equal. It is meant
// for documents of some hundred lines: its cost is the product of the lengths.
func Diff(before, after string) string {
	a, b := strings.Split(strings.TrimRight(before, "\n"), "\n"), strings.Split(strings.TrimRight(after, "\n"), "\n")
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	type line struct {
		mark byte
		text string
	}
	var lines []line
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, line{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || (i < len(a) && common[i+1][j] >= common[i][j+1]):
			lines = append(lines, line{'-', a[i]})
			i++
		default:
			lines = append(lines, line{'+', b[j]})
			j++
		}
	}
	var out strings.Builder
	for k, l := range lines {
		near := l.mark != ' ' || (k > 0 && lines[k-1].mark != ' ') || (k+1 < len(lines) && lines[k+1].mark != ' ')
		if near {
			fmt.Fprintf(&out, "%c %s\n", l.mark, l.text)
		}
	}
	return out.String()
}
