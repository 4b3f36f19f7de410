package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

const wildRequests = 10000

// Every operation of the OpenAPI document is asked with valid shapes, wild values, wrong types and broken bodies. The
// director refuses what is wrong with a problem, never with a failure of its own. How long the slowest took is told
// with -v; a machine at work elsewhere makes it long.
func TestWildRequests(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	w := newWild(t, c, d)
	var group sync.WaitGroup
	const clients = 4
	for n := range clients {
		group.Go(func() {
			g := &generator{Rand: rand.New(rand.NewPCG(20261122, uint64(n))), doc: w.doc, known: w.known}
			for range wildRequests / clients {
				w.ask(t, g)
			}
		})
	}
	group.Wait()
	t.Logf(
		"%d requests to %d operations; answers by status %v; the slowest took %s: %s", wildRequests, len(w.operations),
		w.codes, w.slowest, w.slow,
	)
	for _, o := range w.operations {
		if w.asked[o.id] == 0 {
			t.Errorf("%s was never asked", o.id)
		}
	}
	if w.codes[http.StatusOK] < wildRequests/20 || w.codes[http.StatusUnprocessableEntity] == 0 ||
		w.codes[http.StatusNotFound] == 0 {
		t.Errorf("the requests do not reach far: %v", w.codes)
	}
}

// wild is a client that asks for anything.
type wild struct {
	doc        map[string]any
	operations []wildOperation
	known      []string
	base       string
	token      string
	http       *http.Client

	sync.Mutex
	codes   map[int]int
	asked   map[string]int
	slowest time.Duration
	slow    string
}

type wildOperation struct {
	id, method, path string
	parameters       []any
	body             map[string]any // media type -> its schema
	answers          map[string]any // status -> its answer
}

func newWild(t *testing.T, c Config, d *Daemon) *wild {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 8,
	}
	t.Cleanup(transport.CloseIdleConnections)
	w := &wild{
		base: "https://" + d.Addr().String(), codes: map[int]int{}, asked: map[string]int{},
		http: &http.Client{
			Transport: transport, Timeout: time.Minute,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	api := connect(t, c, d)
	session, err := api.Login(t.Context(), "admin", "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	w.token = session.Token
	made, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	w.known = []string{
		"demo", "lab", "net", "node", "k8s", made.ID, made.Hash, "Cluster", "Provider", "demo-m-1", "demo-w-1",
		"create", "h1",
	}
	resp, err := w.http.Get(w.base + "/api/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&w.doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range w.doc["paths"].(map[string]any) {
		for method, o := range item.(map[string]any) {
			o, ok := o.(map[string]any)
			if !ok || o["operationId"] == nil {
				continue
			}
			op := wildOperation{id: o["operationId"].(string), method: strings.ToUpper(method), path: path}
			op.parameters, _ = o["parameters"].([]any)
			op.answers, _ = o["responses"].(map[string]any)
			if body, ok := o["requestBody"].(map[string]any); ok {
				op.body, _ = body["content"].(map[string]any)
			}
			w.operations = append(w.operations, op)
		}
	}
	slices.SortFunc(w.operations, func(a, b wildOperation) int { return strings.Compare(a.id, b.id) })
	return w
}

// ask sends one request and looks at its answer.
func (w *wild) ask(t *testing.T, g *generator) {
	o := w.operations[g.IntN(len(w.operations))]
	req, shown := w.request(t, g, o)
	began := time.Now()
	resp, err := w.http.Do(req)
	if err != nil {
		t.Errorf("%s: no answer: %v", shown, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	took := time.Since(began)
	var body []byte
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") { // such an answer has no end
		if body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20)); err != nil {
			t.Errorf("%s: the answer breaks off: %v", shown, err)
		}
		took = time.Since(began)
	}
	var problem struct{ Kind, Detail string }
	switch {
	case resp.StatusCode >= 500:
		t.Errorf("%s: %d %s", shown, resp.StatusCode, body)
	case resp.StatusCode < 400:
	case resp.Header.Get("Content-Type") != "application/problem+json":
		t.Errorf("%s: %d comes as %q: %s", shown, resp.StatusCode, resp.Header.Get("Content-Type"), body)
	case json.Unmarshal(body, &problem) != nil || problem.Kind == "" || problem.Detail == "":
		t.Errorf("%s: %d is no problem: %s", shown, resp.StatusCode, body)
	}
	for _, wrong := range g.unlikeAnswer(o, resp, body) {
		t.Errorf("%s: the answer is not as it is described: %s", shown, wrong)
	}
	w.Lock()
	defer w.Unlock()
	w.codes[resp.StatusCode]++
	w.asked[o.id]++
	if took > w.slowest {
		w.slowest, w.slow = took, shown
	}
}

func (w *wild) request(t *testing.T, g *generator, o wildOperation) (req *http.Request, shown string) {
	path, query, header := o.path, url.Values{}, http.Header{}
	for _, p := range o.parameters {
		p, _ := g.resolve(p).(map[string]any)
		name, _ := p["name"].(string)
		if required, _ := p["required"].(bool); !required && g.IntN(3) > 0 {
			continue
		}
		value := g.text(p["schema"])
		switch p["in"] {
		case "path":
			if value == "" || value == "." || value == ".." {
				value = "x"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
		case "query":
			if name == "wait" {
				value = "1" // it may last that long, and others are what is looked for
			}
			query.Set(name, value)
		case "header":
			header.Set(name, strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return '?'
				}
				return r
			}, value))
		}
	}
	address := w.base + "/api/v1" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	media, body := g.body(o.body)
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), o.method, address, bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s %s: %v", o.method, address, err)
	}
	maps.Copy(req.Header, header)
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	// These two would end what the others ask with: their token, and the authority that they trust.
	if o.id != "logout" && o.id != "change-director-authority" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	return req, fmt.Sprintf("%s %s %s %.300q", o.method, strings.TrimPrefix(address, w.base), media, body)
}

