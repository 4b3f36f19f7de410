package registry

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director/backup/s3test"
)

const week = 7 * 24 * time.Hour

// shelf is what is needed of the releases in a test.
type shelf struct {
	mu     sync.Mutex
	needed Needed
	err    error
}

func newShelf() *shelf {
	return &shelf{needed: Needed{Names: map[string]bool{}, Bundles: map[string]bool{}}}
}

func (s *shelf) ask(context.Context) (Needed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.needed
	n.Names, n.Bundles, n.Releases = maps.Clone(n.Names), maps.Clone(n.Bundles), slices.Clone(n.Releases)
	return n, s.err
}

// set says which names and bundles are needed from now on.
func (s *shelf) set(names []string, bundles ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed = Needed{Names: map[string]bool{}, Bundles: map[string]bool{}}
	for _, name := range names {
		s.needed.Names[name] = true
	}
	for _, one := range bundles {
		s.needed.Bundles[one] = true
	}
}

// release is a release that holds the images of these references.
func release(t *testing.T, name string, images map[string]v1.Image) Release {
	t.Helper()
	out := Release{Name: name, Bundle: digest.FromString(name).Encoded()}
	for _, ref := range slices.Sorted(maps.Keys(images)) {
		d, err := images[ref].Digest()
		if err != nil {
			t.Fatal(err)
		}
		repository, tag, _ := strings.Cut(ref, ":")
		out.Images = append(out.Images, ReleaseImage{repository, tag, digest.Digest(d.String())})
	}
	return out
}

