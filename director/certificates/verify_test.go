package certificates

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

// TestFindingsSayWhatToDo wants the command that renews a certificate, or replaces an authority, before and after its
// end.
func TestFindingsSayWhatToDo(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		certificate director.Certificate
		soon, ended string
	}{
		"a leaf": {
			director.Certificate{Cluster: "demo", Name: "apiserver"},
			"certs rotate demo",
			"certs rotate demo --cold",
		},
		"the cluster's authority": {
			director.Certificate{Cluster: "demo", Name: "ca", CA: true},
			"directorctl rotate cluster-ca demo", "directorctl certs rotate demo --cold",
		},
		"etcd's authority": {
			director.Certificate{Cluster: "demo", Name: "etcd-ca", CA: true},
			"directorctl rotate etcd-ca demo", "directorctl certs rotate demo --cold",
		},
		"an authority of someone else": {
			director.Certificate{Cluster: "demo", Name: "webhook", CA: true},
			"before its end", "before its end",
		},
		"a secret": {
			director.Certificate{Cluster: "demo", Name: "apiserver", Source: director.CertificateAPI},
			"before its end", "before its end",
		},
		"the director's": {director.Certificate{Name: "director", CA: true}, "before its end", "before its end"},
	} {
		for _, at := range []struct {
			ends time.Time
			want string
		}{{now.Add(time.Hour), tt.soon}, {now.Add(-time.Hour), tt.ended}} {
			c := tt.certificate
			c.Begins, c.Ends, c.Seen = now.AddDate(-1, 0, 0), at.ends, now
			found := findings([]director.Certificate{c}, now)
			if len(found) != 1 || !strings.HasSuffix(found[0].Next, at.want) {
				t.Errorf("%s that ends at %s: %+v", name, at.ends, found)
			}
		}
	}
}

// A certificate by ACME is renewed before it is in the last quarter of its life, however short that is.
func TestFindingsAboutACME(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		life, left time.Duration
		problem    string
		want       []string
	}{
		{24 * time.Hour, 7 * time.Hour, "", nil},
		{24 * time.Hour, 7 * time.Hour, "the ACME server does not answer", []string{"the ACME server does not answer"}},
		{24 * time.Hour, 5 * time.Hour, "", []string{"ends on 2030-01-02T08:04:05Z"}},
		{90 * 24 * time.Hour, 25 * 24 * time.Hour, "", nil},
		{24 * time.Hour, -time.Hour, "", []string{"ended on 2030-01-02T02:04:05Z"}},
	} {
		c := director.Certificate{
			Name: director.CertificateACME, Begins: now.Add(tt.left - tt.life), Ends: now.Add(tt.left), Seen: now,
			Problem: tt.problem,
		}
		var got []string
		for _, f := range findings([]director.Certificate{c}, now) {
			got = append(got, f.What)
			if !strings.Contains(f.Next, "the director's log") {
				t.Errorf("%s: next: %s", f.What, f.Next)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("of %s with %s left: %q, want %q", tt.life, tt.left, got, tt.want)
		}
	}
}
