package steps

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
)

// refusing is an API that does not accept the first certificates it is shown.
type refusing struct {
	API
	err error
}

func (r refusing) RollingOut(context.Context) ([]kube.Absence, error) { return nil, r.err }

func (refusing) Close() {}

// plain is a sealer that hides nothing.
type plain struct{}

func (plain) Seal(_, _ string, b []byte) ([]byte, error)   { return b, nil }
func (plain) Unseal(_, _ string, b []byte) ([]byte, error) { return b, nil }

// endOf returns when the client certificate of the kubeconfig ends.
func endOf(t *testing.T, kubeconfig []byte) time.Time {
	t.Helper()
	var c struct {
		Users []struct {
			User map[string]string `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal(kubeconfig, &c); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(c.Users[0].User["client-certificate-data"])
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert.NotAfter
}

// sealedPKI returns new authorities of the cluster with the uid u.
func sealedPKI(t testing.TB) []byte {
	t.Helper()
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := authorities.Seal(plain{}, "u", SecretPKI)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func waitingEnv(t testing.TB, connect func(kubeconfig []byte) (API, error)) Env {
	t.Helper()
	keys := Keys{Secrets: vault{{"u", SecretPKI}: sealedPKI(t)}, Sealer: plain{}}
	return Env{Clusters: Clusters{Connect: connect, Keys: keys}}
}

func quietRun() plan.Run { return plan.Run{Note: func(context.Context, string) {}} }

// However long a step may wait, its certificate is good for longer.
func TestWaitsDoNotOutliveTheirCertificate(t *testing.T) {
	t.Parallel()
	var end time.Time
	env := waitingEnv(t, func(kubeconfig []byte) (API, error) {
		end = endOf(t, kubeconfig)
		return refusing{}, nil
	})
	for _, long := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 17*time.Hour + 10*time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		deadline, _ := ctx.Deadline()
		err := env.kube().await(ctx, quietRun(), "u", "demo", "127.0.0.1:6443", func(
			context.Context, API,
		) (string, error) {
			return "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if end.Before(deadline.Add(lifeMargin - 2*time.Second)) {
			t.Errorf(
				"a step of %s waits with a certificate that ends %s before its deadline and the margin", long,
				deadline.Add(lifeMargin).Sub(end),
			)
		}
	}
}

// A certificate that is refused in the middle of a wait is replaced once in a row; one that is refused at once again
// ends the wait.
func TestWaitConnectsAgainWhenRefused(t *testing.T) {
	t.Parallel()
	expired := director.Errorf(director.KindUnauthenticated, "kube", "the certificate has expired")
	for name, tt := range map[string]struct {
		apis []error // what the API behind each connection says
		want director.Kind
	}{
		"once":     {[]error{expired, nil}, ""},
		"for good": {[]error{expired, expired}, director.KindUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connected := 0
			env := waitingEnv(t, func([]byte) (API, error) {
				connected++
				return refusing{err: tt.apis[connected-1]}, nil
			})
			err := env.kube().await(t.Context(), quietRun(), "u", "demo", "127.0.0.1:6443", func(
				ctx context.Context, a API,
			) (string, error) {
				_, err := a.RollingOut(ctx)
				return "", err
			})
			if (err == nil) != (tt.want == "") || err != nil && director.KindOf(err) != tt.want ||
				connected != len(tt.apis) {
				t.Errorf("got %v after %d connections", err, connected)
			}
		})
	}
}

// No wait outlives a credential that it holds: handlers connect in await alone, which connects again, and every client
// certificate that the director signs for itself lives as long as its caller has time. Those that are named here are
// for people, or are used at once.
func TestEveryCredentialFollowsItsDeadline(t *testing.T) {
	t.Parallel()
	others := map[string]string{
		"../access/kubeconfig.go":      "a person's kubeconfig, with the time that they ask for",
		"../nodes/certificates.go":     "a look at etcd's certificates, within one request",
		"../certificates/inventory.go": "a look at etcd, for twenty seconds",
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(filepath.Dir(path), "test") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				inSteps := filepath.Dir(path) == "../steps"
				switch {
				case sel.Sel.Name == "ClientCert" && others[path] == "":
					life, ok := call.Args[len(call.Args)-1].(*ast.CallExpr)
					name, named := (*ast.Ident)(nil), false
					if ok {
						name, named = life.Fun.(*ast.Ident)
					}
					if !named || name.Name != "credentialLife" {
						t.Errorf(
							"%s: %s signs a certificate whose life does not follow its caller's deadline", path,
							fn.Name.Name,
						)
					}
				case inSteps && (sel.Sel.Name == "Cluster" && len(call.Args) == 4 ||
					sel.Sel.Name == "connect" && len(call.Args) == 5) && fn.Name.Name != "await" &&
					fn.Name.Name != "Cluster":
					t.Errorf("%s: %s holds a connection to a cluster outside of await", path, fn.Name.Name)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
