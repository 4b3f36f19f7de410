package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/shell"
	"github.com/director-kaas/kaas/director/wire"
)

// Shells is what the API offers of terminals on nodes.
type Shells interface {
	// Open starts a shell on a node.
	Open(ctx context.Context, r shell.Request) (*shell.Session, error)
}

type consoleInput struct {
	Name  string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Node  string `path:"node" maxLength:"80" doc:"Name of the node."`
	Bytes int    `query:"bytes" minimum:"1" maximum:"262144" default:"65536" doc:"At most so much of its end."`
}

type shellInput struct {
	Name   string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Node   string `path:"node" maxLength:"80" doc:"Name of the node."`
	Reason string `query:"reason" maxLength:"200" doc:"Why, for the audit trail."`
	Cols   int    `query:"cols" minimum:"1" maximum:"1000" default:"80" doc:"Width of the screen in characters."`
	Rows   int    `query:"rows" minimum:"1" maximum:"1000" default:"24" doc:"Height of the screen in lines."`
}

// shells registers what is seen of nodes from inside.
func (s *accessRoutes) shells(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-console", Method: http.MethodGet, Path: "/clusters/{name}/nodes/{node}/console", Tags: tags,
		Summary:     "Show the end of what a node's VM has printed on its serial console",
		Description: "The hypervisor is asked. The text has the control sequences of a terminal in it.",
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, director.ActInventory, kindCluster, s.getConsole)
	operation(s.server, api, huma.Operation{
		OperationID: "open-shell", Method: http.MethodGet, Path: "/clusters/{name}/nodes/{node}/shell", Tags: tags,
		Summary: "Open a shell on a node",
		Description: "A WebSocket. Binary messages carry what is typed, and what the shell shows. The client may " +
			"send a text message {\"cols\": 80, \"rows\": 24} when its screen changes. The last message of the " +
			"director is a text: {\"ended\": WHY}, or {\"problem\": PROBLEM} if there is no shell. It is off unless " +
			"nodeShells is set in the configuration, and each shell is in the audit trail with its reason.",
		Responses: map[string]*huma.Response{"101": {Description: "The shell follows."}},
	}, director.ActSecrets, kindCluster, s.openShell)
}

func (s *accessRoutes) getConsole(
	ctx context.Context, _ director.Actor, in *consoleInput,
) (*body[wire.ConsoleText], error) {
	text, err := s.Nodes.Console(ctx, in.Name, in.Node, min(in.Bytes, nodes.MostConsole))
	if err != nil {
		return nil, err
	}
	return &body[wire.ConsoleText]{wire.ConsoleText{Text: text, At: s.Now().UTC().Truncate(time.Second)}}, nil
}

// screenTime is how long a person may take nothing of what a shell shows before it is ended.
const screenTime = 30 * time.Second

// mostKeys bounds one message of a person, in bytes: what is pasted comes in several.
const mostKeys = 64 << 10

func (s *accessRoutes) openShell(_ context.Context, a director.Actor, in *shellInput) (*anyOf, error) {
	return &anyOf{Body: func(hctx huma.Context) {
		g := humagin.Unwrap(hctx)
		if !strings.EqualFold(g.GetHeader("Upgrade"), "websocket") {
			s.abort(g, director.Errorf(director.KindInvalid, "api.shell", "a shell needs a WebSocket").
				WithHint("open it in the console, or ask with the header Upgrade: websocket"))
			return
		}
		// A page of another site may not open one with the cookie of a person: Accept refuses another Origin.
		conn, err := websocket.Accept(g.Writer, g.Request, nil)
		if err != nil {
			s.Log.InfoContext(hctx.Context(), "no shell", "request_id", requestID(hctx.Context()), "err", err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(mostKeys)
		ctx, cancel := s.untilStop(hctx.Context())
		defer cancel()
		session, err := s.Shells.Open(ctx, shell.Request{
			Actor: a.User, Cluster: in.Name, Node: in.Node, Reason: in.Reason,
			Size: shell.Size{Cols: in.Cols, Rows: in.Rows},
		})
		if err != nil {
			closeShell(ctx, conn, wire.ShellEnd{Problem: &s.problem(ctx, err).Problem})
			return
		}
		why := session.Serve(ctx, screen{conn})
		session.End(ctx, why)
		closeShell(context.WithoutCancel(ctx), conn, wire.ShellEnd{Ended: why})
	}}, nil
}

// closeShell tells the person the end.
func closeShell(ctx context.Context, conn *websocket.Conn, end wire.ShellEnd) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := json.Marshal(end)
	if err == nil {
		err = conn.Write(ctx, websocket.MessageText, text)
	}
	if err == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
}

// screen is a person behind a WebSocket.
type screen struct{ conn *websocket.Conn }

// Next implements shell.Screen.
func (c screen) Next(ctx context.Context) (shell.Input, error) {
	kind, data, err := c.conn.Read(ctx)
	if err != nil || kind == websocket.MessageBinary {
		return shell.Input{Keys: data}, err
	}
	var size wire.ShellSize
	if err := json.Unmarshal(data, &size); err != nil {
		return shell.Input{}, err
	}
	return shell.Input{Size: &shell.Size{Cols: size.Cols, Rows: size.Rows}}, nil
}

// Show implements shell.Screen.
func (c screen) Show(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, screenTime)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageBinary, text)
}
