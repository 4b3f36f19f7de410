package director

// Page says which part of a list is wanted. Lists are read from place to place and not by counting, so that what comes
// and goes meanwhile neither hides items nor shows them twice.
type Page struct {
	Sort  string // one of the orders that the list knows; empty for its usual one
	Desc  bool   // the other way round
	After *Place // where the part before ended; nil for the first
	Limit int    // at most so many; 0 for all
}

// Place is where a part of a list ended: what the last item was sorted by, and its name, which no other item has.
type Place struct {
	Value string
	Name  string
}

// Scan shows what read returns to pick, part by part, until it has kept as many as the page wants, and returns the
// place after the last of them. What a document is filtered by, other than its name is in its text, so the database
// cannot do it.
func Scan[T any](
	p Page, read func(Page) ([]T, *Place, error), place func(T) *Place, pick func([]T) ([]bool, error),
) (*Place, error) {
	for kept := 0; ; {
		items, next, err := read(p)
		if err != nil {
			return nil, err
		}
		keep, err := pick(items)
		if err != nil {
			return nil, err
		}
		for i, k := range keep {
			if k {
				kept++
			}
			if kept == p.Limit && p.Limit > 0 && (next != nil || i < len(items)-1) {
				return place(items[i]), nil
			}
		}
		if next == nil {
			return nil, nil
		}
		p.After = next
	}
}
