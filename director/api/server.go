package api

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/director-kaas/kaas/director/wire"
)

func prefixed(path string) string { return wire.Prefix + path }

// The limits of a request. Streams and long polls lift writeTimeout for themselves.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 60 * time.Second
	writeTimeout  = 60 * time.Second
	// planTimeout is for patientOperations. The look ahead of a plan reads an image and a bundle to their ends. These
	// are gigabytes that may be on a slow disk.
	planTimeout = 10 * time.Minute
	idleTimeout = 2 * time.Minute
	maxHeader   = 32 << 10
)

// NewServer returns an HTTP server for the handler with the timeouts that it needs. The caller serves and shuts it
// down.
func NewServer(handler http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, TLSConfig: tlsConfig,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
