package director

import "strconv"

// Count returns a number with its noun, as in "1 node" and "3 nodes". The noun's plural ends in s.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
