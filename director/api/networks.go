package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/wire"
)

type addressesInput struct {
	ListInput
	Name  string   `path:"name" maxLength:"64" doc:"Name of the network."`
	Text  string   `query:"q" maxLength:"100" doc:"Only addresses that contain this, or whose node or cluster does, in any case."`
	Use   []string `query:"use" maxItems:"7" doc:"Only addresses with one of these uses, separated by commas: node, virtual, static, gateway, router, dns, excluded."`
	Limit int      `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most so many."`
}

func (s *providerRoutes) networks(api huma.API) {
	operation(s.server, api, listing[wire.NetworkAddresses](api, huma.Operation{
		OperationID: "list-network-addresses", Path: "/networks/{name}/addresses", Tags: []string{"Providers"},
		Summary: "List the addresses of a network that are in use, and count the free ones of its pool",
		Description: "As the ledger and the documents have them: of nodes, virtual addresses, addresses that " +
			"documents give to nodes, gateway, routers and name servers, and what the pool excludes. Sorted by " +
			"address. No hypervisor is asked; a check of a cluster looks for strangers.",
		Errors: []int{http.StatusNotFound},
	}), director.ActRead, string(model.KindNetwork),
		func(ctx context.Context, _ director.Actor, in *addressesInput) (*anyOf, error) {
			return s.listAddresses(ctx, api, in)
		})
}

func (s *providerRoutes) listAddresses(ctx context.Context, api huma.API, in *addressesInput) (*anyOf, error) {
	for _, use := range in.Use {
		if !slices.Contains(providers.Uses(), use) {
			return nil, invalidQuery("use", "there is no "+use, "some of "+strings.Join(providers.Uses(), ", "))
		}
	}
	filters := []any{in.Name, in.Text, in.Use}
	page, err := in.page(in.Limit, "address", filters...)
	if err == nil {
		err = oneOf(page, "address")
	}
	if err != nil {
		return nil, err
	}
	if page.Desc {
		return nil, invalidQuery("sort", "cannot be -address", "address")
	}
	v, err := s.Capacity.Addresses(ctx, providers.AddressQuery{
		Network: in.Name, Text: in.Text, Uses: in.Use, Page: page,
	})
	if err != nil {
		return nil, err
	}
	items := make([]wire.NetworkAddress, len(v.Items))
	for i, u := range v.Items {
		items[i] = wire.NetworkAddress{
			Address: u.Range.String(), Use: u.Use, Pool: u.Pool, Cluster: u.Cluster, Machine: u.Machine,
			Role: string(u.Role), State: string(u.State),
		}
	}
	return listAnswer(api, items, in.Fields, next(page, v.Next, filters...), map[string]any{
		"total": v.Total, "pool": v.Pool, "used": v.Used, "free": v.Free(),
	})
}
