package director

// Claim is what a director writes into a cluster to say that it works on it.
type Claim struct {
	Director string // id of the installation
	Run      string // id of one start of a director, which no other start has; empty for no claim
	Host     string // machine that it ran on, for people
}
