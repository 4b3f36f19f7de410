package chain

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func auditor() Key { return Key{Installation: "d1", Public: public()} }

// file writes a trail as a director exports it: the checkpoint ahead, the entries, and the checkpoints at their end.
func file(t *testing.T, from, last int64) []byte {
	t.Helper()
	entries, checkpoints := written(last)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	write := func(l Line) {
		if err := enc.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range checkpoints {
		if c.Seq == from-1 {
			write(Line{Checkpoint: &c})
		}
	}
	for _, e := range entries[from-1:] {
		write(Line{Entry: e})
	}
	for _, c := range checkpoints {
		if c.Seq >= from {
			write(Line{Checkpoint: &c})
		}
	}
	return out.Bytes()
}

func verifyFile(content []byte, key Key) (Result, error) {
	return VerifyLines(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, key)
}

// A file is verified with the key alone, and every change to it is found.
func TestVerifyLines(t *testing.T) {
	t.Parallel()
	whole, part := file(t, 1, 20), file(t, 11, 20)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for name, c := range map[string]struct {
		content []byte
		key     Key
		bad     int64
		entries int64
	}{
		"whole": {content: whole, entries: 20},
		"part":  {content: part, entries: 10},
		"empty": {},
		"changed": {
			content: bytes.Replace(whole, []byte("Cluster/c7"), []byte("Cluster/x7"), 1), bad: 7,
			entries: 20,
		},
		"entry removed": {
			content: bytes.Join(append(append([][]byte{}, lines[:7]...), lines[8:]...), nil),
			bad:     8, entries: 19,
		},
		"first entries removed": {content: bytes.Join(lines[3:], nil), bad: 1, entries: 17},
		"end is not signed":     {content: file(t, 1, 18), bad: 16, entries: 18},
		"checkpoints removed":   {content: bytes.Join(lines[:20], nil), bad: 1, entries: 20},
		"cut": {
			content: bytes.Join(append(append([][]byte{}, lines[:18]...), lines[20:]...), nil), bad: 19, entries: 18,
		},
		"of another installation": {
			content: whole, key: Key{Installation: "d2", Public: public()}, bad: 5, entries: 20,
		},
	} {
		key := c.key
		if key.Installation == "" {
			key = auditor()
		}
		r, err := verifyFile(c.content, key)
		if err != nil || r.Bad != c.bad || r.Good() != (c.bad == 0) || r.Entries != c.entries {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// What is no file of a trail is refused with the line, and does not take the memory.
func TestVerifyLinesOfAnotherFile(t *testing.T) {
	t.Parallel()
	for want, content := range map[string]string{
		"line 1 is not an entry": "hello\n",
		"line 2 is not an entry": string(bytes.SplitAfter(file(t, 1, 1), []byte("\n"))[0]) + "[]\n",
		"token too long":         `{"actor": "` + strings.Repeat("x", maxLine),
	} {
		if _, err := verifyFile([]byte(content), auditor()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := VerifyLines(func() (io.ReadCloser, error) { return nil, broken }, auditor()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// A key is read as it was written, and nothing else is read as a key.
func TestKeyText(t *testing.T) {
	t.Parallel()
	text := auditor().String()
	got, err := ParseKey(text + "\n")
	if err != nil || got.Installation != "d1" || !got.Public.Equal(public()) {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	short := base64.RawURLEncoding.EncodeToString(public()[1:])
	for _, bad := range []string{
		"", "x", text + "A", "director-audit::" + short, "director-audit:d1:" + short,
		"x" + text,
	} {
		if k, err := ParseKey(bad); err == nil {
			t.Errorf("%q is the key %+v", bad, k)
		}
	}
}
