package model

import "strings"

// Selector is conditions on labels, all of which must hold: "key=value", or "key" for any value.
type Selector []string

// Match reports whether the labels fulfil every condition.
func (l Selector) Match(labels map[string]string) bool {
	for _, want := range l {
		key, value, exact := strings.Cut(want, "=")
		got, ok := labels[key]
		if !ok || exact && got != value {
			return false
		}
	}
	return true
}
