package mirrors_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/mirrors"
	"github.com/director-kaas/kaas/director/mirrors/mirrortest"
)

// What the environment tells the test's own binary: to be a director that fetches into the directory, from where.
const (
	childDir = "MIRRORS_TEST_DIR"
	childURL = "MIRRORS_TEST_URL"
	childCA  = "MIRRORS_TEST_CA"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	c, err := config(dir, slog.New(slog.DiscardHandler))
	if err == nil {
		_, err = mirrors.New(c).Fetch(context.Background(), director.ReleaseFetch{
			URL: os.Getenv(childURL), CA: os.Getenv(childCA), By: "ann",
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("fetches")
	select {}
}

// A director is killed while it fetches. The next one continues where it was.
func TestFetchAfterAKill(t *testing.T) {
	t.Parallel()
	const half = size / 2
	file := mirrortest.Archive(t, size)
	m := mirrortest.Start(t, file)
	m.Before(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Etag", `"one"`)
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(file[:half])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return false
	})
	s := open(t, nil)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+s.dir, childURL+"="+m.URL, childCA+"="+m.CA)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	arrived := int64(0)
	for arrived < half {
		if t.Context().Err() != nil {
			t.Fatal("nothing arrives")
		}
		for _, e := range s.left() {
			if u, err := s.uploads.Upload(e.Name()); err == nil {
				arrived = u.Offset
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	m.Before(nil)
	s.arrived(s.ended(director.ReleaseFetch{URL: m.URL, CA: m.CA, By: "ann"}), file)
	if got, want := fmt.Sprint(m.Ranges()), fmt.Sprintf("[  bytes=%d-]", half); got != want {
		t.Errorf("the ranges are %s, want %s", got, want)
	}
}
