package rig

import (
	"context"
	"io"
	"net"
	"sync"
)

// Line is a network between a client and a director that can be cut. It understands nothing of what it carries.
type Line struct {
	listener net.Listener

	mu    sync.Mutex
	to    string
	deaf  bool
	conns map[net.Conn]bool
}

// NewLine returns a line to the address.
func NewLine(to string) (*Line, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	line := &Line{listener: l, to: to, conns: map[net.Conn]bool{}}
	go line.accept()
	return line, nil
}

// Addr returns the client's end.
func (l *Line) Addr() string { return l.listener.Addr().String() }

// Deafen lets requests through and no answers, from now on until Cut.
func (l *Line) Deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// Cut breaks every connection. The next one leads to the address, and carries both ways.
func (l *Line) Cut(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.deaf = to, false
	for c := range l.conns {
		_ = c.Close() // which is the purpose
	}
	clear(l.conns)
}

// Close ends the line.
func (l *Line) Close() error {
	err := l.listener.Close()
	l.Cut("")
	return err
}

func (l *Line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		to := l.to
		l.mu.Unlock()
		far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
		if err != nil {
			_ = near.Close() // as if nobody were there
			continue
		}
		l.mu.Lock()
		l.conns[near], l.conns[far] = true, true
		l.mu.Unlock()
		for _, end := range []struct {
			from, to net.Conn
			answers  bool
		}{{near, far, false}, {far, near, true}} {
			go func() {
				_, _ = io.Copy(end.to, hearing{end.from, l, end.answers}) // until either end is closed
				_ = end.to.Close()
				_ = end.from.Close()
			}()
		}
	}
}

// hearing reads what comes, and leaves out answers while the line is deaf.
type hearing struct {
	io.Reader
	line    *Line
	answers bool
}

// Read implements io.Reader.
func (h hearing) Read(b []byte) (int, error) {
	for {
		n, err := h.Reader.Read(b)
		h.line.mu.Lock()
		deaf := h.answers && h.line.deaf
		h.line.mu.Unlock()
		if !deaf || err != nil {
			return n, err
		}
	}
}