// stock pushes the images of a release as a plan does.
func (b *bundle) stock(t *testing.T, name string, images map[string]v1.Image) Release {
	t.Helper()
	r := release(t, name, images)
	if err := b.reg.Hold(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for ref, img := range images {
		if err := remote.Write(
			b.ref(t, ref), img, b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...,
		); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (b *bundle) collect(t *testing.T, after time.Duration) {
	t.Helper()
	b.later(after)
	if err := (collector{b.reg}).collect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// there returns which of the references can be pulled, whole.
func (b *bundle) there(t *testing.T, refs ...string) []string {
	t.Helper()
	out := []string{}
	for _, ref := range refs {
		img, err := remote.Image(b.ref(t, ref), b.as(t, authn.Anonymous)...)
		if statusOf(err) == 404 {
			continue
		}
		if err == nil {
			err = validate.Image(img)
		}
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		out = append(out, ref)
	}
	return out
}

// The images of a release go a week after it was deleted, without those that another release or a cluster needs: in a
// directory and in a bucket of a real server.
func TestCollectReleases(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"directory": func(*Config) {},
		"bucket":    func(c *Config) { c.Bucket = placeOf(s3test.Start(t), "site-a/registry") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf()
			b := setupWith(t, t.TempDir(), nil, func(c *Config) {
				change(c)
				c.Releases = s.ask
			})
			pause := someImage(t, 1<<10)
			b.stock(t, "old", map[string]v1.Image{"kaas/pause:1": pause, "kaas/api:1": someImage(t, 1<<10)})
			b.stock(t, "next", map[string]v1.Image{"kaas/pause:1": pause, "kaas/api:2": someImage(t, 1<<10)})
			loose := b.stock(t, "loose", map[string]v1.Image{"kaas/api:3": someImage(t, 1<<10)})
			b.pushTest(t, b.ref(t, "kaas/unknown:1"))
			all := []string{"kaas/pause:1", "kaas/api:1", "kaas/api:2", "kaas/api:3", "kaas/unknown:1"}
			check := func(after time.Duration, want ...string) {
				t.Helper()
				b.collect(t, after)
				if diff := cmp.Diff(want, b.there(t, all...)); diff != "" {
					t.Errorf("after %s (-want +got):\n%s", after, diff)
				}
			}
			s.set([]string{"old", "next"}, loose.Bundle)
			check(2*week, all...)
			before := b.blobCount(t)
			s.set([]string{"next"}, loose.Bundle)
			check(0, all...) // noted from here on
			check(week-time.Hour, all...)
			check(week+time.Hour, "kaas/pause:1", "kaas/api:2", "kaas/api:3", "kaas/unknown:1")
			check(week+26*time.Hour, "kaas/pause:1", "kaas/api:2", "kaas/api:3", "kaas/unknown:1")
			if n := b.blobCount(t); n != before-4 {
				t.Errorf("%d blobs, and there were %d", n, before)
			}
			s.set([]string{"next"})
			check(0, "kaas/pause:1", "kaas/api:2", "kaas/api:3", "kaas/unknown:1")
			check(week+time.Hour, "kaas/pause:1", "kaas/api:2", "kaas/unknown:1")
			held, err := (collector{b.reg}).held(t.Context())
			if err != nil || len(held) != 1 || held[0].Name != "next" {
				t.Errorf("held: %+v, %v", held, err)
			}
		})
	}
}

// A release that is needed again before its week is over keeps its images, and so does everything while it is unknown
// what is needed.
func TestReleaseIsNeededAgain(t *testing.T) {
	t.Parallel()
	s := newShelf()
	b := setupWith(t, t.TempDir(), nil, func(c *Config) { c.Releases = s.ask })
	b.stock(t, "old", map[string]v1.Image{"kaas/api:1": someImage(t, 1<<10)})
	b.collect(t, 0)
	s.set([]string{"old"})
	b.collect(t, week+time.Hour)
	s.set(nil)
	b.collect(t, 0) // the week begins again
	s.err = errors.New("a bundle cannot be read")
	b.later(2 * week)
	if err := (collector{b.reg}).collect(t.Context()); !errors.Is(err, s.err) {
		t.Errorf("it is unknown what is needed: %v", err)
	}
	if got := b.there(t, "kaas/api:1"); len(got) != 1 {
		t.Error("the image is gone")
	}
	// A note that cannot be read is no reason to remove what it was about.
	s.err = nil
	note := filepath.Join(b.root, releaseNote(release(t, "old", nil)))
	if err := os.WriteFile(note, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (collector{b.reg}).collect(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged note: %v", err)
	}
	if got := b.there(t, "kaas/api:1"); len(got) != 1 {
		t.Error("the image is gone")
	}
}

// What a director pushed that held nothing yet is held by the first collection, so another release does not take its
// images along.
func TestReleasesOfBeforeAreHeld(t *testing.T) {
	t.Parallel()
	s := newShelf()
	b := setupWith(t, t.TempDir(), nil, func(c *Config) { c.Releases = s.ask })
	pause := b.pushTest(t, b.ref(t, "kaas/pause:1"))
	images := map[string]v1.Image{"kaas/pause:1": pause}
	s.set([]string{"of-before"})
	s.needed.Releases = []Release{release(t, "of-before", images)}
	gone := b.stock(t, "gone", images)
	b.collect(t, 0)
	b.collect(t, week+time.Hour)
	if got := b.there(t, "kaas/pause:1"); len(got) != 1 {
		t.Error("the image is gone")
	}
	held, err := (collector{b.reg}).held(t.Context())
	if err != nil || len(held) != 1 || held[0].Name != "of-before" || held[0].Bundle == gone.Bundle {
		t.Errorf("held: %+v, %v", held, err)
	}
}

// A push that begins while a collection removes the tags finds all images afterwards, and so does one whose collector
// is killed there.
func TestCollectReleasesWhileOneIsPushed(t *testing.T) {
	t.Parallel()
	s := newShelf()
	b := setupWith(t, t.TempDir(), nil, func(c *Config) { c.Releases = s.ask })
	images := map[string]v1.Image{"kaas/pause:1": someImage(t, 1<<10), "kaas/api:1": someImage(t, 1<<10)}
	old := b.stock(t, "old", images)
	b.collect(t, 0)
	aged := func() {
		t.Helper()
		eightDaysAgo := time.Now().Add(-8 * 24 * time.Hour)
		err := os.Chtimes(filepath.Join(b.root, releaseGone(old)), eightDaysAgo, eightDaysAgo)
		manifests, gerr := filepath.Glob(
			filepath.Join(b.root, repositoriesDir, "kaas/*", revisionsDir, "sha256/*/link"),
		)
		for _, m := range manifests {
			err = errors.Join(err, os.Chtimes(m, eightDaysAgo, eightDaysAgo))
		}
		if err := errors.Join(err, gerr); err != nil || len(manifests) != 2 {
			t.Fatal(manifests, err)
		}
	}
	aged()
	c := collector{b.reg}
	if err := c.untagReleases(t.Context(), s.needed, time.Now().Add(-goneFor)); err != nil {
		t.Fatal(err)
	}
	if got := b.there(t, "kaas/pause:1", "kaas/api:1"); len(got) != 0 {
		t.Fatalf("tags are there: %v", got)
	}
	// Killed here. The push has looked for the tags before they went; a new release needs one of the images, too.
	next := release(t, "next", map[string]v1.Image{"kaas/pause:1": images["kaas/pause:1"]})
	if err := errors.Join(b.reg.Hold(t.Context(), old), b.reg.Hold(t.Context(), next)); err != nil {
		t.Fatal(err)
	}
	b.collect(t, 0)
	if got := b.there(t, "kaas/pause:1", "kaas/api:1"); len(got) != 2 {
		t.Errorf("only %v is there", got)
	}
	// Killed before the notes are removed: the next one ends it, and keeps what the new release has.
	s.set([]string{"next"})
	b.collect(t, 0)
	aged()
	if err := c.untagReleases(t.Context(), s.needed, time.Now().Add(-goneFor)); err != nil {
		t.Fatal(err)
	}
	b.collect(t, 0)
	if got := b.there(t, "kaas/pause:1", "kaas/api:1"); !slices.Equal(got, []string{"kaas/pause:1"}) {
		t.Errorf("%v is there", got)
	}
	if held, err := (collector{b.reg}).held(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("held: %+v, %v", held, err)
	}
}
