package nodes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What ends within 30 days is a problem, unless nobody relies on it.
func TestEndingCertificates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(name string, d time.Duration) Certificate {
		return Certificate{Name: name, Ends: now.Add(d)}
	}
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		certs []Certificate
		want  string
		ended bool
	}{
		"none": {},
		"far":  {certs: []Certificate{in(certAPI, 31*day)}},
		"soon": {
			certs: []Certificate{in(certEtcd, 12*day), in(certAPI, 90*day)},
			want:  "its etcd certificate ends on 2026-03-13, in 12 days",
		},
		"within a day": {
			certs: []Certificate{in(certAPI, time.Hour)},
			want:  "its apiserver certificate ends on 2026-03-01, in less than a day",
		},
		"ended": {
			certs: []Certificate{in(certAPI, -day), in(certKubeletClient, day)}, ended: true,
			want: "its apiserver certificate ended on 2026-02-28; its kubelet-client certificate ends on " +
				"2026-03-02, in 1 day",
		},
		"unchecked": {certs: []Certificate{{Name: certKubelet, Ends: now.Add(-day), Unchecked: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ended := endingCertificates(tt.certs, now); got != tt.want || ended != tt.ended {
				t.Errorf("got %q, %t", got, ended)
			}
		})
	}
}

// What does not answer keeps what was seen last, and a look counts for a while.
func TestCertificatesAreRemembered(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := newCertificates()
	look := func(name string, ends time.Time, err error) certLook {
		return certLook{certKey{"m1", name}, func(context.Context) (Certificate, error) {
			return Certificate{Name: name, Ends: ends}, err
		}}
	}
	year := now.AddDate(1, 0, 0)
	c.look(t.Context(), []certLook{look(certAPI, year, nil), look(certKubeletClient, year.AddDate(0, 1, 0), nil)}, now)
	later := now.Add(time.Hour)
	c.look(
		t.Context(),
		[]certLook{look(certAPI, time.Time{}, errors.New("it is off")), look(certEtcd, year.AddDate(0, -1, 0), nil)},
		later,
	)
	want := []Certificate{
		{Name: certEtcd, Ends: year.AddDate(0, -1, 0), Seen: later},
		{Name: certAPI, Ends: year, Seen: now},
		{Name: certKubeletClient, Ends: year.AddDate(0, 1, 0), Seen: now},
	}
	got := c.of("m1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	server, soon := certKey{"m1", certAPI}, later.Add(time.Minute)
	var never time.Time
	if c.due(server, soon, never) || !c.due(server, later.Add(certSilent), never) ||
		!c.due(certKey{"m2", certAPI}, soon, never) {
		t.Error("what did not answer is asked again at the wrong time")
	}
	etcd := certKey{"m1", certEtcd}
	if !c.due(server, soon, later.Add(time.Second)) || !c.due(etcd, soon, later.Add(time.Second)) ||
		c.due(server, soon, later) || c.due(etcd, soon, now) {
		t.Error("what was seen before a plan ended counts, or what was seen after it does not")
	}
	if len(c.of("m2")) != 0 {
		t.Error("another machine has them too")
	}
	if fresh(got[1], later) || !fresh(got[0], later) || !fresh(got[2], later) || fresh(got[2], year) {
		t.Error("a look counts for the wrong time")
	}
}
