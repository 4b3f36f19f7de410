package steps

import (
	"context"
	"testing"
	"time"
)

// counted is a client that can be told from others.
type counted struct {
	API
	n int
}

// standingEnv returns an environment that keeps clients, and the ends of the certificates that were made in it.
func standingEnv(t *testing.T) (Env, *[]time.Time) {
	t.Helper()
	ends := &[]time.Time{}
	env := waitingEnv(t, func(kubeconfig []byte) (API, error) {
		*ends = append(*ends, endOf(t, kubeconfig))
		return &counted{n: len(*ends)}, nil
	})
	env.Standing = &Standing{}
	return env, ends
}

func look(t *testing.T, env Env, ctx context.Context, uid, endpoint string) int {
	t.Helper()
	api, err := env.Cluster(ctx, uid, "demo", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return api.(*counted).n
}

// Looks share a client while all that it is made of stays as it is.
func TestLooksShareAClient(t *testing.T) {
	t.Parallel()
	env, ends := standingEnv(t)
	for range 3 {
		if n := look(t, env, t.Context(), "u", "127.0.0.1:6443"); n != 1 {
			t.Fatalf("a look had client %d", n)
		}
	}
	if n := look(t, env, t.Context(), "u", "127.0.0.2:6443"); n != 2 {
		t.Error("the former address was asked")
	}
	env.Secrets.(vault)[[2]string{"u", SecretPKI}] = sealedPKI(t)
	if n := look(t, env, t.Context(), "u", "127.0.0.2:6443"); n != 3 {
		t.Error("a client of the former authorities was used")
	}
	if _, err := env.Cluster(t.Context(), "gone", "demo", "127.0.0.1:6443"); err == nil {
		t.Error("a cluster without authorities has a client")
	}
	for _, end := range *ends {
		if left := time.Until(end); left < shortLife || left > shortLife+spareLife {
			t.Errorf("a certificate of a look lives for %s", left)
		}
	}
}

// A client is not used by who needs its certificate for longer than it is good.
func TestLooksDoNotOutliveTheirCertificate(t *testing.T) {
	t.Parallel()
	env, ends := standingEnv(t)
	look(t, env, t.Context(), "u", "127.0.0.1:6443")
	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if n := look(t, env, long, "u", "127.0.0.1:6443"); n != 2 {
		t.Fatal("a look of an hour had a client of ten minutes")
	}
	if deadline, _ := long.Deadline(); (*ends)[1].Before(deadline.Add(lifeMargin)) {
		t.Error("the certificate ends before the look")
	}
	soon := env.Standing.of["u"]
	soon.until = time.Now().Add(shortLife - time.Second)
	env.Standing.of["u"] = soon
	if n := look(t, env, t.Context(), "u", "127.0.0.1:6443"); n != 3 {
		t.Error("a client was used to the end of its certificate")
	}
}

// Clients of clusters that nobody looks at are forgotten when their certificates have ended.
func TestEndedClientsAreForgotten(t *testing.T) {
	t.Parallel()
	env, _ := standingEnv(t)
	env.Standing.keep("gone", standing{until: time.Now().Add(-time.Second)})
	look(t, env, t.Context(), "u", "127.0.0.1:6443")
	if _, kept := env.Standing.of["gone"]; kept || len(env.Standing.of) != 1 {
		t.Errorf("%d clients are kept", len(env.Standing.of))
	}
}

// BenchmarkLook is what a look at a cluster costs before the cluster is asked: with a client of its own, and with one
// that is kept.
func BenchmarkLook(b *testing.B) {
	for name, standing := range map[string]*Standing{"own": nil, "kept": {}} {
		b.Run(name, func(b *testing.B) {
			env := waitingEnv(b, func([]byte) (API, error) { return &counted{}, nil })
			env.Standing = standing
			for b.Loop() {
				if _, err := env.Cluster(b.Context(), "u", "demo", "127.0.0.1:6443"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
