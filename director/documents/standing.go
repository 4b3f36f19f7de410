package documents

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// existing tells what exists of what documents are about: a transaction, or the store outside of one.
type existing interface {
	Machines(f store.MachineFilter) ([]director.Machine, error)
	KeptDisks(f store.DiskFilter) ([]director.KeptDisk, error)
	Installed(cluster string) (store.Installed, bool, error)
	UnknownUsers(names []string) ([]string, error)
}

// outside is the store for a look without a transaction.
type outside struct {
	ctx   context.Context //nolint:containedctx // it lives for one look
	store *store.Store
}

func (o outside) Machines(f store.MachineFilter) ([]director.Machine, error) {
	return o.store.Machines(o.ctx, f)
}

func (o outside) KeptDisks(f store.DiskFilter) ([]director.KeptDisk, error) {
	return o.store.KeptDisks(o.ctx, f)
}

func (o outside) Installed(cluster string) (store.Installed, bool, error) {
	return o.store.Installed(o.ctx, cluster)
}

func (o outside) UnknownUsers(names []string) ([]string, error) {
	return o.store.UnknownUsers(o.ctx, names)
}

// strangers returns the users of Grants that the director does not know.
func strangers(e existing, docs []model.Document) ([]director.Field, error) {
	var out []director.Field
	for i := range docs {
		if docs[i].Grant == nil || len(docs[i].Grant.Users) == 0 {
			continue
		}
		unknown, err := e.UnknownUsers(docs[i].Grant.Users)
		if err != nil {
			return nil, err
		}
		for _, name := range unknown {
			out = append(out, director.Field{
				Path: fmt.Sprintf("%s: spec.users[%d]", docs[i].Ref(), slices.Index(docs[i].Grant.Users, name)),
				Msg:  "there is no user " + name,
				Hint: "create the user first; people of a directory log in once, or name a group of theirs",
			})
		}
	}
	return out, nil
}

