package journal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/servicetest"
)

// numbered writes a log of so many lines, of which each says its number.
func numbered(t testing.TB, path string, lines int) {
	t.Helper()
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, `{"n":%d,"type":"host","task":"Install packages","host":"demo-worker-%d","status":"ok",`+
			`"msg":"line %d"}`+"\n",
			i+1, i%50, i+1)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A window begins where it is asked to, also in the middle of a long log and at the end of one that grows. A line that
// is not whole yet is not shown.
func TestLogWindows(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx, path := t.Context(), s.LogPath("p1", play, 1)
	const total = 3*markEvery + 5
	numbered(t, path, total)
	read := func(q LogQuery) LogWindow {
		t.Helper()
		q.Step, q.Attempt = play, 1
		w, err := s.LogLines(ctx, "p1", q)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range w.Lines {
			if l.Line != w.Lines[0].Line+int64(i) ||
				!strings.Contains(string(l.Record), fmt.Sprintf(`"n":%d,`, l.Line)) {
				t.Fatalf("line %d is %s", l.Line, l.Record)
			}
		}
		return w
	}
	for name, c := range map[string]struct {
		q           LogQuery
		first, next int64
		n           int
	}{
		"begin":          {LogQuery{From: 1, Limit: 3}, 1, 4, 3},
		"at a mark":      {LogQuery{From: markEvery + 1, Limit: 2}, markEvery + 1, markEvery + 3, 2},
		"before a mark":  {LogQuery{From: markEvery, Limit: 2}, markEvery, markEvery + 2, 2},
		"tail":           {LogQuery{Tail: 4, Limit: 10}, total - 3, total + 1, 4},
		"more than all":  {LogQuery{Tail: 1 << 20, Limit: 1}, 1, 2, 1},
		"behind the end": {LogQuery{From: 1 << 40, Limit: 1}, 0, total + 1, 0},
	} {
		w := read(c.q)
		if len(w.Lines) != c.n || w.Next != c.next || w.Total != total || w.Growing {
			t.Errorf("%s: %d lines, next %d, total %d", name, len(w.Lines), w.Next, w.Total)
		} else if c.n > 0 && w.Lines[0].Line != c.first {
			t.Errorf("%s: begins with %d", name, w.Lines[0].Line)
		}
	}
	grow := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(text)
			_ = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	grow(`{"n":3078,"msg":"half`)
	if w := read(LogQuery{Tail: 1, Limit: 1}); w.Total != total {
		t.Errorf("half a line counts: %d", w.Total)
	}
	grow("\"}\n")
	if w := read(LogQuery{From: total + 1, Limit: 9}); len(w.Lines) != 1 || w.Next != total+2 {
		t.Errorf("the new line: %+v", w)
	}
	numbered(t, path, 2) // a restored directory: the file is another one
	if w := read(LogQuery{From: 1, Limit: 9}); len(w.Lines) != 2 || w.Total != 2 {
		t.Errorf("a shorter file: %+v", w)
	}
}

