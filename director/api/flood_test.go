package api_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// BenchmarkLoginFlood sends 1,000 logins in 10 s from 100 addresses, with the hashes of a real director and a database
// on the disk, and measures the requests of another user before and meanwhile. The bar: p99 grows by 100 ms at most.
func BenchmarkLoginFlood(b *testing.B) {
	const observer = "198.51.100.1"
	db, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	svc, err := auth.New(db, auth.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := svc.EnsureAdmin(b.Context(), password); err != nil {
		b.Fatal(err)
	}
	admin, err := db.GetUser(b.Context(), "admin")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		u := admin
		u.Name, u.Role = fmt.Sprintf("u%d", i), director.RoleUser
		if err := db.AddUser(b.Context(), u, "test"); err != nil {
			b.Fatal(err)
		}
	}
	token, _, err := svc.Login(b.Context(), auth.Login{User: "admin", Password: password, Address: ""})
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(api.New(api.Config{
		Ports: apitest.New().Ports(), Auth: svc, Log: slog.New(slog.DiscardHandler),
		Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}))
	srv.StartTLS()
	b.Cleanup(srv.Close)
	clients := map[string]*http.Client{observer: alone(b, srv)}
	for i := range 100 {
		clients[fmt.Sprintf("192.0.2.%d", i)] = alone(b, srv)
	}
	send := func(method, path, body, address string) int {
		req, _ := http.NewRequestWithContext(b.Context(), method, srv.URL+wire.Prefix+path, strings.NewReader(body))
		req.Header.Set("X-Forwarded-For", address)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
		resp, err := clients[address].Do(req)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body) // or the connection cannot be used again
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	others := func(ctx context.Context) time.Duration {
		var took []time.Duration
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			start := time.Now()
			if status := send(http.MethodGet, "/clusters", "", observer); status != http.StatusOK {
				b.Errorf("another request got %d", status)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	for b.Loop() {
		quiet, done := context.WithTimeout(b.Context(), 5*time.Second)
		before := others(quiet)
		done()
		flood, end := context.WithTimeout(b.Context(), 10*time.Second)
		var all sync.WaitGroup
		var in, refused atomic.Int64
		all.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range 1000 {
				<-tick.C
				all.Go(func() {
					who := fmt.Sprintf(`{"user":"u%d","password":"%s"}`, i%100, password)
					if send(http.MethodPost, "/login", who, fmt.Sprintf("192.0.2.%d", i%100)) == http.StatusOK {
						in.Add(1)
					} else {
						refused.Add(1)
					}
				})
			}
		})
		meanwhile := others(flood)
		end()
		all.Wait()
		b.ReportMetric(before.Seconds()*1000, "p99-before-ms")
		b.ReportMetric(meanwhile.Seconds()*1000, "p99-flood-ms")
		b.ReportMetric(float64(in.Load()), "logins")
		b.ReportMetric(float64(refused.Load()), "refused")
	}
}

// alone returns a client with connections of its own, of HTTP/1.1. Both ends of their handshakes are measured.
func alone(b *testing.B, srv *httptest.Server) *http.Client {
	b.Helper()
	own := srv.Client().Transport.(*http.Transport).Clone()
	b.Cleanup(own.CloseIdleConnections)
	return &http.Client{Transport: own}
}
