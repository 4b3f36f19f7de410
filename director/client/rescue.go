package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Rescue asks the director on this machine, whose state directory it is, for a new one-time password for the user. Only
// root and the director's own user may.
func Rescue(ctx context.Context, stateDir, user string) (o wire.OneTimePassword, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body, err := asRoot(ctx, "client.rescue", stateDir, wire.RescuePath, wire.Rescue{User: user})
	if err != nil {
		return o, err
	}
	defer body.Close()
	return o, json.NewDecoder(body).Decode(&o)
}

// HandOver has the director on this machine work on nothing any more, once its running steps have ended, and writes a
// bundle of it for the recipients. On an error the bundle is not whole, and the director may be handed over already:
// call it again, or TakeOver. Only root and the director's own user may.
func HandOver(ctx context.Context, stateDir string, recipients []string, into io.Writer) error {
	const op = "client.hand_over"
	body, err := asRoot(ctx, op, stateDir, wire.HandOverPath, wire.HandOver{Recipients: recipients})
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(into, body); err != nil {
		return director.Errorf(director.KindUnavailable, op, "the bundle was cut off: %w", err).
			WithHint("run it again; to have this director work instead: directorctl admin take-over")
	}
	return nil
}

// TakeOver has the director on this machine take its clusters from other copies of it, and work if it was handed over.
// Only root and the director's own user may.
func TakeOver(ctx context.Context, stateDir string) error {
	body, err := asRoot(ctx, "client.take_over", stateDir, wire.TakeOverPath, struct{}{})
	if err != nil {
		return err
	}
	return body.Close()
}

// asRoot sends a request to the socket for root, and returns the body of the answer, or its error.
func asRoot(ctx context.Context, op, stateDir, path string, in any) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialIn(ctx, stateDir, wire.RescueSocket)
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://director"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, director.Errorf(
			director.KindUnavailable, op, "the director on this machine does not answer: %w", err,
		).
			WithHint("run this as root on the director's machine, while the director runs; its socket is %s",
				filepath.Join(stateDir, wire.RescueSocket))
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNoContent {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var p wire.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Kind == "" {
		return nil, director.Errorf(director.KindInternal, op, "the director answered %s", resp.Status)
	}
	return nil, &director.Error{Kind: director.Kind(p.Kind), Op: op, Msg: p.Detail, Hint: p.Hint}
}

// dialIn connects to a socket in a directory whose path may be longer than that of a socket.
func dialIn(ctx context.Context, dir, name string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}