// What is no JSON is shown as text; a log that another director has says with which; nothing written is no error.
func TestLogWindowsOfOthers(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	if err := os.WriteFile(s.LogPath("p1", play, 1), []byte("plain \xff\n[1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := s.LogLines(ctx, "p1", LogQuery{Step: play, Attempt: 1, From: 1, Limit: 9})
	if err != nil || len(w.Lines) != 2 || string(w.Lines[0].Record) != `{"msg":"plain `+"\uFFFD"+`"}` {
		t.Errorf("%+v, %v", w.Lines, err)
	}
	_, err = s.LogLines(ctx, "p1", LogQuery{Step: play, From: 1, Limit: 9})
	servicetest.WantKind(t, err, director.KindNotFound, "attempt 2", "there", "ask that director")
	_, err = s.SearchLog(ctx, "p1", LogSearch{Step: play, Limit: 9})
	servicetest.WantKind(t, err, director.KindNotFound, "there")
	if err := os.Remove(s.LogPath("p1", play, 1)); err != nil {
		t.Fatal(err)
	}
	w, err = s.LogLines(ctx, "p1", LogQuery{Step: play, Attempt: 1, Tail: 9, Limit: 9})
	if err != nil || len(w.Lines) != 0 || w.Next != 1 {
		t.Errorf("a log that was never written: %+v, %v", w, err)
	}
}

func TestSearchLog(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	text := `{"msg":"All is WELL","host":"a"}
{"status":"failed","msg":"no route to \"b\"","host":"b"}
{"status":"failed","ignored":true,"msg":"never mind","host":"c"}
{"status":"unreachable","msg":"gone","items":{"list":[{"msg":"deep Wasser\u00dcber"}]},"host":"d"}
not json, but well said
{"level":"ERROR","msg":"no host"}
{"type":"run_end","status":"ok","msg":"fine"}
{"type":"run_end","status":"timeout","msg":"too late"}
{"type":"lost","count":2,"msg":"two"}
`
	if err := os.WriteFile(s.LogPath("p1", play, 1), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		q    LogSearch
		want string
	}{
		"any case":    {LogSearch{Text: "well"}, "1 All is WELL|5 not json, but well said"},
		"quoted":      {LogSearch{Text: `to "B"`}, `2 no route to "b"`},
		"deep":        {LogSearch{Text: "wasserÜBER"}, "4 deep WasserÜber"},
		"failed":      {LogSearch{Failed: true}, `2 no route to "b"|4 gone|6 no host|8 too late|9 two`},
		"both":        {LogSearch{Failed: true, Text: "gone"}, "4 gone"},
		"not a key":   {LogSearch{Text: "status"}, ""},
		"as shown":    {LogSearch{Text: "B: failed"}, "2 b: failed"},
		"from a line": {LogSearch{Text: "well", From: 2}, "5 not json, but well said"},
		"not there":   {LogSearch{Text: "mars"}, ""},
	} {
		c.q.Step, c.q.Attempt, c.q.Limit = play, 1, 9
		hits, err := s.SearchLog(t.Context(), "p1", c.q)
		if err != nil || hits.Next != 0 || hits.Total != 9 {
			t.Errorf("%s: %+v, %v", name, hits, err)
		}
		var got []string
		for _, h := range hits.Items {
			got = append(got, fmt.Sprint(h.Line, " ", h.Text))
		}
		if diff := cmp.Diff(c.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	hits, err := s.SearchLog(t.Context(), "p1", LogSearch{Step: play, Attempt: 1, Text: "well", Limit: 1})
	if err != nil || len(hits.Items) != 1 || hits.Next != 5 {
		t.Errorf("one at a time: %+v, %v", hits, err)
	}
}

// TestLongLog measures windows of a log of a million lines, with: KAAS_BENCH=1 go test -run LongLog -v.
func TestLongLog(t *testing.T) {
	if os.Getenv("KAAS_BENCH") == "" {
		t.Skip("set KAAS_BENCH=1 to measure a log of a million lines")
	}
	s, _ := open(t)
	const total = 1_000_000
	numbered(t, s.LogPath("p1", play, 1), total)
	ctx := t.Context()
	measure := func(name string, most time.Duration, do func() bool) {
		t.Helper()
		begin := time.Now()
		ok := do()
		took := time.Since(begin)
		t.Logf("%-28s %s", name, took)
		if !ok || took > most {
			t.Errorf("%s: %t in %s, want %s", name, ok, took, most)
		}
	}
	lines := func(q LogQuery) bool {
		q.Step, q.Attempt, q.Limit = play, 1, 500
		w, err := s.LogLines(ctx, "p1", q)
		return err == nil && len(w.Lines) == 500
	}
	search := func(text string) bool {
		for from := int64(1); from > 0; {
			hits, err := s.SearchLog(ctx, "p1", LogSearch{Step: play, Attempt: 1, Text: text, From: from, Limit: 10})
			if err != nil || len(hits.Items) > 0 {
				return err == nil
			}
			from = hits.Next
		}
		return false
	}
	measure("tail, index not there yet", time.Second, func() bool { return lines(LogQuery{Tail: 500}) })
	measure("tail again", 300*time.Millisecond, func() bool { return lines(LogQuery{Tail: 500}) })
	measure("jump to the middle", 300*time.Millisecond, func() bool { return lines(LogQuery{From: total / 2}) })
	measure("no line failed", time.Second, func() bool {
		hits, err := s.SearchLog(ctx, "p1", LogSearch{Step: play, Attempt: 1, Failed: true, From: 1, Limit: 10})
		return err == nil && len(hits.Items) == 0 && hits.Next == 0
	})
	measure("search, hit in the last line", 2*time.Second, func() bool { return search("line 1000000") })
}

// Each line that failed is found, wherever it lies: next to a mark, where one block of the file ends and the next one
// begins, and in what is written after the log was read.
func TestFailuresOfALongLog(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	path := s.LogPath("p1", play, 1)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want []int64
	line, size := int64(0), 0
	write := func(lines int) {
		var b bytes.Buffer
		for range lines {
			line++
			status, space := "ok", 0
			left := readBlock - size%readBlock
			if left >= 40 && left < 56 {
				space = left - 17 - 16 // the next line is a failure, whose mark is cut in two
			}
			if at := line % (5 * markEvery); left == 17 || at == 1 || at == 0 {
				status = "unreachable"
				want = append(want, line)
			}
			n, _ := fmt.Fprintf(&b, `{"status":"%s"%*s}`+"\n", status, space, "") // a buffer takes all
			size += n
		}
		if _, err := f.Write(b.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	search := func(from int64) []int64 {
		var got []int64
		for from > 0 {
			hits, err := s.SearchLog(t.Context(), "p1",
				LogSearch{Step: play, Attempt: 1, Failed: true, From: from, Limit: 7})
			if err != nil {
				t.Fatal(err)
			}
			for _, hit := range hits.Items {
				got = append(got, hit.Line)
			}
			from = hits.Next
		}
		return got
	}
	for range 3 {
		write(40*markEvery + 500)
		if diff := cmp.Diff(want, search(1)); diff != "" {
			t.Fatal(diff)
		}
	}
	if len(want) < 50 {
		t.Errorf("the log has only %d lines that failed", len(want))
	}
	after := want[len(want)/2] + 1
	if diff := cmp.Diff(want[len(want)/2+1:], search(after)); diff != "" {
		t.Errorf("from line %d: %s", after, diff)
	}
}
