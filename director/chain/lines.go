package chain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// The bounds of a file with lines. A file comes from anywhere: it must not take the memory of who verifies it. An entry
// has at most 10 KiB, which JSON can write six times as long.
const (
	maxLine        = 128 << 10
	maxCheckpoints = 1 << 20
)

// VerifyLines verifies a file with entries and checkpoints, one a line, with nothing but the key. open is called twice:
// checkpoints may be behind the entries that they cover. An error means that the file cannot be read, or that it is no
// such file. What is wrong with the trail is in the result.
func VerifyLines(open func() (io.ReadCloser, error), key Key) (Result, error) {
	var checkpoints []Checkpoint
	err := eachLine(open, func(n int, l Line) error {
		if l.Checkpoint == nil {
			return nil
		}
		if checkpoints = append(checkpoints, *l.Checkpoint); len(checkpoints) > maxCheckpoints {
			return fmt.Errorf("line %d: there are more than %d checkpoints", n, maxCheckpoints)
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	v := NewVerifier(key.Public, key.Installation, -1, checkpoints)
	err = eachLine(open, func(_ int, l Line) error {
		if l.Checkpoint == nil {
			v.Add(l.Entry)
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	r := v.End(0)
	if r.Good() && r.Signed < r.Last {
		r.Bad, r.Why = r.Signed+1, fmt.Sprintf("no checkpoint covers the entries %d to %d", r.Signed+1, r.Last)
	}
	return r, nil
}

func eachLine(open func() (io.ReadCloser, error), do func(n int, l Line) error) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("line %d is not an entry of the audit trail: %w", n, err)
		}
		if err := do(n, l); err != nil {
			return err
		}
	}
	return lines.Err()
}
