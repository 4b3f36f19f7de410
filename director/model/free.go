package model

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// free reads a value of any form, such as an inventory variable, as far as JSON can hold it: that is how documents are
// stored.
func (d *decoder) free(n *yaml.Node, path string) (value any, ok bool) {
	if err := n.Decode(&value); err != nil {
		d.fail(n, path, short(plainError(err, n.Value)), "")
		return nil, false
	}
	value, problem := plain(value)
	if problem != "" {
		d.fail(n, path, problem, "write what JSON can hold: text, numbers, true, false, null, lists and mappings")
	}
	return value, problem == ""
}

// plain returns the value as it is read again from JSON: dates as text, 80.0 as 80. problem says what JSON cannot hold.
func plain(value any) (out any, problem string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if v[key], problem = plain(inner); problem != "" {
				return nil, problem
			}
			if !utf8.ValidString(key) {
				return nil, "holds a key that is not UTF-8"
			}
		}
	case map[any]any:
		return nil, "holds a mapping with a key that is not text"
	case []any:
		for i, inner := range v {
			if v[i], problem = plain(inner); problem != "" {
				return nil, problem
			}
		}
	case time.Time:
		return v.Format(time.RFC3339Nano), ""
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Sprintf("holds %v", v)
		}
		return whole(v), ""
	case string:
		if !utf8.ValidString(v) {
			return nil, "holds a text that is not UTF-8"
		}
	}
	return value, ""
}

// whole returns f as an integer if it is one: JSON writes 80.0 as 80, which is read again as an integer.
func whole(f float64) any {
	const two63, two64 = 1 << 63, 1 << 64
	switch {
	case f != math.Trunc(f):
	case f >= -two63 && f < two63:
		return int(f)
	case f >= two63 && f < two64:
		return uint64(f)
	}
	return f
}
