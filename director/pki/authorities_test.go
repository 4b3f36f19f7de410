package pki

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// verifies reports whether the certificate is accepted by who trusts the bundle.
func verifies(t *testing.T, bundle, cert string) bool {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	c, err := ParseCert(cert)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func TestAuthoritiesChange(t *testing.T) {
	t.Parallel()
	for _, which := range AuthorityNames() {
		t.Run(string(which), func(t *testing.T) {
			t.Parallel()
			p, err := NewCluster("demo")
			if err != nil {
				t.Fatal(err)
			}
			a := p.Authority(which)
			leaf := func() string {
				t.Helper()
				changed := p.With(Authorities{which: a})
				l, err := ClientCert(*changed.pair(which), "x", nil, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				return l.Cert
			}
			first := leaf()
			for _, stage := range []struct {
				name     string
				do       func() bool
				want     string
				accepted bool // what the first one has signed
				signs    bool // the second one
			}{
				{"add", func() bool { return a.Add("key2", fresh) == nil }, "key1 key2 |", true, false},
				{"use", func() bool { return a.Use("key2") }, "key2 key1 |", true, true},
				{"drop", func() bool { a.Drop(); return true }, "key2 | key1", false, true},
				{"use what is not there", func() bool { return !a.Use("key1") }, "key2 | key1", false, true},
			} {
				var once Authority
				for again := range 2 { // each stage may be cut off and run again
					ok := stage.do()
					if got := strings.Join(append(append(a.Names(), "|"), a.Former...), " "); !ok || got != stage.want {
						t.Errorf("%s: %s, want %s", stage.name, got, stage.want)
					}
					if again == 1 && !cmp.Equal(once, a) {
						t.Errorf("%s: a second run gave other authorities", stage.name)
					}
					once = a
				}
				bundle, fresh := p.With(Authorities{which: a}), leaf()
				if verifies(t, bundle.pair(which).Cert, first) != stage.accepted ||
					!verifies(t, bundle.pair(which).Cert, fresh) {
					t.Errorf("%s: who trusts the bundle does not accept what it should", stage.name)
				}
				if verifies(t, p.pair(which).Cert, fresh) == stage.signs {
					t.Errorf("%s: the wrong authority signs", stage.name)
				}
			}
		})
	}
}

func TestAuthoritiesAreSealed(t *testing.T) {
	t.Parallel()
	p, err := NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	a := p.Authority(AuthorityEtcd)
	if err := a.Add("key2", fresh); err != nil {
		t.Fatal(err)
	}
	all := Authorities{AuthorityEtcd: a}
	sealed, err := all.Seal(xorSealer{}, "u1", "authorities")
	if err != nil || strings.Contains(string(sealed), "key2") {
		t.Fatalf("sealed: %v", err)
	}
	again, err := UnsealAuthorities(xorSealer{}, "u1", "authorities", sealed)
	if err != nil || !cmp.Equal(again, all) {
		t.Errorf("unsealed %v, %v", again[AuthorityEtcd].Names(), err)
	}
	for _, text := range []string{`{"etcd":{}}`, `{"other":{"cas":[{}]}}`, `[]`} {
		sealed, err := (xorSealer{}).Seal("u1", "authorities", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := UnsealAuthorities(xorSealer{}, "u1", "authorities", sealed); err == nil {
			t.Errorf("%s was read as authorities", text)
		}
	}
}

// fresh makes an authority that is told from others.
func fresh() (Pair, error) { return NewCA("demo etcd key2") }