// generator makes values for schemas, and values that do not fit them.
type generator struct {
	*rand.Rand
	doc   map[string]any
	known []string
}

var wildTexts = []string{
	"", "0", "-1", "1", "true", "null", "9223372036854775808", "1e400", "NaN", "a b", "ÄÖ", "\u202e", "\x00", "a\nb: c",
	"\r\nX: y", "{{7*7}}", "${HOME}", "$(id)", "%00", "%s%n",
	"../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "' OR 1=1 --", `"`, "\\", "<script>", "*", "a,b,,c",
	"2026-11-22T00:00:00Z", "P1D", "1h", "\xff\xfe",
}

func (g *generator) resolve(v any) any {
	for range 8 {
		m, ok := v.(map[string]any)
		ref, isRef := m["$ref"].(string)
		if !ok || !isRef {
			return v
		}
		v = any(g.doc)
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			inner, _ := v.(map[string]any)
			v = inner[part]
		}
	}
	return v
}

// text is a value for a parameter.
func (g *generator) text(schema any) string {
	switch v := g.value(schema, 0).(type) {
	case string:
		return v
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, fmt.Sprint(e))
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(v)
	}
}

func (g *generator) value(schema any, depth int) any {
	s, _ := g.resolve(schema).(map[string]any)
	if g.IntN(12) == 0 || depth > 6 {
		return g.anything()
	}
	if all, ok := s["enum"].([]any); ok && g.IntN(8) > 0 {
		return all[g.IntN(len(all))]
	}
	kind, _ := s["type"].(string)
	if several, ok := s["type"].([]any); ok {
		kind, _ = several[g.IntN(len(several))].(string)
	}
	switch kind {
	case "string":
		return g.string()
	case "integer", "number":
		return []any{0, 1, 2, 7, -1, 1 << 40, 3.5}[g.IntN(7)]
	case "boolean":
		return g.IntN(2) == 0
	case "array":
		out := []any{}
		for range g.IntN(4) {
			out = append(out, g.value(s["items"], depth+1))
		}
		return out
	case "object":
		return g.object(s, depth)
	case "null":
		return nil
	}
	return g.anything()
}

func (g *generator) object(s map[string]any, depth int) map[string]any {
	out := map[string]any{}
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) && g.IntN(10) > 0 || g.IntN(3) == 0 {
			out[name] = g.value(properties[name], depth+1)
		}
	}
	if g.IntN(10) == 0 {
		out[g.string()] = g.anything()
	}
	return out
}

func (g *generator) string() string {
	switch g.IntN(5) {
	case 0:
		return wildTexts[g.IntN(len(wildTexts))]
	case 1:
		return strings.Repeat("x", 1<<g.IntN(14))
	}
	return g.known[g.IntN(len(g.known))]
}

func (g *generator) anything() any {
	return []any{
		nil, true, 0, -1.5, "", "x",
		[]any{},
		map[string]any{},
		[]any{[]any{nil}},
		map[string]any{"a": map[string]any{"b": 1}},
		wildTexts[g.IntN(len(wildTexts))],
	}[g.IntN(11)]
}

// body is a body with its type: fitting, or broken in one of many ways.
func (g *generator) body(content map[string]any) (media string, body []byte) {
	if len(content) == 0 {
		return "", nil
	}
	media = slices.Sorted(maps.Keys(content))[g.IntN(len(content))]
	m, _ := content[media].(map[string]any)
	body, err := json.Marshal(g.value(m["schema"], 0))
	if err != nil {
		body = []byte(err.Error())
	}
	switch g.IntN(14) {
	case 0:
		return media, body[:g.IntN(len(body)+1)]
	case 1:
		return media, nil
	case 2:
		return media, []byte(strings.Repeat("[", 1+g.IntN(20000)))
	case 3:
		return media, []byte(strings.Repeat(`{"a":`, 1+g.IntN(5000)))
	case 4:
		b := make([]byte, g.IntN(2000))
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		return media, b
	case 5:
		return []string{
			"", "text/plain", "application/x-yaml", "application/json; charset=utf-16", "nonsense",
			"multipart/form-data",
		}[g.IntN(6)], body
	case 6:
		return media, []byte(`{"documents":"a: &a [*a]","text":1e999,"":` + strings.Repeat("9", 400) + `}`)
	}
	return media, body
}
