package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	const op = "client.rescue"
	body, err := json.Marshal(wire.Rescue{User: user})
	if err != nil {
		return o, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialIn(ctx, stateDir, wire.RescueSocket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(
		ctx, http.MethodPost, "http://director"+wire.RescuePath, bytes.NewReader(body),
	)
	if err != nil {
		return o, err
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return o, director.Errorf(
			director.KindUnavailable, op, "the director on this machine does not answer: %w", err,
		).
			WithHint("run this as root on the director's machine, while the director runs; its socket is %s",
				filepath.Join(stateDir, wire.RescueSocket))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var p wire.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Kind == "" {
			return o, director.Errorf(director.KindInternal, op, "the director answered %s", resp.Status)
		}
		return o, &director.Error{Kind: director.Kind(p.Kind), Op: op, Msg: p.Detail, Hint: p.Hint}
	}
	return o, json.NewDecoder(resp.Body).Decode(&o)
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
