// Package docs reads the repository's Markdown files for the tests that keep them true.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Page is one Markdown file.
type Page struct {
	Path  string // from the repository's root
	Lines []Line
}

// Line is one line of a page.
type Line struct {
	Number int
	Text   string
	Code   bool // inside of a fenced block, or one of its fences
}

// Read returns every Markdown file below root. What was built and what packages brought is left out.
func Read(root string) ([]Page, error) {
	var pages []Page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root &&
			(name == "node_modules" || name == "bin" || name == "site" || strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		pages = append(pages, Page{Path: filepath.ToSlash(relative), Lines: lines(string(text))})
		return err
	})
	return pages, err
}

func lines(text string) []Line {
	var all []Line
	fence := ""
	for i, s := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(s, " ")
		marker := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		line := Line{Number: i + 1, Text: s, Code: fence != ""}
		switch {
		case fence == "" && len(marker) >= 3:
			fence, line.Code = marker, true
		case fence != "" && strings.HasPrefix(marker, fence) && strings.TrimSpace(trimmed) == marker:
			fence = ""
		}
		all = append(all, line)
	}
	return all
}

// Link is where a page points to.
type Link struct {
	Line         int
	Path, Anchor string // as written; an empty path is the page itself
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	link       = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]*))?\)`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// Links returns the links of a page to files of the repository.
func (p Page) Links() []Link {
	var links []Link
	for _, line := range p.Lines {
		if line.Code {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line.Text, ""), -1) {
			if !strings.Contains(found[1], "://") && !strings.HasPrefix(found[1], "mailto:") {
				links = append(links, Link{Line: line.Number, Path: found[1], Anchor: found[2]})
			}
		}
	}
	return links
}

// Anchors returns the names of a page's headings, as GitHub makes them.
func (p Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	for _, line := range p.Lines {
		title, isHeading := strings.CutPrefix(strings.TrimLeft(line.Text, "#"), " ")
		if line.Code || !isHeading || !strings.HasPrefix(line.Text, "#") {
			continue
		}
		name := anchor(title)
		for n, base := 1, name; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		anchors[name] = true
	}
	return anchors
}

func anchor(title string) string {
	title = linkText.ReplaceAllString(strings.TrimSpace(title), "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
