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
