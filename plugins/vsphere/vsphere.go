// Package vsphere runs VMs on vCenter.
//
// What belongs to a machine is found again by its stamp alone, so a director that died at any line continues where it
// was:
//
//   - The VM's instance UUID is computed from the stamp, and its extraConfig carries the stamp. Both are part of the
//     one call that clones it, so a VM is never without them. A VM with our stamp and another UUID is a
//     copy that a person made, and not ours.
//   - Everything else is one more call: data disks are attached and the mark kaas.made is set together. Then
//     the VM is powered on.
//   - Data disks are files kaas-data/<director>.<machine>.<serial>.vmdk of a datastore. Delete detaches them
//     before the VM goes.
//   - Images are templates. One that was cut off while it was brought is no template yet.
//   - Delete unsets the mark, detaches, and destroys the VM last.
//   - A VM made by others gets our stamp, our UUID and the mark in one call when it is adopted.
//
// One session serves everything; see session.go.
package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/keyed"
)

var (
	_ hypervisor.Backend    = (*Backend)(nil)
	_ hypervisor.Imaging    = (*Backend)(nil)
	_ hypervisor.Networking = (*Backend)(nil)
	_ hypervisor.Capacity   = (*Backend)(nil)
	_ hypervisor.DiskCopier = (*Backend)(nil)
	_ hypervisor.DiskTeller = (*Backend)(nil)
	_ hypervisor.Volumes    = (*Backend)(nil)
	_ hypervisor.Console    = (*Backend)(nil)
	_ hypervisor.Adopter    = (*Backend)(nil)
	_ hypervisor.Prober     = (*Backend)(nil)
	_ hypervisor.Snapshots  = (*Backend)(nil)
	_ hypervisor.Hosts      = (*Backend)(nil)
)

// Config is what Open needs. Names of vCenter's objects are names or inventory paths, as govc takes them.
type Config struct {
	URL        string           // https://vcenter.example.org/sdk; the scheme and the path may be left out
	Thumbprint string           // SHA-256 of vCenter's certificate, if no authority vouches for it
	CAFile     string           // certificates of authorities in PEM form, in addition to the system's
	Files      confine.Dirs     // that CAFile may lie in
	Networks   confine.Networks // addresses that vCenter and its hosts may have

	// Credentials returns the account. It is asked at every login, so that a changed password is taken up by itself.
	Credentials func(ctx context.Context) (user string, password director.Secret, err error)

	Datacenter   string
	Cluster      string // of hosts
	ResourcePool string // default: the cluster's own
	// of VMs; a group of VMs gets a folder of its own below it. Default: the datacenter's folder of VMs
	Folder string
	Hosts  []string // hosts that VMs are placed on; default all of the cluster

	Datastores        []string // for VMs; each VM goes to the one with the most free space
	TemplateDatastore string   // for images; default the first of Datastores
	DataDatastore     string   // for data disks; default the first of Datastores
	TemplateFolder    string   // for images; default Folder

	Clone    string // auto (default), linked or full
	Firmware string // bios (default) or efi

	ClusterPools bool // a resource pool for each group of VMs, below ResourcePool
	Attributes   bool // custom attributes that tell people of which cluster and director a VM is

	WorkDir string // for images while they are converted; default the system's directory of temporary files

	KeepAlive time.Duration // between two signs of life of an idle session; default 5 minutes
	Log       *slog.Logger
}

// center is vCenter as every part of the back end sees it: the session, the place of the provider's VMs, and the hosts.
type center struct {
	cfg   Config
	conn  *conn
	locks *keyed.Locks
	slots *slots
	sites *site
	lost  []string // hosts that Without left out
	view  bool     // of another Backend, whose session it shares

	// Seams for tests.
	at        func(point string) error // called between the lines of Ensure
	leaseBeat time.Duration
}

// images brings templates to vCenter, and copies them.
type images struct{ *center }

