package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/signature"
)

// Doors is what documents may lead the director to: which of its files they may name, and which addresses it connects
// to for them. Documents cannot widen it.
type Doors struct {
	ProviderFiles    confine.Dirs     `yaml:"providerFiles"`    // keys, certificates and passwords for providers
	ProviderSockets  confine.Dirs     `yaml:"providerSockets"`  // of further libvirt daemons on this machine
	ProviderNetworks confine.Networks `yaml:"providerNetworks"` // addresses of providers
	// addresses of mirrors; providerNetworks if there are none
	MirrorNetworks confine.Networks `yaml:"mirrorNetworks"`
	ImageDirs      confine.Dirs     `yaml:"imageDirs"` // files of node images; default /srv/director/images
	// directories of release bundles; default /srv/director/bundles
	BundleDirs confine.Dirs `yaml:"bundleDirs"`
	// directories of backup targets; default /srv/director/backups
	BackupDirs confine.Dirs `yaml:"backupDirs"`
	// TrustedKeys are the keys that sign bundles and images: public keys of minisign, or the absolute paths of files
	// that hold one.
	TrustedKeys []string `yaml:"trustedKeys"`
	// words: what documents say in spec.unsigned counts; never: nothing is used without a signature
	Unsigned string `yaml:"unsigned"`
}

// What Unsigned may be.
const (
	unsignedWords = "words"
	unsignedNever = "never"
)

func defaultDoors() Doors {
	return Doors{
		ProviderFiles: confine.Dirs{"/etc/director/providers"}, ProviderNetworks: confine.Private(),
		Unsigned: unsignedWords,
	}
}

// problems are those of the directories and networks.
func (c Config) doorProblems() []director.Field {
	var p []director.Field
	bad := func(key, hint, format string, args ...any) {
		p = append(p, director.Field{Path: key, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, l := range []struct {
		key  string
		dirs confine.Dirs
	}{
		{"providerFiles", c.ProviderFiles},
		{"providerSockets", c.ProviderSockets},
		{"imageDirs", c.ImageDirs},
		{"bundleDirs", c.BundleDirs},
		{"backupDirs", c.BackupDirs},
	} {
		for i, dir := range l.dirs {
			if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
				bad(
					fmt.Sprintf("%s[%d]", l.key, i), "beginning with /, and without a / at its end",
					"%q is not an absolute path", dir,
				)
			}
		}
	}
	for key, networks := range map[string]confine.Networks{
		"providerNetworks": c.ProviderNetworks, "mirrorNetworks": c.MirrorNetworks,
	} {
		for i, p := range networks {
			if !p.IsValid() || p.Masked() != p {
				bad(
					fmt.Sprintf("%s[%d]", key, i), "write a range such as 10.0.0.0/8",
					"%s is not a range of addresses", p,
				)
			}
		}
	}
	for i, dir := range c.ProviderFiles { // what is in there is sent to providers
		for _, own := range []string{
			c.StateDir, c.AdminPasswordFile, c.AdminPasswordHashFile, c.DatabasePasswordFile, c.CertificateKeyFile,
			c.ACME.KeyFile, c.RegistryBucket.SecretKeyFile,
		} {
			if own != "" && within(dir, own) && !c.Simulate {
				bad(
					fmt.Sprintf("providerFiles[%d]", i),
					"name a directory that holds nothing but keys, certificates and passwords of providers",
					"%s holds %s, which is the director's own", dir, own,
				)
			}
		}
		if within(c.StateDir, dir) && !c.Simulate {
			bad(fmt.Sprintf("providerFiles[%d]", i), "name a directory outside of it", "%s is inside of stateDir", dir)
		}
	}
	_, keys := signature.ReadKeys("trustedKeys", c.TrustedKeys)
	p = append(p, keys...)
	if c.Unsigned != unsignedWords && c.Unsigned != unsignedNever {
		bad("unsigned", "words or never", "%q is not known", c.Unsigned)
	}
	return p
}

// gate lets through what is signed with a trusted key. A director that simulates uses everything, unless it has keys.
func (c Config) gate(file func(sha256 string) (director.ImageFile, error)) (*provenance.Gate, error) {
	if c.Simulate && len(c.TrustedKeys) == 0 && c.Unsigned == unsignedWords {
		return nil, nil
	}
	keys, problems := signature.ReadKeys("trustedKeys", c.TrustedKeys)
	return &provenance.Gate{Keys: keys, Never: c.Unsigned == unsignedNever, Images: c.rules().Images, File: file},
		director.Invalid("daemon.config", "the configuration is wrong", problems)
}

// trusted returns the trusted keys; Validate has found them to be right.
func (c Config) trusted() signature.Keyring {
	keys, _ := signature.ReadKeys("trustedKeys", c.TrustedKeys)
	return keys
}

// within tells whether the path is the directory or below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mirrors are the addresses from which the director fetches release bundles.
func (d Doors) mirrors() confine.Networks {
	if len(d.MirrorNetworks) == 0 {
		return d.ProviderNetworks
	}
	return d.MirrorNetworks
}

// rules returns the restrictions in the form that other packages use. A simulated director runs for one person and
// reads any image and bundle unless its configuration restricts it.
func (c Config) rules() confine.Rules {
	files := func(dirs confine.Dirs, usual string) confine.Dirs {
		switch {
		case dirs != nil:
			return dirs
		case c.Simulate:
			return confine.Dirs{"/"}
		}
		return confine.Dirs{usual}
	}
	return confine.Rules{
		ProviderFiles: c.ProviderFiles, ProviderNetworks: c.ProviderNetworks, ProviderSockets: c.ProviderSockets,
		Images: files(c.ImageDirs, "/srv/director/images"), Bundles: files(c.BundleDirs, "/srv/director/bundles"),
		Backups: files(c.BackupDirs, "/srv/director/backups"),
	}
}
