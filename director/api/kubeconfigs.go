package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

type kubeconfigInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Body *wire.KubeconfigRequest
}

type breakGlassInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Body wire.BreakGlass
}

// kubeconfigs registers what people get into clusters with.
func (s *accessRoutes) kubeconfigs(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-kubeconfig", Method: http.MethodGet, Path: "/clusters/{name}/kubeconfig", Tags: tags,
		Summary: "Get a kubeconfig with which everyone uses the cluster as oneself",
		Description: "It holds no secret, and is the same for everyone: kubectl runs directorctl kube-token, which " +
			"gets a token for who is logged in.",
		Errors:    []int{http.StatusNotFound, http.StatusConflict},
		Responses: textResponse(typeYAML, "The kubeconfig."),
	}, director.ActRead, kindCluster, s.getKubeconfig)
	operation(s.server, api, huma.Operation{
		OperationID: "mint-kubeconfig", Method: http.MethodPost, Path: "/clusters/{name}/kubeconfig", Tags: tags,
		Summary: "Mint an administrator's kubeconfig with a client certificate of its own",
		Description: "It needs no director while it is good, and revoke-kubeconfigs ends it. The cluster is asked to " +
			"accept it.",
		Errors:    []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
		Responses: textResponse(typeYAML, "The kubeconfig. It holds a private key."),
	}, director.ActKubeconfig, kindCluster, s.mintKubeconfig)
	operation(s.server, api, huma.Operation{
		OperationID: "revoke-kubeconfigs", Method: http.MethodDelete, Path: "/clusters/{name}/kubeconfig", Tags: tags,
		Summary:       "End every kubeconfig that was minted for the cluster",
		Description:   "Those of mint-kubeconfig end at once. Later ones are good.",
		DefaultStatus: http.StatusNoContent,
		Errors:        []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, director.ActKubeconfig, kindCluster, s.revokeKubeconfigs)
	operation(s.server, api, huma.Operation{
		OperationID: "break-glass", Method: http.MethodPost, Path: "/clusters/{name}/break-glass", Tags: tags,
		Summary: "Mint a kubeconfig that the cluster accepts whatever its own rules say",
		Description: "For a cluster whose RBAC is broken, or that the director does not reach. Nothing ends it " +
			"before " +
			"its time. It needs the password of who asks, and is an audit event of its own.",
		Errors:    []int{http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests},
		Responses: textResponse(typeYAML, "The kubeconfig. It holds a private key."),
	}, director.ActSecrets, kindCluster, s.breakGlass)
}

func (s *accessRoutes) getKubeconfig(ctx context.Context, _ director.Actor, in *clusterInput) (*rawText, error) {
	return yamlText(s.Access.UserKubeconfig(ctx, in.Name))
}

func (s *accessRoutes) mintKubeconfig(ctx context.Context, a director.Actor, in *kubeconfigInput) (*rawText, error) {
	life := time.Duration(orZero(in.Body).TTLSeconds) * time.Second
	return yamlText(s.Access.Kubeconfig(ctx, a.User, in.Name, life))
}

func (s *accessRoutes) revokeKubeconfigs(ctx context.Context, a director.Actor, in *clusterInput) (*struct{}, error) {
	return nil, s.Access.RevokeKubeconfigs(ctx, a.User, in.Name)
}

func (s *accessRoutes) breakGlass(ctx context.Context, a director.Actor, in *breakGlassInput) (*rawText, error) {
	if err := s.accounts().confirm(ctx, a, director.Secret(in.Body.Password)); err != nil {
		return nil, err
	}
	life := time.Duration(in.Body.TTLSeconds) * time.Second
	return yamlText(s.Access.BreakGlass(ctx, a.User, in.Name, life))
}

func yamlText(text []byte, err error) (*rawText, error) {
	if err != nil {
		return nil, err
	}
	return &rawText{ContentType: typeYAML, Body: text}, nil
}
