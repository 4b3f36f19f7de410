package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/wire"
)

// Appliance is what the API offers of the machine that the director runs on. All methods return *director.Error and are
// safe for concurrent use.
type Appliance interface {
	// State returns which roots there are; not_found on a machine that is no appliance.
	State(ctx context.Context) (rootdisk.State, error)
	// Upgrade asks for the root in an uploaded archive.
	Upgrade(ctx context.Context, upload string, r rootdisk.Request) error
	// Rollback asks for the former root.
	Rollback(ctx context.Context, r rootdisk.Request) error
}

const kindAppliance = "Appliance"

func (s *documentRoutes) appliance(api huma.API) {
	tags := []string{"Appliance"}
	operation(s.server, api, huma.Operation{
		OperationID: "get-appliance", Method: http.MethodGet, Path: "/appliance", Tags: tags,
		Summary:     "Show which directors the appliance has, and how far an upgrade is",
		Description: "A director that runs on another machine answers that there is none.",
		Errors:      []int{http.StatusNotFound},
	}, director.ActRead, kindAppliance,
		func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Appliance], error) {
			return s.applianceNow(ctx)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "upgrade-appliance", Method: http.MethodPost, Path: "/appliance/upgrade", Tags: tags,
		Summary: "Upgrade the appliance in place",
		Description: "The root of the upload is written to the other root partition. Running steps of plans end, the " +
			"database is copied, and the VM restarts with the new root, once: if it does not become healthy, the " +
			"former root and database come back by themselves. Plans continue afterwards. A downgrade is refused.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindAppliance,
		func(
			ctx context.Context, a director.Actor, in *struct{ Body wire.ApplianceUpgrade },
		) (*body[wire.Appliance], error) {
			if err := s.Appliance.Upgrade(ctx, in.Body.Upload, changeOf(a, in.Body.ApplianceWaits)); err != nil {
				return nil, err
			}
			return s.applianceNow(ctx)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "roll-back-appliance", Method: http.MethodPost, Path: "/appliance/rollback", Tags: tags,
		Summary: "Start the director of before the last upgrade",
		Description: "As an upgrade, with the root that is kept in the other partition. If that director does not " +
			"know " +
			"the database, the data of before the upgrade is restored, and what has changed since is lost: " +
			"lose_changes agrees to it.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindAppliance,
		func(
			ctx context.Context, a director.Actor, in *struct{ Body wire.ApplianceRollback },
		) (*body[wire.Appliance], error) {
			r := changeOf(a, in.Body.ApplianceWaits)
			r.LoseChanges = in.Body.LoseChanges
			if err := s.Appliance.Rollback(ctx, r); err != nil {
				return nil, err
			}
			return s.applianceNow(ctx)
		})
}

func changeOf(a director.Actor, w wire.ApplianceWaits) rootdisk.Request {
	r := rootdisk.Request{By: a.User, Drain: w.Drain, Within: w.Within}
	if r.Drain == 0 {
		r.Drain = rootdisk.UsualDrain
	}
	return r
}

func (s *documentRoutes) applianceNow(ctx context.Context) (*body[wire.Appliance], error) {
	state, err := s.Appliance.State(ctx)
	if err != nil {
		return nil, err
	}
	return &body[wire.Appliance]{wire.ApplianceOf(state)}, nil
}
