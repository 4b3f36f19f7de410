package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// requestNote collects what the access log says of a request.
type requestNote struct {
	id      string
	user    string
	address string
	token   director.Secret // never logged
	action  string          // the operation, for the audit trail
	object  string
	asked   asked
}

type noteKey struct{}

func note(ctx context.Context) *requestNote {
	if n, ok := ctx.Value(noteKey{}).(*requestNote); ok {
		return n
	}
	return &requestNote{}
}

func requestID(ctx context.Context) string { return note(ctx).id }

// RequestIDHeader carries the id of a request, in the answer always and in the question if a caller has one of its own.
const RequestIDHeader = "X-Request-Id"

// accessLog gives the request its id and writes one line when it is over. The query is left out: it can hold what
// people typed.
func (s *server) accessLog(g *gin.Context) {
	id := g.GetHeader(RequestIDHeader)
	if !plainID(id) {
		b := make([]byte, 8)
		_, _ = rand.Read(b) // never fails
		id = hex.EncodeToString(b)
	}
	n := &requestNote{id: id, address: clientAddress(g.Request, s.Proxies)}
	ctx := director.WithOrigin(g.Request.Context(), director.Origin{Address: n.address, Request: id})
	g.Request = g.Request.WithContext(context.WithValue(ctx, noteKey{}, n))
	g.Header(RequestIDHeader, id)
	g.Header("X-Content-Type-Options", "nosniff")
	g.Header("Cache-Control", "no-store")
	start := time.Now()
	defer func() {
		if s.Observer != nil {
			s.Observer.Request(g.Request.Method, routeOf(g.FullPath()), g.Writer.Status(), time.Since(start))
		}
		s.Log.LogAttrs(context.WithoutCancel(g.Request.Context()), levelOf(g.FullPath()), "request",
			slog.String(
				"request_id", id,
			), slog.String("method", g.Request.Method), slog.String("path", g.Request.URL.Path),
			slog.Int("status", g.Writer.Status()), slog.Int("bytes", g.Writer.Size()),
			slog.Duration("took", time.Since(start)),
			slog.String("user", n.user), slog.String("address", n.address))
	}()
	g.Next()
}

// levelOf keeps probes out of the log at its usual level.
func levelOf(route string) slog.Level {
	switch strings.TrimPrefix(route, wire.Prefix) {
	case "/healthz", "/readyz", "/metrics":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// routeOf keeps the paths that people make up out of the metrics.
func routeOf(pattern string) string {
	if pattern == "" {
		return "none"
	}
	return pattern
}

// plainID reports whether a caller's request id may stand in a log line.
func plainID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range id {
		ok := c == '-' || c == '_' || ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z')
		if !ok {
			return false
		}
	}
	return true
}

// clientAddress returns who asks: the address of the connection, or, behind proxies that are trusted, the last address
// of X-Forwarded-For that is not one of theirs. The client wrote what comes before it.
func clientAddress(r *http.Request, proxies []netip.Prefix) string {
	client, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr
	}
	trusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(said) - 1; i >= 0 && trusted(client); i-- {
		next, ok := parseAddress(strings.TrimSpace(said[i]))
		if !ok {
			break
		}
		client = next
	}
	return client.String()
}

// parseAddress reads an address with or without a port.
func parseAddress(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap(), err == nil
}
