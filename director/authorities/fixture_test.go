package authorities

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/seal"
)

// world is the database and the vault of a director, as far as this package reads and writes them.
type world struct {
	mu       sync.Mutex
	docs     map[string]model.CertificateAuthority
	accounts map[string]director.Secret
	secrets  map[string][]byte
}

func (w *world) Documents(context.Context, model.Kind) (out []model.Stored, err error) {
	for name := range w.docs {
		d, err := w.Document(context.Background(), model.Ref{Name: name})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (w *world) Document(_ context.Context, ref model.Ref) (model.Stored, error) {
	a, ok := w.docs[ref.Name]
	if !ok {
		return model.Stored{}, director.Errorf(director.KindNotFound, "test", "there is no %s", ref)
	}
	return model.Stored{UID: "uid-" + ref.Name, Document: model.Document{
		Kind: model.KindCertificateAuthority, Metadata: model.Metadata{Name: ref.Name}, CertificateAuthority: &a,
	}}, nil
}

func (w *world) Secret(_ context.Context, owner, name string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secrets[owner+"/"+name], nil
}

func (w *world) SetSecret(_ context.Context, owner, name string, sealed []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[owner+"/"+name] = sealed
	return nil
}

func (w *world) OpenAuthority(
	_ context.Context, _ string, a model.CertificateAuthority,
) (director.Credentials, error) {
	password, ok := w.accounts[a.Account()]
	if !ok {
		return director.Credentials{}, director.Errorf(
			director.KindNotFound, "test", "there are no credentials %q", a.Account(),
		).WithHint("set them")
	}
	return director.Credentials{Name: a.Account(), Password: password}, nil
}

func (w *world) PeekAuthority(
	ctx context.Context, name string, a model.CertificateAuthority,
) (director.Credentials, error) {
	return w.OpenAuthority(ctx, name, a)
}

// newService returns a service with the documents; the passwords are those of credentials, by name.
func newService(
	t *testing.T, docs map[string]model.CertificateAuthority, accounts map[string]director.Secret,
) (*Service, *world) {
	t.Helper()
	box, err := seal.Open(t.TempDir()+"/sealing.key", true)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range docs {
		if a.Life == 0 {
			a.Life = model.Duration(10 * 365 * 24 * time.Hour)
		}
		if a.LeastLife == 0 {
			a.LeastLife = model.Duration(2 * 365 * 24 * time.Hour)
		}
		docs[name] = a
	}
	w := &world{docs: docs, accounts: accounts, secrets: map[string][]byte{}}
	return New(Config{
		Store: w, Accounts: w, Sealer: box, Now: time.Now, Patience: 10 * time.Second,
		Networks: confine.Networks{netip.MustParsePrefix("127.0.0.1/32")},
	}), w
}
