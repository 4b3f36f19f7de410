package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// What a source shows replaces what it showed before, and what does not answer keeps what was seen last.
func TestCertificates(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) { testCertificates(t, open()) })
}

func testCertificates(t *testing.T, s *Store) {
	ctx, at := t.Context(), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	sight := func(uid, node string, from director.CertificateSource, names ...string) director.CertificateSight {
		out := director.CertificateSight{ClusterUID: uid, Cluster: "c" + uid, Node: node, Source: from, At: at}
		for i, n := range names {
			out.Certificates = append(out.Certificates, director.Certificate{
				Name: n, Place: "/pki/" + n, CA: n == "ca", Ends: at.AddDate(0, 0, i+1), Fingerprint: n,
			})
		}
		return out
	}
	put := func(sights ...director.CertificateSight) {
		t.Helper()
		if err := s.PutCertificates(ctx, sights); err != nil {
			t.Fatal(err)
		}
	}
	names := func(f director.CertificateQuery) (out []string) {
		t.Helper()
		for p := (director.Page{Limit: 1}); ; {
			list, next, err := s.Certificates(ctx, f, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				name := c.Node + " " + c.Name
				if c.Stale() {
					name += " stale: " + c.Problem
				}
				out = append(out, name)
			}
			if p.After = next; next == nil {
				return out
			}
		}
	}
	put(sight("1", "m1", director.CertificateFile, "ca", "apiserver", "kubelet-client"),
		sight("1", "m2", director.CertificateFile, "apiserver"),
		sight("2", "m1", director.CertificateTLS, "etcd-server"),
		sight("", "", director.CertificateDatabase, "director"))
	put(sight("1", "m1", director.CertificateFile, "ca", "apiserver"))
	silent := sight("1", "m2", director.CertificateFile)
	silent.At, silent.Problem = at.Add(time.Hour), "off"
	put(silent)
	for _, c := range []struct {
		query director.CertificateQuery
		want  []string
	}{
		{director.CertificateQuery{Cluster: "c1", EndsBefore: at.AddDate(0, 0, 3), Name: "apiserver"}, []string{
			"m2 apiserver stale: off", "m1 apiserver",
		}},
		{director.CertificateQuery{Node: "m1", Cluster: "c1"}, []string{"m1 ca", "m1 apiserver"}},
		{director.CertificateQuery{EndsBefore: at}, nil},
		{director.CertificateQuery{Director: true}, []string{" director"}},
		{director.CertificateQuery{Visible: &director.Visible{}}, nil},
	} {
		if diff := cmp.Diff(c.want, names(c.query)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.query, diff)
		}
	}
	ends, err := s.CertificateEnds(ctx, "1")
	want := map[string]time.Time{"m1": at.AddDate(0, 0, 2), "m2": at.AddDate(0, 0, 1)}
	if diff := cmp.Diff(want, ends); diff != "" || err != nil {
		t.Errorf("ends: %v (-want +got):\n%s", err, diff)
	}
	if err := s.KeepCertificates(ctx, map[string][]string{"1": {"m1"}}); err != nil {
		t.Fatal(err)
	}
	if got := names(director.CertificateQuery{}); len(got) != 3 {
		t.Errorf("kept: %q", got)
	}
}
