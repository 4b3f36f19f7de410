package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
)

// sources is a set of texts joined to one YAML stream, that knows which line came from where. All are applied together,
// so that documents may name each other over files.
type sources struct {
	text  bytes.Buffer
	parts []part
}

type part struct {
	name  string
	first int // line in the joined text
}

// streamName is what the director is told to call the joined text; its lines are translated back.
const streamName = "input"

// readSources reads files, directories (their .yaml, .yml and .json files) and the standard input for -.
func (a *modelCommands) readSources(ctx context.Context, cmd *cobra.Command, paths []string) (*sources, error) {
	if len(paths) == 0 {
		return nil, usage(cmd, "no documents are given: -f FILE, -f DIR or -f -")
	}
	s := &sources{}
	for _, path := range paths {
		if path == "-" {
			if a.inIsTerminal() {
				sayLine(a.err, "reading documents from the terminal; end with Ctrl-D")
			}
			text, err := io.ReadAll(a.in)
			if err != nil {
				return nil, fileError("directorctl.read", err)
			}
			s.add("stdin", text)
			continue
		}
		if err := s.addPath(path); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return s, nil
}

func (s *sources) addPath(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fileError("directorctl.read", err)
	}
	files := []string{path}
	if info.IsDir() {
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return fileError("directorctl.read", err)
		}
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return director.Errorf(
				director.KindInvalid, "directorctl.read", "%s holds no .yaml, .yml or .json file", path,
			)
		}
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return fileError("directorctl.read", err)
		}
		s.add(f, text)
	}
	return nil
}

func (s *sources) add(name string, text []byte) {
	if s.text.Len() > 0 {
		s.text.WriteString("---\n")
	}
	s.parts = append(s.parts, part{name: name, first: bytes.Count(s.text.Bytes(), []byte("\n")) + 1})
	s.text.Write(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		s.text.WriteByte('\n')
	}
}

// place translates a line of the joined text.
func (s *sources) place(line int) (name string, at int) {
	for _, p := range slices.Backward(s.parts) {
		if line >= p.first {
			return p.name, line - p.first + 1
		}
	}
	return streamName, line
}

var (
	fieldPlace  = regexp.MustCompile(`^` + streamName + `:(\d+):? ?`)
	syntaxPlace = regexp.MustCompile(`\bline (\d+)\b`)
)

// translate puts the names and lines of the files into an error of the director.
func (s *sources) translate(err error) error {
	e, ok := errors.AsType[*director.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	out := *e
	out.Fields = slices.Clone(e.Fields)
	for i, f := range out.Fields {
		if m := fieldPlace.FindStringSubmatch(f.Path); m != nil {
			line, _ := strconv.Atoi(m[1]) // digits by the expression
			name, at := s.place(line)
			out.Fields[i].Path = fmt.Sprintf("%s:%d: %s", name, at, f.Path[len(m[0]):])
			continue
		}
		if f.Path != streamName {
			continue
		}
		m := syntaxPlace.FindStringSubmatchIndex(f.Msg)
		if m == nil {
			out.Fields[i].Path = s.parts[0].name
			continue
		}
		line, _ := strconv.Atoi(f.Msg[m[2]:m[3]])
		name, at := s.place(line)
		out.Fields[i].Path = fmt.Sprintf("%s:%d", name, at)
		out.Fields[i].Msg = strings.TrimLeft(f.Msg[:m[0]]+strings.TrimLeft(f.Msg[m[1]:], ":"), " ")
	}
	return &out
}
