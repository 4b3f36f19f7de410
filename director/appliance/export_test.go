package appliance

// What the tests need that import what imports this package.
var (
	Somewhere = somewhere
	Good      = good
)

func (p Place) DataPath(name string) string { return p.data(name) }

func (p Place) EtcPath(name string) string { return p.etc(name) }

func (p Place) Directories() error { return p.directories() }
