package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// probing collects what a connection test has looked at.
type probing struct {
	b   *center
	op  string
	all []hypervisor.Probe
}

func (x *probing) add(host, what, found string, err error) {
	p := hypervisor.Probe{Host: host, What: what, Found: found, Err: err}
	if err != nil {
		p.Found = ""
	}
	x.all = append(x.all, p)
}

// Probe implements hypervisor.Prober: the certificate, the account, each object that the document names, the hosts,
// free space, and what the account may do. Port groups are named by Networks and not by the Provider: those are looked
// at before a plan, and listed here.
func (b *center) Probe(ctx context.Context) ([]hypervisor.Probe, error) {
	x := &probing{b: b, op: "vsphere.probe"}
	if !x.session(ctx) {
		return x.all, interrupted(ctx, x.op)
	}
	vim, err := b.conn.client(ctx, x.op)
	if err != nil {
		return nil, err
	}
	p, names := b.survey(ctx, x.op, vim)
	for _, n := range names {
		err := n.err
		if n.problem != "" {
			err = director.Errorf(director.KindNotFound, x.op, "%s", n.problem).
				WithHint("correct spec.vsphere.%s: %s", n.path, n.hint)
		}
		x.add("", n.kind+" "+n.name, "it is there", err)
	}
	x.hosts(ctx, p)
	x.space(ctx, p)
	x.privileges(ctx, p)
	x.visible(ctx, p)
	return x.all, interrupted(ctx, x.op)
}

// session looks at the certificate and at the account, each by itself, and tells whether there is a session.
func (x *probing) session(ctx context.Context) bool {
	c := x.b.conn
	vim, err := c.dial(ctx, x.op)
	if err != nil {
		x.add("", "connection", "", err)
		if _, _, err := c.cfg.Credentials(ctx); err != nil { // whether vCenter takes them cannot be said
			x.add("", "account", "", err)
		}
		return false
	}
	x.add("", "connection", vim.ServiceContent.About.FullName+" at "+c.url.Host, nil)
	vim.CloseIdleConnections()
	user, err := c.user(ctx, x.op)
	x.add("", "account", "logged in as "+user, err)
	return err == nil
}

// hosts looks at each host that VMs may go to, and at DRS.
func (x *probing) hosts(ctx context.Context, p *place) {
	if p.cluster == nil {
		return
	}
	all, err := x.b.hosts(ctx, x.op, p)
	if err != nil && len(all) == 0 {
		x.add("", "hosts", "", err)
		return
	}
	if err != nil { // some of spec.vsphere.hosts are not there
		x.add("", "hosts", "", err)
	}
	if len(all) == 0 {
		x.add(
			"", "hosts", "",
			director.Errorf(director.KindNotFound, x.op, "the cluster %s has no hosts", x.b.cfg.Cluster).
				WithHint("add hosts to it in vCenter"),
		)
	}
	for _, h := range all {
		x.add(
			h.name, "host", fmt.Sprintf("%d CPUs, %d MiB of %d MiB of memory free", h.cpus, h.free>>20, h.memory>>20),
			x.host(p, h),
		)
	}
	switch on, err := x.b.drs(ctx, p); {
	case err != nil:
		x.add("", "DRS", "", x.b.translate(ctx, x.op, "cluster "+x.b.cfg.Cluster, err))
	case on:
		x.add("", "DRS", "on: it keeps masters apart", nil)
	default:
		x.add("", "DRS", "off: the director chooses the hosts, and nothing keeps masters apart later", nil)
	}
}

// host says why VMs cannot go to the host.
func (x *probing) host(p *place, h *esx) error {
	if h.state != "" {
		return director.Errorf(director.KindUnavailable, x.op, "host %s %s", h.name, h.state).
			WithHint("bring it back in vCenter; other hosts are used meanwhile")
	}
	var missing []string
	for _, d := range append(p.dataStores(), p.images) {
		if d != nil && !h.stores[d.Reference()] && !slices.Contains(missing, d.Name()) {
			missing = append(missing, d.Name())
		}
	}
	if len(missing) > 0 {
		return director.Errorf(
			director.KindNotFound, x.op, "host %s does not have the datastore %s", h.name, strings.Join(missing, ", "),
		).
			WithHint("attach it to the host, or name the hosts that have it in spec.vsphere.hosts")
	}
	return nil
}

// space looks at what is free in the datastores.
func (x *probing) space(ctx context.Context, p *place) {
	space, err := x.b.stores(ctx, x.op, p)
	if err != nil {
		x.add("", "free space", "", err)
		return
	}
	var seen []*object.Datastore
	for _, d := range append(slices.Clone(p.stores), p.images, p.data) {
		if d == nil ||
			slices.ContainsFunc(seen, func(o *object.Datastore) bool { return o.Reference() == d.Reference() }) {
			continue
		}
		seen = append(seen, d)
		i := space[d.Reference()]
		var problem error
		switch {
		case !i.usable:
			problem = director.Errorf(
				director.KindUnavailable, x.op, "the datastore %s is in maintenance or not accessible", d.Name(),
			).
				WithHint("look at its state in vCenter, or name another one")
		case i.free < minFree:
			problem = director.Errorf(director.KindExhausted, x.op, "the datastore %s has %d MiB free, and the "+
				"director leaves %d MiB to the VMs that are there",
				d.Name(), i.free>>20, int64(minFree)>>20).WithHint("free space in it, or name another one")
		}
		x.add("", "space of datastore "+d.Name(), fmt.Sprintf("%d MiB of %d MiB free", i.free>>20, i.size>>20), problem)
	}
}

// privileges looks at what the account may do with each object.
func (x *probing) privileges(ctx context.Context, p *place) {
	user, all, err := x.b.allowances(ctx, x.op, p)
	if err != nil {
		x.add("", "privileges", "", err)
		return
	}
	for _, a := range all {
		var problem error
		if len(a.lacks) > 0 {
			problem = director.Errorf(
				director.KindForbidden, x.op, "the account %s lacks %s on %s", user, strings.Join(a.lacks, ", "),
				a.object,
			).
				WithHint(giveRole)
		}
		x.add("", "privileges on "+a.object, fmt.Sprintf("all %d", a.granted), problem)
	}
}

// visible tells what else the account sees of the datacenter: port groups, which Networks name, and VMs.
func (x *probing) visible(ctx context.Context, p *place) {
	if p.root.Value == "" {
		return
	}
	networks, err := p.finder.NetworkList(ctx, "*")
	var names []string
	for _, n := range networks {
		if kind := n.Reference().Type; kind == "Network" || kind == "DistributedVirtualPortgroup" ||
			kind == "OpaqueNetwork" {
			names = append(names, n.GetInventoryPath())
		}
	}
	slices.Sort(names)
	if err = x.b.translate(ctx, x.op, "the port groups", unlessMissing(err)); err == nil && len(names) == 0 {
		err = director.Errorf(director.KindNotFound, x.op, "the account sees no port group").
			WithHint("make one, or give the account the role on those that Networks are to name")
	}
	x.add("", "port groups", strings.Join(names, ", "), err)
	vms, err := below(ctx, p.vim, p.root)
	x.add(
		"", "VMs", fmt.Sprintf("%d can be seen, templates included", len(vms)),
		x.b.translate(ctx, x.op, "the VMs", err),
	)
}
