package docs

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hardWords are words and phrases that make sentences hard to read, each with how often the pages and the Go code may
// still have it. Numbers only go down: rewrite the sentence, then lower the number.
var hardWords = []struct {
	word        string
	pages, code int
}{
	{word: "made anew", pages: 2, code: 17},
	{word: "make anew", code: 2},
	{word: "somebody", pages: 6, code: 74},
	{word: "nobody", pages: 2, code: 65},
	{word: "put back", pages: 3, code: 21},
	{word: "puts back", pages: 1},
	{word: "way back", pages: 2, code: 10},
	{word: "take back", code: 3},
	{word: "takes back", pages: 3, code: 11},
	{word: "taken back", pages: 5, code: 24},
	{word: "of late", code: 5},
	{word: "beside", pages: 25, code: 66},
	{word: "stands", pages: 7, code: 37},
	{word: "in the place of", pages: 3, code: 7},
	{word: "gone on with", pages: 1, code: 1},
	{word: "goes on", pages: 5, code: 29},
	{word: "has it do"},
	{word: "whoever", pages: 5, code: 21},
}

// countWords returns how often each of the hard words is in the texts.
func countWords(texts []string) map[string]int {
	counts := map[string]int{}
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, w := range hardWords {
		pattern := regexp.MustCompile(`\b` + strings.ReplaceAll(w.word, " ", `[\s/"+]+`) + `\b`)
		counts[w.word] = len(pattern.FindAllString(all, -1))
	}
	return counts
}

func TestHardWordsInPages(t *testing.T) {
	t.Parallel()
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, page := range pages {
		for _, line := range page.Lines {
			texts = append(texts, line.Text)
		}
	}
	counts := countWords(texts)
	for _, w := range hardWords {
		if counts[w.word] > w.pages {
			t.Errorf("pages have %q %d times, more than %d: say it in other words", w.word, counts[w.word], w.pages)
		}
	}
}

func TestHardWordsInGo(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, dir := range []string{"director", "cmd", "plugins"} {
		found, err := goTexts(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, found...)
	}
	counts := countWords(texts)
	for _, w := range hardWords {
		if counts[w.word] > w.code {
			t.Errorf("comments and texts in Go have %q %d times, more than %d: say it in other words", w.word,
				counts[w.word], w.code)
		}
	}
}

// goTexts returns the comments and strings of the Go files below dir, without tests.
func goTexts(dir string) ([]string, error) {
	var texts []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		var s scanner.Scanner
		s.Init(files.AddFile(path, files.Base(), len(text)), text, nil, scanner.ScanComments)
		for {
			_, kind, literal := s.Scan()
			if kind == token.EOF {
				return nil
			}
			if kind == token.COMMENT || kind == token.STRING {
				texts = append(texts, literal)
			}
		}
	})
	return texts, err
}
