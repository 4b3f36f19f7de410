package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
)

const (
	markEvery  = 1024      // lines between two marks of an index
	readBlock  = 256 << 10 // read at once
	maxIndexes = 128       // logs whose index is in memory
)

// lineIndex knows the lines of a file that only grows.
type lineIndex struct {
	mu   sync.Mutex
	file os.FileInfo
	lineMap
}

// lineMap knows where the lines of a file begin: the place of every markEvery-th line. Of a million lines it takes
// 9 KiB. A last line that has no end yet does not count.
type lineMap struct {
	marks   []int64
	suspect []bool // the lines from the mark to the next one have one of failureMarks
	lines   int64
	end     int64 // of the last whole line
}

// update takes in what was written since.
func (x *lineIndex) update(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if x.file == nil || !os.SameFile(x.file, info) || info.Size() < x.end {
		x.lineMap = lineMap{marks: []int64{0}, suspect: []bool{false}}
	}
	x.file = info
	block := make([]byte, longestMark+readBlock)
	kept := 0 // bytes of the block before: a mark may begin in one block and end in the next
	for at := x.end; at < info.Size(); {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := f.ReadAt(block[kept:kept+readBlock], at)
		x.add(block[:kept+n], kept, at)
		at += int64(n)
		kept = copy(block, block[max(0, kept+n-longestMark):kept+n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add takes in a block of the file, whose bytes from kept on begin at the place.
func (m *lineMap) add(block []byte, kept int, at int64) {
	began := 0
	for i := kept; ; {
		n := bytes.IndexByte(block[i:], '\n')
		if n < 0 {
			break
		}
		i += n + 1
		m.lines++
		m.end = at + int64(i-kept)
		if m.lines%markEvery == 0 {
			m.look(block[began:i])
			m.marks, m.suspect = append(m.marks, m.end), append(m.suspect, false)
			began = i
		}
	}
	m.look(block[began:])
}

// look looks for failures in a part of what follows the last mark.
func (m *lineMap) look(part []byte) {
	last := len(m.suspect) - 1
	m.suspect[last] = m.suspect[last] || mayHaveFailed(part)
}

// clone is a map that does not change when its file grows.
func (m *lineMap) clone() lineMap {
	return lineMap{marks: slices.Clone(m.marks), suspect: slices.Clone(m.suspect), lines: m.lines, end: m.end}
}

// suspectFrom returns the first mark's line from this mark's line on, counted from 0, behind which a line may have
// failed, or how many lines there are.
func (m *lineMap) suspectFrom(line int64) int64 {
	first := line / markEvery
	i := slices.Index(m.suspect[first:], true)
	if i < 0 {
		return m.lines
	}
	return min((first+int64(i))*markEvery, m.lines)
}

// reader returns a reader that begins with the line, counted from 0, and ends with the last whole line.
func (m *lineMap) reader(f *os.File, line int64) (*bufio.Reader, error) {
	mark := min(line/markEvery, int64(len(m.marks)-1))
	r := bufio.NewReaderSize(io.NewSectionReader(f, m.marks[mark], m.end-m.marks[mark]), readBlock)
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
