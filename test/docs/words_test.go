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
// have it: "nobody" is a user of the system. Rewrite a sentence that has one.
var hardWords = []struct {
	word        string
	pages, code int
}{
	{word: "anew"},
	{word: "somebody"},
	{word: "nobody", code: 2},
	{word: "put back"},
	{word: "puts back"},
	{word: "way back"},
	{word: "take back"},
	{word: "takes back"},
	{word: "taken back"},
	{word: "taking back"},
	{word: "of late"},
	{word: "beside", pages: 1},
	{word: "stands"},
	{word: "in the place of"},
	{word: "gone on with"},
	{word: "goes on", pages: 1},
	{word: "has it do"},
	{word: "whoever"},
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
