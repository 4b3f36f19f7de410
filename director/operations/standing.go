package operations

import (
	"fmt"
	"net/netip"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// keepAddresses refuses changes of networks that machines are on, if an address that is given away would not be valid any more or would mean something else.
// Name servers, time servers and routes may change: they concern VMs that are made from then on.
func keepAddresses(tx *store.Tx, docs []model.Document, changes []model.Change, stored []model.Stored) error {
	var problems []director.Field
	for i := range docs {
		if docs[i].Kind != model.KindNetwork || changes[i].Action != "changed" {
			continue
		}
		for j := range stored {
			if stored[j].Ref() != docs[i].Ref() {
				continue
			}
			living, err := tx.AddressesOn(docs[i].Metadata.Name)
			if err != nil {
				return err
			}
			problems = append(problems, standing(docs[i].Ref(), stored[j].Network, docs[i].Network, living)...)
		}
	}
	return director.Invalid("operations.apply", "nothing was applied: machines are on the network", problems)
}

// standing returns the fields of the network that cannot become what they are in is while machines have the addresses.
func standing(ref model.Ref, was, is *model.Network, living []netip.Addr) []director.Field {
	if len(living) == 0 {
		return nil
	}
	var out []director.Field
	for _, f := range []struct {
		path    string
		was, is any
	}{
		{"provider", was.Provider, is.Provider},
		{"mode", was.Mode, is.Mode},
		{"bridge", was.Bridge, is.Bridge},
		{"portGroup", was.PortGroup, is.PortGroup},
		{"cidr", was.CIDR, is.CIDR},
		{"gateway", was.Gateway, is.Gateway},
		{"vlan", was.VLAN, is.VLAN},
		{"switch", was.Switch, is.Switch},
	} {
		if f.was != f.is {
			out = append(out, director.Field{
				Path: ref.String() + ": spec." + f.path, Msg: fmt.Sprintf("cannot change from %v to %v while %d addresses of the network are in use", f.was, f.is, len(living)),
				Hint: "make another Network, or take its machines away first",
			})
		}
	}
	for _, a := range living {
		if was.Holds(a) != is.Holds(a) {
			out = append(out, director.Field{
				Path: ref.String() + ": spec.pool", Msg: fmt.Sprintf("%s is in use, and would leave or enter the pool", a),
				Hint: "keep the addresses of machines as they are in the pool, and change the rest",
			})
		}
	}
	return out
}
