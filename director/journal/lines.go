package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

const (
	markEvery  = 1024      // lines between two marks of an index
	readBlock  = 256 << 10 // read at once
	maxIndexes = 128       // logs whose index is in memory
)

// lineIndex knows where the lines of a file begin that only grows: the place of every markEvery-th line. Of a million
// lines it takes 8 KiB. A last line that has no end yet does not count.
type lineIndex struct {
	mu    sync.Mutex
	file  os.FileInfo
	marks []int64
	lines int64
	end   int64 // of the last whole line
}

// update takes in what was written since.
func (x *lineIndex) update(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if x.file == nil || !os.SameFile(x.file, info) || info.Size() < x.end {
		x.marks, x.lines, x.end = []int64{0}, 0, 0
	}
	x.file = info
	block := make([]byte, readBlock)
	at := x.end
	for at < info.Size() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := f.ReadAt(block, at)
		for rest := block[:n]; ; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			x.lines++
			x.end = at + int64(n-len(rest))
			if x.lines%markEvery == 0 {
				x.marks = append(x.marks, x.end)
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reader returns a reader that begins with the line, counted from 0, and ends with the last whole line.
func (x *lineIndex) reader(f *os.File, line int64) (*bufio.Reader, error) {
	mark := min(line/markEvery, int64(len(x.marks)-1))
	r := bufio.NewReaderSize(io.NewSectionReader(f, x.marks[mark], x.end-x.marks[mark]), readBlock)
	for range line - mark*markEvery {
		if err := skipLine(r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func skipLine(r *bufio.Reader) error {
	for {
		switch _, err := r.ReadSlice('\n'); {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// indexes keeps the indexes of the logs that were read last.
type indexes struct {
	mu    sync.Mutex
	known map[string]*lineIndex
	order []string // the one that was asked for last is the last
}

// of returns the index of the file, up to date and locked until the caller unlocks it.
func (x *indexes) of(ctx context.Context, f *os.File) (*lineIndex, error) {
	path := f.Name()
	x.mu.Lock()
	index := x.known[path]
	if index == nil {
		if x.known == nil {
			x.known = map[string]*lineIndex{}
		}
		index = &lineIndex{}
		x.known[path] = index
	}
	for i, other := range x.order {
		if other == path {
			x.order = append(x.order[:i], x.order[i+1:]...)
			break
		}
	}
	if x.order = append(x.order, path); len(x.order) > maxIndexes {
		delete(x.known, x.order[0])
		x.order = x.order[1:]
	}
	x.mu.Unlock()
	index.mu.Lock()
	err := index.update(ctx, f)
	if err != nil {
		index.mu.Unlock()
		return nil, err
	}
	return index, nil
}
