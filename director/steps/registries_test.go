package steps

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/step"
)

// accounts has an account for each registry, by the name of its credentials, or an error instead.
type accounts map[string]error

func (a accounts) OpenRegistry(_ context.Context, _ string, r model.Registry) (director.Credentials, error) {
	err, known := a[r.Credentials]
	if !known {
		err = director.Errorf(director.KindNotFound, "test", "there are none")
	}
	return director.Credentials{User: "puller", Password: "canary"}, err
}

// Nodes get the accounts that are theirs, and a missing one stops only those who would tell nodes of it.
func TestOuterRegistriesInTheVariables(t *testing.T) {
	t.Parallel()
	registry := func(host, credentials string) step.Registry {
		return step.Registry{Name: host, Spec: model.Registry{
			Host: host, Mode: model.RegistryMirror, Endpoints: []string{"https://m.example"}, Credentials: credentials,
		}}
	}
	list := []step.Registry{
		registry("docker.io", "hub"), registry("quay.io", ""), registry("gone.io", "gone"),
		registry("moved.io", "moved"),
	}
	env := Env{Suppliers: Suppliers{Accounts: accounts{
		"hub": nil, "moved": director.Errorf(director.KindConflict, "test", "elsewhere"),
	}}}
	vars := map[string]string{}
	if err := env.plays().outerRegistryVars(t.Context(), list, vars); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"outer_registry_authorizations": `{"docker.io":"Basic cHVsbGVyOmNhbmFyeQ=="}`,
	}, vars); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	told := registriesOf(step.Facts{Registries: list[:1]})
	if want := `[{"host":"docker.io","mode":"mirror","endpoints":["https://m.example"],"override_path":false,"ca":"",` +
		`"account":"hub"}]`; told != want {
		t.Errorf("the playbooks are told %s", told)
	}
	if told := registriesOf(step.Facts{}); told != "" {
		t.Errorf("without registries: %q", told)
	}
	away := Env{Suppliers: Suppliers{Accounts: accounts{
		"hub": director.Errorf(director.KindUnavailable, "test", "the database is away"),
	}}}
	if err := away.plays().outerRegistryVars(t.Context(), list, map[string]string{}); err == nil {
		t.Error("an account that cannot be read now is left out")
	}
	vars = map[string]string{}
	if err := (Env{}).plays().outerRegistryVars(t.Context(), list, vars); err != nil || len(vars) > 0 {
		t.Errorf("a director without accounts: %v, %v", vars, err)
	}
}
