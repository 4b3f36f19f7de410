package registry

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Reader says whether the user may read. It is asked with an empty user for a request that shows no credentials. from
// is the IP address that the request comes from.
type Reader func(ctx context.Context, user string, password director.Secret, from string) bool

// LivePath answers anyone, so that a node can prove that it reaches the registry.
const LivePath = "/livez"

// The limits of the listener. A connection that moves no byte for stall is cut off; how long a whole transfer takes is
// not limited, because a layer takes long on a slow node.
const (
	maxConnections = 1024
	maxPerAddress  = 128
	stall          = 2 * time.Minute
)

// guard lets those read whom the reader admits, and people do what they may; all the rest needs the director's
// credentials. The version check always asks for some, because that is where clients learn that they have to show them.
func (r *Registry) guard(next http.Handler) http.Handler {
	user := sha256.Sum256([]byte(r.cfg.User))
	password := sha256.Sum256([]byte(r.cfg.Password.Reveal()))
	writer := func(u, p string) bool {
		gotUser, gotPassword := sha256.Sum256([]byte(u)), sha256.Sum256([]byte(p))
		// Both are always compared, so that the time tells nothing.
		return subtle.ConstantTimeCompare(
			gotUser[:], user[:],
		)&subtle.ConstantTimeCompare(gotPassword[:], password[:]) == 1
	}
	known := func(req *http.Request) (caller, bool) {
		u, p, shown := req.BasicAuth()
		if shown && writer(u, p) {
			return caller{director: true}, true
		}
		if !reads(req) || r.cfg.Reader == nil {
			return caller{}, false
		}
		from := addressOf(req)
		if !shown || u == "" && p == "" { // some clients answer the version check with nothing
			return caller{}, req.URL.Path != "/v2/" && r.cfg.Reader(req.Context(), "", "", from)
		}
		return caller{reader: u}, u != "" && r.cfg.Reader(req.Context(), u, director.Secret(p), from)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		control := http.NewResponseController(w)
		req.Body = r.pace.Body(req.Body, control)
		w = &pacedWriter{ResponseWriter: w, control: control}
		if req.URL.Path == LivePath {
			_, _ = w.Write([]byte("ok\n"))
			return
		}
		req = req.WithContext(director.WithOrigin(req.Context(), director.Origin{Address: addressOf(req)}))
		who, ok := known(req)
		if name, password, shown := req.BasicAuth(); !ok && shown && name != "" && r.cfg.People != nil {
			if who.person, ok = r.enter(w, req, name, password); !ok {
				return
			}
			ok = who.person != nil
		}
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="director registry", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED",
				"the credentials of a cluster or of the director, or a user's name with an API token, are needed")
			return
		}
		r.requests.RLock()
		defer r.requests.RUnlock()
		r.admit(next, who, w, req)
	})
}

// addressOf returns the IP address that a request comes from.
func addressOf(req *http.Request) string {
	from, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return from
}

// pacedWriter gives every write a time of its own.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(stall)) // a connection without deadlines has no way to set one
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limited is a listener that holds a bounded number of connections, and of one address fewer: what comes beyond that is
// closed at once.
type limited struct {
	net.Listener
	total, each int

	mu   sync.Mutex
	open int
	from map[string]int
}

func limit(ln net.Listener, total, each int) *limited {
	return &limited{Listener: ln, total: total, each: each, from: map[string]int{}}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err != nil {
			host = c.RemoteAddr().String()
		}
		l.mu.Lock()
		room := l.open < l.total && l.from[host] < l.each
		if room {
			l.open++
			l.from[host]++
		}
		l.mu.Unlock()
		if room {
			return &limitedConn{Conn: c, done: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limited) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

type limitedConn struct {
	net.Conn
	done func()
}

func (c *limitedConn) Close() error {
	c.done()
	return c.Conn.Close()
}
