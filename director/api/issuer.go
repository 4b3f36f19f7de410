package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/wire"
)

// clusterTokens registers what gives tokens for the APIs of clusters.
func (s accountRoutes) clusterTokens(api huma.API) {
	operation(s.server, api, huma.Operation{
		OperationID: "issue-cluster-token", Method: http.MethodPost, Path: "/clusters/{name}/token",
		Tags: []string{"Clusters"}, Summary: "Get a token for the API of a cluster, as yourself",
		Description: "It is good for ten minutes, and cannot be revoked. The cluster sees your name, and your roles " +
			"on it as the groups role:admin, role:operator, role:user and role:auditor. directorctl kube-token asks " +
			"for one whenever kubectl needs it.",
		Errors: []int{http.StatusNotFound},
	}, director.ActToken, kindCluster, s.issueClusterToken)
}

func (s accountRoutes) issueClusterToken(
	ctx context.Context, a director.Actor, in *clusterInput,
) (*body[wire.ClusterToken], error) {
	t, err := s.Issuer.ClusterToken(ctx, a, in.Name)
	if err != nil {
		return nil, err
	}
	// A token that cannot be recorded is not handed out.
	if err := s.recorded(ctx, audit.Attempt{
		Actor: a.User, Action: note(ctx).action, Object: kindCluster + "/" + in.Name,
		Detail: "until " + t.Expires.Format(time.RFC3339),
	}); err != nil {
		return nil, err
	}
	return &body[wire.ClusterToken]{wire.ClusterToken{Token: t.Text.Reveal(), ExpiresAt: t.Expires}}, nil
}
