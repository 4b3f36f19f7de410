package confine

// Rules are what documents may name, as the configuration has it.
type Rules struct {
	ProviderFiles    Dirs     // keys, certificates and passwords for providers
	ProviderNetworks Networks // addresses of providers
	ProviderSockets  Dirs     // of further libvirt daemons on the director's own machine
	Images           Dirs     // files of node images
	Bundles          Dirs     // directories of release bundles
	Backups          Dirs     // directories of backup targets
}
