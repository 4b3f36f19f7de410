package registry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
)

// distribution logs through logrus' one global logger and offers no other way. Its entries go to the logger of the
// registry that was started last of those that serve; a process has one, except in tests.
var bridged struct {
	sync.RWMutex

	once sync.Once
	logs []*slog.Logger
}

// takeLogs makes distribution log through here alone.
func takeLogs() {
	bridged.once.Do(func() {
		l := logrus.StandardLogger()
		l.SetOutput(io.Discard)
		l.SetLevel(logrus.WarnLevel)
		l.AddHook(bridge{})
	})
}

// bridgeLogs sends what distribution logs, from warnings up, to log until unbridgeLogs.
func bridgeLogs(log *slog.Logger) {
	bridged.Lock()
	defer bridged.Unlock()
	bridged.logs = append(bridged.logs, log)
}

// unbridgeLogs returns when nothing is written to log any more.
func unbridgeLogs(log *slog.Logger) {
	bridged.Lock()
	defer bridged.Unlock()
	if i := slices.Index(bridged.logs, log); i >= 0 {
		bridged.logs = slices.Delete(bridged.logs, i, i+1)
	}
}

type bridge struct{}

// Levels is part of logrus.Hook.
func (bridge) Levels() []logrus.Level { return logrus.AllLevels }

// Fire is part of logrus.Hook.
func (bridge) Fire(e *logrus.Entry) error {
	bridged.RLock()
	defer bridged.RUnlock()
	if len(bridged.logs) == 0 {
		return nil
	}
	log := bridged.logs[len(bridged.logs)-1]
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	level := slog.LevelWarn
	if e.Level <= logrus.ErrorLevel {
		level = slog.LevelError
	}
	// Answers below 500 are the client's business: every push asks for layers that are not there yet. So are clients
	// that go away in the middle.
	status, answered := e.Data["http.response.status"].(int)
	if answered && status < http.StatusInternalServerError || strings.HasPrefix(e.Message, "client disconnected") {
		level = slog.LevelDebug
	}
	if !log.Enabled(ctx, level) {
		return nil
	}
	attrs := []slog.Attr{slog.String("message", e.Message)}
	for _, key := range []string{
		"http.request.method", "http.request.uri", "http.request.remoteaddr", "http.response.status", "err.code",
		"err.detail", "error",
	} {
		if v, ok := e.Data[key]; ok {
			switch t := v.(type) {
			case error:
				v = t.Error()
			case string:
				v, _, _ = strings.Cut(t, "?_state=") // an upload's state is signed and long
			}
			attrs = append(attrs, slog.Any(key, v))
		}
	}
	log.LogAttrs(ctx, level, "registry", attrs...)
	return nil
}

// debugWriter is where the HTTP server writes what goes wrong on a connection, such as a client that does not trust the
// certificate.
type debugWriter struct{ log *slog.Logger }

// Write is part of io.Writer.
func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug("registry connection", "err", string(bytes.TrimSpace(p)))
	return len(p), nil
}
