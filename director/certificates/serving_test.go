package certificates_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/kube"
)

// world is clusters whose API servers listen on loopback addresses.
type world struct {
	mu    sync.Mutex
	asked map[string][]kube.Known // by uid and endpoint
	err   error
}

func (w *world) connect(_ context.Context, uid, _, endpoint string) (certificates.Cluster, error) {
	if uid == "unmade" {
		return nil, director.Errorf(director.KindNotFound, "test", "no authorities")
	}
	return api{w, uid + " " + endpoint}, nil
}

type api struct {
	w  *world
	at string
}

func (a api) ApproveServing(_ context.Context, nodes []kube.Known) ([]string, []kube.Refused, error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.asked[a.at] = nodes
	return []string{
		nodes[0].Name,
	}, []kube.Refused{{Request: "csr-1", Asked: "system:node:x", Why: "it names the host y"}}, a.w.err
}

func (api) Close() {}

func TestPassOfSomeClusters(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.64.3:6443")
	if err != nil {
		t.Skipf("the port of API servers is taken here: %v", err)
	}
	defer func() { _ = ln.Close() }()
	w := &world{asked: map[string][]kube.Known{}}
	a := &certificates.Approver{
		Machines: func(context.Context) (list []director.Machine, _ error) {
			for _, uid := range []string{"u1", "u2"} {
				list = append(list, director.Machine{
					ClusterUID: uid, Cluster: "c-" + uid, Name: "m1", Address: "127.0.64.3", Role: director.RoleMaster,
				})
			}
			return list, nil
		},
		Connect: w.connect, Log: slog.New(slog.DiscardHandler),
	}
	if err := a.PassOf(t.Context(), []string{"c-u2", "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, ok := w.asked["u2 127.0.64.3:6443"]; !ok || len(w.asked) != 1 {
		t.Errorf("asked %v, want the second cluster alone", w.asked)
	}
}

func TestPass(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.64.2:6443")
	if err != nil {
		t.Skipf("the port of API servers is taken here: %v", err)
	}
	defer func() { _ = ln.Close() }()
	w := &world{asked: map[string][]kube.Known{}}
	var log bytes.Buffer
	machine := func(uid, name, address string, role director.Role) director.Machine {
		return director.Machine{ClusterUID: uid, Cluster: "c-" + uid, Name: name, Address: address, Role: role}
	}
	worker := machine("u1", "w1", "10.0.0.4", director.RoleWorker)
	worker.NICs = []director.NIC{{Address: "192.0.2.4"}, {Address: ""}}
	gone := machine("u1", "w2", "10.0.0.5", director.RoleWorker)
	gone.Deleted = time.Unix(1, 0)
	a := &certificates.Approver{
		Machines: func(context.Context) ([]director.Machine, error) {
			return []director.Machine{
				machine("u1", "m1", "127.0.64.1", director.RoleMaster), // off
				machine("u1", "m2", "127.0.64.2", director.RoleMaster), worker, gone,
				machine("unmade", "m1", "127.0.64.2", director.RoleMaster),
				machine("u3", "w1", "127.0.64.2", director.RoleWorker), // a cluster whose masters are gone
			}, nil
		},
		Connect: w.connect, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	for range 2 {
		if err := a.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ip := netip.MustParseAddr
	want := map[string][]kube.Known{"u1 127.0.64.2:6443": {
		{Name: "m1", Addresses: []netip.Addr{ip("127.0.64.1")}},
		{Name: "m2", Addresses: []netip.Addr{ip("127.0.64.2")}},
		{Name: "w1", Addresses: []netip.Addr{ip("10.0.0.4"), ip("192.0.2.4")}},
	}}
	if diff := cmp.Diff(want, w.asked, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if n := strings.Count(
		log.String(), "level=WARN",
	); n != 1 || !strings.Contains(log.String(), `why="it names the host y"`) {
		t.Errorf("a refused request was told of %d times, want once:\n%s", n, log.String())
	}
}