// dataDisks makes data disks, finds them again, and tells which are attached where.
type dataDisks struct{ *center }

// machines makes VMs, changes and deletes them.
type machines struct {
	*center
	*images
	*dataDisks
}

// Backend implements hypervisor.Backend and its optional interfaces.
type Backend struct {
	*center
	*images
	*dataDisks
	*machines
}

func newBackend(c *center) *Backend {
	i, d := &images{c}, &dataDisks{c}
	return &Backend{c, i, d, &machines{c, i, d}}
}

var thumbprint = regexp.MustCompile(`^([0-9A-F]{2}:){31}[0-9A-F]{2}$`)

// Open returns a back end. It does not connect yet: the first call that needs vCenter logs in. Errors: invalid with all
// that is wrong with the configuration.
func Open(cfg Config) (*Backend, error) {
	const op = "vsphere.open"
	cfg.Clone = cmp.Or(cfg.Clone, "auto")
	cfg.Firmware = cmp.Or(cfg.Firmware, "bios")
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 5*time.Minute)
	cfg.TemplateFolder = cmp.Or(cfg.TemplateFolder, cfg.Folder)
	if len(cfg.Datastores) > 0 {
		cfg.TemplateDatastore = cmp.Or(cfg.TemplateDatastore, cfg.Datastores[0])
		cfg.DataDatastore = cmp.Or(cfg.DataDatastore, cfg.Datastores[0])
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var fields []director.Field
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	u, err := ParseURL(cfg.URL)
	if err != nil {
		want(false, "url", "%v", err)
	}
	want(
		cfg.Thumbprint == "" || thumbprint.MatchString(colons(cfg.Thumbprint)), "thumbprint",
		"%q is not the SHA-256 of a certificate", cfg.Thumbprint,
	)
	want(cfg.Credentials != nil, "credentials", "are missing")
	want(cfg.Datacenter != "", "datacenter", "is empty")
	want(cfg.Cluster != "", "cluster", "is empty")
	want(len(cfg.Datastores) > 0 && !slices.Contains(cfg.Datastores, ""), "datastores", "is empty or has an empty name")
	want(
		slices.Contains([]string{"auto", "linked", "full"}, cfg.Clone), "clone", "%q is not auto, linked or full",
		cfg.Clone,
	)
	want(slices.Contains([]string{"bios", "efi"}, cfg.Firmware), "firmware", "%q is not bios or efi", cfg.Firmware)
	if err := director.Invalid(op, "the vsphere provider's settings are wrong", fields); err != nil {
		return nil, err
	}
	b := newBackend(&center{
		cfg: cfg, conn: newConn(cfg, u), locks: &keyed.Locks{}, slots: newSlots(), sites: &site{},
		at: func(string) error { return nil }, leaseBeat: defaultLeaseBeat,
	})
	b.slots.tell = func(ctx context.Context, host string, ahead int64, estimate time.Duration) {
		b.conn.log.InfoContext(
			ctx, "a clone waits for its turn", "host", host, "units_ahead", ahead, "estimate", estimate,
		)
	}
	return b, nil
}

// ParseURL reads the address of a vCenter: a host name, or a URL with https. It refuses one with an account in it, and
// does not repeat it.
func ParseURL(text string) (*url.URL, error) {
	if strings.Contains(text, "@") {
		return nil, fmt.Errorf("holds an account; leave it out, the password has a place of its own")
	}
	full := text
	if !strings.Contains(full, "://") {
		full = "https://" + full
	}
	u, err := url.Parse(full)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the address of a vCenter, such as https://vcenter.example.org/sdk", text)
	}
	u.Path = cmp.Or(strings.TrimSuffix(u.Path, "/"), "/sdk")
	return u, nil
}

// Close implements hypervisor.Backend. It ends the session at vCenter.
func (b *Backend) Close() error {
	if b.view {
		return nil
	}
	return b.conn.close()
}
