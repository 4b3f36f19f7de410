package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/wire"
)

// The rescue socket is the way in when no admin can log in: root on the director's machine, and the user that the
// director runs as, get a new password for an account. Two checks hold: the mode of the socket, and what the kernel
// says of the process at the other end.

// peerKey is under which a request's context has its peer.
type peerKey struct{}

// peer is the process at the other end of a Unix socket, as the kernel knows it.
type peer struct {
	uid int
	err error
}

func (p peer) trusted() bool { return p.err == nil && (p.uid == 0 || p.uid == os.Geteuid()) }

// peerIn is the process that a request is of. One that is not known is not trusted.
func peerIn(r *http.Request) peer {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p
	}
	return peer{uid: -1, err: errors.New("it is not known")}
}

// rootOf returns who asks through the socket for root, or forbidden.
func rootOf(r *http.Request) (who string, err error) {
	p := peerIn(r)
	if !p.trusted() {
		return "", director.Errorf(
			director.KindForbidden, "daemon.root", "only root and the director's own user may do this",
		)
	}
	return fmt.Sprintf("uid %d on the director's machine", p.uid), nil
}

func peerOf(c net.Conn) peer {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return peer{err: errors.New("it is no Unix socket")}
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return peer{err: err}
	}
	var cred *syscall.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return peer{err: errors.Join(cerr, err)}
	}
	return peer{uid: int(cred.Uid)}
}

// startRescue listens on the socket in the state directory, and answers as the handlers say.
func (d *Daemon) startRescue(ctx context.Context, handlers map[string]http.HandlerFunc) error {
	fail := func(err error) error {
		return director.Errorf(director.KindInternal, "daemon.rescue", "the socket for administrators: %w", err)
	}
	dir, err := os.Open(d.cfg.StateDir)
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	if err := ignoreGone(os.Remove(d.path(wire.RescueSocket))); err != nil { // of a director that was killed
		return fail(err)
	}
	// The path of a socket has room for 107 bytes; that of a state directory may be longer.
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), wire.RescueSocket)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", short)
	if err != nil {
		return fail(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // dir is closed by then
	if err := os.Chmod(d.path(wire.RescueSocket), 0o600); err != nil {
		return fail(errors.Join(err, listener.Close()))
	}
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.HandleFunc("POST "+path, handler)
	}
	server := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peerOf(c))
		},
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	d.onStop(func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return errors.Join(err, ignoreGone(os.Remove(d.path(wire.RescueSocket))))
	})
	return nil
}

// forRoot answers who may with 204 when do returns, or with its error.
func forRoot(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, err := rootOf(r)
		if err == nil {
			err = do(w, r)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// refuse answers with the error.
func refuse(w http.ResponseWriter, err error) {
	kind := director.KindOf(err)
	status := api.StatusOf(kind)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(wire.Problem{
		Status: status, Kind: string(kind), Detail: err.Error(), Hint: director.HintOf(err),
	})
}

// drain has the director begin no more work, and answers when no step runs. Who asks decides how long that may take.
func (d *Daemon) drain(w http.ResponseWriter, r *http.Request) error {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	d.log.InfoContext(r.Context(), "the director begins no more work: it is about to be upgraded")
	d.held.Store(true)
	if eng := d.engine.Load(); eng != nil {
		return eng.Drain(r.Context())
	}
	return nil
}

// rescue answers with a new one-time password for the user.
func (d *Daemon) rescue(users *identity.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		deny := func(err error) {
			d.log.WarnContext(r.Context(), "BREAK GLASS refused", "uid", peerIn(r).uid, "err", err)
			refuse(w, err)
		}
		actor, err := rootOf(r)
		if err != nil {
			deny(err)
			return
		}
		var in wire.Rescue
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil || in.User == "" || strings.ContainsAny(in.User, "\r\n") {
			deny(director.Errorf(director.KindInvalid, "daemon.rescue", "the body is not that of a rescue"))
			return
		}
		u, once, err := users.Rescue(r.Context(), actor, in.User)
		if err != nil {
			deny(err)
			return
		}
		d.log.WarnContext(r.Context(), "BREAK GLASS: a user was enabled and has a new one-time password",
			"user", u.Name, "role", string(u.Role), "uid", peerIn(r).uid)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(wire.OneTimePassword{
			User: wire.UserOf(u), Password: once.Password.Reveal(), ExpiresAt: wire.Optional(once.Expires),
		})
	}
}
