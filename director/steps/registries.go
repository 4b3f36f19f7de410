package steps

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/step"
)

// RegistryAccounts are the accounts at outer registries. providers.Vault implements it.
type RegistryAccounts interface {
	// OpenRegistry returns the account that the document of that name pulls with. not_found if there is none, and
	// conflict if it was set for another place.
	OpenRegistry(ctx context.Context, name string, r model.Registry) (director.Credentials, error)
}

// registriesOf returns what the playbooks are told of outer registries; "" for none. It holds no secret.
func registriesOf(f step.Facts) string {
	if len(f.Registries) == 0 {
		return ""
	}
	type told struct {
		Host         string   `json:"host"`
		Mode         string   `json:"mode"`
		Endpoints    []string `json:"endpoints"`
		OverridePath bool     `json:"override_path"`
		CA           string   `json:"ca"`
		Account      string   `json:"account"` // name of the credentials; empty for none
	}
	var list []told
	for _, r := range f.Registries {
		s := r.Spec
		list = append(list, told{
			Host: s.Host, Mode: s.Mode, Endpoints: append([]string{}, s.Endpoints...), OverridePath: s.OverridePath,
			CA: s.CA, Account: s.Credentials,
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // texts
	}
	return string(text)
}

// registryVars adds the headers that nodes show to the director's registry and to outer ones to the variables of a run.
func (e playSteps) registryVars(ctx context.Context, uid string, outer []step.Registry, vars map[string]string) error {
	pull, err := e.pullAuthorization(ctx, uid)
	if err != nil {
		return err
	}
	vars["registry_authorization"] = pull.Reveal()
	return e.outerRegistryVars(ctx, outer, vars)
}

// outerRegistryVars adds the headers that nodes show to outer registries to the variables of a run. An account that is
// not there, or is for another place, is left out: what tells nodes of registries fails then and says so. All other
// work on the cluster is done.
func (e playSteps) outerRegistryVars(ctx context.Context, list []step.Registry, vars map[string]string) error {
	headers := map[string]string{}
	for _, r := range list {
		if r.Spec.Credentials == "" || e.Accounts == nil {
			continue
		}
		c, err := e.Accounts.OpenRegistry(ctx, r.Name, r.Spec)
		switch director.KindOf(err) {
		case director.KindNotFound, director.KindConflict:
			continue
		}
		if err != nil {
			return err
		}
		plain := c.User + ":" + c.Password.Reveal()
		headers[r.Spec.Host] = "Basic " + base64.StdEncoding.EncodeToString([]byte(plain))
	}
	if len(headers) == 0 {
		return nil
	}
	text, err := json.Marshal(headers)
	vars["outer_registry_authorizations"] = string(text)
	return err
}
