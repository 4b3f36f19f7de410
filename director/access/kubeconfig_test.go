package access

import (
	"context"
	"encoding/base64"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// real has the keys of a real API server.
type real struct {
	keys
	server *kubetest.Server
}

func (r real) Cluster(context.Context, string, string, string) (steps.API, error) {
	return kube.Connect([]byte(r.server.Admin().Reveal()))
}

// installedCluster returns a service that knows the cluster of the API server, and its database.
func installedCluster(t *testing.T, endpoint string, k Keys) (*Service, *store.Store) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	docs, err := model.Parse([]byte("apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: demo}\n"+
		"spec: {release: r, provider: p, image: i, network: n}\n"), "test")
	if err == nil {
		err = db.Update(t.Context(), func(tx *store.Tx) error {
			if err := tx.PutDocument(docs[0], "ann", time.Now()); err != nil {
				return err
			}
			return tx.PutInstalled(store.Installed{
				UID: "u1", Name: "demo", Generation: 1, Document: docs[0], Endpoint: endpoint, At: time.Now(),
			})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return New(db, noFacts{}, k, time.Now), db
}

func TestKubeconfigsAreRevoked(t *testing.T) {
	t.Parallel()
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	server := kubetest.Start(t, authorities)
	s, db := installedCluster(t, strings.TrimPrefix(server.URL, "https://"), real{keys{authorities}, server})
	must := func(text []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	works := func(name string, config []byte, want director.Kind) {
		t.Helper()
		api, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		_, err = api.Nodes(t.Context())
		if err == nil && want == "" {
			return
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := must(s.Kubeconfig(t.Context(), "ann", "demo", 0))
	same := must(s.Kubeconfig(t.Context(), "oscar", "demo", time.Hour))
	glass := must(s.BreakGlass(t.Context(), "ann", "demo", 0))
	works("a kubeconfig", old, "")
	works("another one", same, "")
	works("one that cannot be refused", glass, "")
	if err := s.RevokeKubeconfigs(t.Context(), "ann", "demo"); err != nil {
		t.Fatal(err)
	}
	works("a revoked kubeconfig", old, director.KindForbidden)
	works("another revoked one", same, director.KindForbidden)
	works("one that cannot be revoked", glass, "")
	works("a later one", must(s.Kubeconfig(t.Context(), "ann", "demo", 0)), "")

	entries, err := db.AuditPage(t.Context(), 0, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	for _, want := range []string{"kubeconfig", "break glass kubeconfig", "revoke kubeconfigs"} {
		if !strings.Contains(strings.Join(actions, ","), want) {
			t.Errorf("%s is not in the audit trail: %v", want, actions)
		}
	}

	server.Stop()
	if _, err := s.Kubeconfig(t.Context(), "ann", "demo", 0); director.KindOf(err) != director.KindUnavailable ||
		!strings.Contains(director.HintOf(err), "--break-glass") {
		t.Errorf("a cluster that does not answer: %v", err)
	}
	if err := s.RevokeKubeconfigs(t.Context(), "ann", "demo"); err == nil ||
		!strings.Contains(err.Error(), "are still good") {
		t.Errorf("a cluster that does not answer: %v", err)
	}
	must(s.BreakGlass(t.Context(), "ann", "demo", 0))
}

func TestUserKubeconfig(t *testing.T) {
	t.Parallel()
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := installedCluster(t, "10.0.0.1:6443", keys{authorities})
	text, err := s.UserKubeconfig(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Name    string
			Cluster struct {
				Server    string
				Authority string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			Name string
			User struct {
				Exec struct {
					Command string
					Args    []string
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil || len(config.Users) != 1 || len(config.Clusters) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	user, cluster := config.Users[0], config.Clusters[0]
	if user.Name != "director@demo" || user.User.Exec.Command != "directorctl" ||
		strings.Join(user.User.Exec.Args, " ") != "kube-token demo" {
		t.Errorf("the kubeconfig runs something else:\n%s", text)
	}
	authority, err := base64.StdEncoding.DecodeString(cluster.Cluster.Authority)
	if err != nil || cluster.Name != "demo" || cluster.Cluster.Server != "https://10.0.0.1:6443" ||
		string(authority) != authorities.CA.Cert {
		t.Errorf("the kubeconfig leads elsewhere: %v\n%s", err, text)
	}
	for _, secret := range []string{"client-key", "token:", "password"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the kubeconfig has a %s:\n%s", secret, text)
		}
	}
}