// standing refuses changes of fields that machines, kept disks or running clusters depend on; model.EffectOf says which
// fields these are. Every problem is reported at once.
func standing(e existing, docs []model.Document, changed []model.Change, stored []model.Stored) error {
	before := map[model.Ref]*model.Stored{}
	for i := range stored {
		before[stored[i].Ref()] = &stored[i]
	}
	problems, err := strangers(e, docs)
	if err != nil {
		return err
	}
	for i := range docs {
		was := before[docs[i].Ref()]
		if changed[i].Action != "changed" || was == nil {
			continue
		}
		list := slices.DeleteFunc(model.Changes(was.Document, docs[i]), func(c model.FieldChange) bool {
			effect, known := model.EffectOf(docs[i].Kind, c.Field)
			return known && effect.Effect != model.Refused
		})
		if len(list) == 0 && docs[i].Kind != model.KindCluster {
			continue
		}
		d := dependence{existing: e, was: was, is: &docs[i]}
		found, err := d.refusals(list)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	return director.Invalid(
		"documents.apply", "nothing was applied: what exists depends on fields that were changed", problems,
	)
}

// dependence is what depends on a document that is to change.
type dependence struct {
	existing
	was *model.Stored
	is  *model.Document
}

func (d dependence) refusals(list []model.FieldChange) ([]director.Field, error) {
	switch d.is.Kind {
	case model.KindNetwork:
		return d.network(list)
	case model.KindProvider:
		return d.provider(list)
	case model.KindCluster:
		return d.cluster(list)
	case model.KindDirector:
		return d.director(list)
	}
	return nil, nil
}

func (d dependence) field(c model.FieldChange, by, hint string) director.Field {
	msg := fmt.Sprintf("cannot change from %v to %v while %s", text(c.Was), text(c.Is), by)
	switch {
	case c.Is == nil:
		msg = fmt.Sprintf("%v cannot go while %s", c.Was, by)
	case c.Was == nil:
		msg = fmt.Sprintf("%v cannot come while %s", c.Is, by)
	}
	return director.Field{Path: d.is.Ref().String() + ": " + c.At, Msg: msg, Hint: hint}
}

// text is a value as people read it.
func text(value any) any {
	if s := fmt.Sprint(value); s != "" && s != "[]" && s != "map[]" {
		return value
	}
	return "nothing"
}

// network keeps every address valid that is given away.
func (d dependence) network(list []model.FieldChange) ([]director.Field, error) {
	name := d.is.Metadata.Name
	machines, err := d.Machines(store.MachineFilter{NetworkName: name})
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	var out []director.Field
	pool := false
	for _, c := range list {
		if strings.HasPrefix(c.Field, "spec.pool.") {
			pool = true
			continue
		}
		out = append(out, d.field(c, fmt.Sprintf("%d addresses of the network are in use", len(machines)),
			"make another Network, or take its machines away first"))
	}
	for _, m := range machines {
		a, err := netip.ParseAddr(m.On(name))
		if err == nil && pool && d.was.Network.Holds(a) != d.is.Network.Holds(a) {
			out = append(out, director.Field{
				Path: d.is.Ref().String() + ": spec.pool",
				Msg:  fmt.Sprintf("%s is in use, and would leave or enter the pool", a),
				Hint: "keep the addresses of machines as they are in the pool, and change the rest",
			})
		}
	}
	return out, nil
}

// provider refuses changes after which the director could not find its VMs and disks there.
func (d dependence) provider(list []model.FieldChange) ([]director.Field, error) {
	name := d.is.Metadata.Name
	machines, err := d.Machines(store.MachineFilter{Provider: name})
	if err != nil {
		return nil, err
	}
	disks, err := d.KeptDisks(store.DiskFilter{Provider: name})
	if err != nil {
		return nil, err
	}
	given, err := d.Machines(store.MachineFilter{Provider: name, Tombstones: true})
	if err != nil {
		return nil, err
	}
	given = slices.DeleteFunc(given, func(m director.Machine) bool {
		return m.State != director.MachineLost || m.Deleted.IsZero()
	})
	var out []director.Field
	for _, c := range list {
		if c.Was == nil || samePlace(c) ||
			(c.Field == "spec.vsphere.dataDatastore" && dataDatastore(d.was.Provider) == dataDatastore(d.is.Provider)) {
			continue
		}
		var there []string
		for _, m := range machines {
			if c.Item == "" || m.Host == c.Item {
				there = append(there, m.Name)
			}
		}
		gone, kept := c.Item != "" && c.Is == nil, 0
		for _, m := range given {
			if !gone && (c.Item == "" || m.Host == c.Item) {
				there = append(there, m.Name)
			}
		}
		for _, k := range disks {
			if held := k.Holder != "" && k.Holder == k.Machine; held && gone { // by a VM that was given up there
				continue
			}
			if c.Item == "" || k.Host == c.Item {
				kept++
			}
		}
		switch {
		case len(there) > 0:
			hint := "make another Provider, or take its machines away first"
			if c.Item != "" {
				hint = "move them to another host first: directorctl node replace"
			}
			out = append(out, d.field(c, "it has "+first(there), hint))
		case kept > 0:
			out = append(out, d.field(c, fmt.Sprintf("it has %d kept disks", kept), "see directorctl disks list"))
		}
	}
	return out, nil
}

func dataDatastore(p *model.Provider) string {
	switch {
	case p.VSphere == nil:
		return ""
	case p.VSphere.DataDatastore == "" && len(p.VSphere.Datastores) > 0:
		return p.VSphere.Datastores[0]
	}
	return p.VSphere.DataDatastore
}

// first names a few.
func first(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// samePlace reports whether an address leads where the former one led: the account and the files of a connection may
// change.
func samePlace(c model.FieldChange) bool {
	if c.Field != "spec.libvirt.hosts[].uri" && c.Field != "spec.vsphere.url" {
		return false
	}
	place := func(value any) string {
		address := fmt.Sprint(value)
		if c.Field == "spec.vsphere.url" && !strings.Contains(address, "://") {
			address = "https://" + address
		}
		u, err := url.Parse(address)
		if err != nil {
			return address
		}
		driver, _, _ := strings.Cut(u.Scheme, "+")
		return strings.ToLower(driver+" "+u.Hostname()) + " " + strings.Trim(u.Path, "/")
	}
	return place(c.Was) == place(c.Is)
}

// director keeps a director's VM where it is.
func (d dependence) director(list []model.FieldChange) ([]director.Field, error) {
	machines, err := d.Machines(store.MachineFilter{ClusterUID: d.was.UID})
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	var out []director.Field
	for _, c := range list {
		out = append(out, d.field(c, "its VM is there", "take the change back, or make another director"))
	}
	return out, nil
}

// cluster keeps a running cluster at what it was installed with.
func (d dependence) cluster(list []model.FieldChange) ([]director.Field, error) {
	name := d.is.Metadata.Name
	inst, ok, err := d.Installed(name)
	if err != nil || !ok || inst.UID != d.was.UID {
		return nil, err
	}
	differs := map[string]bool{} // from what runs: a document may go back to it
	for _, c := range model.Changes(inst.Document, *d.is) {
		differs[c.Field] = true
	}
	var out []director.Field
	for _, c := range list {
		if differs[c.Field] {
			out = append(out, d.field(c, "the cluster runs", "take the change back, or make another cluster"))
		}
	}
	masters := inst.Document.Cluster.Masters.Count
	if masters == 1 && d.is.Cluster.Masters.Count > 1 && !inst.Document.Cluster.API.VIP.IsValid() {
		out = append(out, director.Field{
			Path: d.is.Ref().String() + ": spec.masters.count",
			Msg:  "cannot grow: the cluster was made without spec.api.vip",
			Hint: "set it to 1 again; a cluster that is to grow is created with spec.api.vip",
		})
	}
	return out, nil
}
