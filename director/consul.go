package director

import "time"

// ConsulState is how the last comparison of a Consul with what is wanted there went.
type ConsulState struct {
	Consul  string    `json:"-"`
	At      time.Time `json:"at"`                // when it ended
	Success time.Time `json:"success,omitzero"`  // when one ended well the last time
	Problem string    `json:"problem,omitempty"` // why this one did not end well
	Hint    string    `json:"hint,omitempty"`
	Wanted  int       `json:"wanted"`  // entries
	Written int       `json:"written"` // by this comparison
	Removed int       `json:"removed"` // by this comparison
	Failing int       `json:"failing"` // wanted entries whose check does not pass
	Held    *Removals `json:"held,omitempty"`
}

// Removals are removals that are so many at once that a person has to agree to them.
type Removals struct {
	ID     string   `json:"id"` // of exactly this set
	Count  int      `json:"count"`
	Total  int      `json:"total"`  // entries of the director that are there
	Sample []string `json:"sample"` // the first of them
}
