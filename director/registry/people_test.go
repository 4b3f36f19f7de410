package registry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/director-kaas/kaas/director"
)

// crowd are people of two projects. The password of each is "of " and the name.
type crowd struct {
	mu       sync.Mutex
	projects map[string]Project
	rights   map[string]map[string]Rights // by person and project
	deeds    []Deed
	mute     bool // nothing can be recorded
}

func newCrowd() *crowd {
	return &crowd{
		projects: map[string]Project{"web": {UID: "w1"}, "shop": {UID: "s1"}},
		rights: map[string]map[string]Rights{
			"ann": {"web": {Pull: true, Push: true}}, "joe": {"web": {Pull: true, Push: true}},
			"bob": {"web": {Pull: true}}, "eve": {"shop": {Pull: true, Push: true}},
		},
	}
}

func (c *crowd) Enter(_ context.Context, name string, password director.Secret) (Person, error) {
	switch {
	case name == "slow":
		return Person{}, director.Errorf(director.KindExhausted, "test", "too many").WithHint("try again in 8 s")
	case c.rights[name] == nil || password.Reveal() != "of "+name:
		return Person{}, director.Errorf(director.KindUnauthenticated, "test", "no")
	}
	return Person{Name: name, Releases: true, May: func(_ context.Context, project string) (Rights, error) {
		return c.rights[name][project], nil
	}}, nil
}

func (c *crowd) Project(_ context.Context, name string) (Project, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.projects[name]
	if !ok {
		return p, director.Errorf(director.KindNotFound, "test", "no")
	}
	return p, nil
}

func (c *crowd) Projects(context.Context) (map[string]Project, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]Project{}
	for name, p := range c.projects {
		out[name] = p
	}
	return out, nil
}

func (c *crowd) ProjectOf(_ context.Context, user string) (string, error) {
	return map[string]string{"u1": "web"}[user], nil
}

func (c *crowd) Record(_ context.Context, d Deed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute {
		return errors.New("the trail is away")
	}
	c.deeds = append(c.deeds, d)
	return nil
}

func (c *crowd) set(project string, p Project) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.projects[project] = p
}

func peopled(t *testing.T) (*bundle, *crowd) {
	t.Helper()
	c := newCrowd()
	return setupWith(t, t.TempDir(), nil, func(cfg *Config) { cfg.People = c }), c
}

func (b *bundle) person(t *testing.T, name string) []remote.Option {
	t.Helper()
	return b.as(t, &authn.Basic{Username: name, Password: "of " + name})
}

func someImage(t *testing.T, size int64) v1.Image {
	t.Helper()
	img, err := random.Image(size, 2)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// ask sends one request as a person, and returns the answer with its body.
func (b *bundle) ask(t *testing.T, who, method, url, contentType, body string) (*http.Response, string) {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = "https://" + b.reg.Addr().String() + url
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(who, "of "+who)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := b.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func TestPeoplePushAndPull(t *testing.T) {
	t.Parallel()
	b, c := peopled(t)
	ref, img := b.ref(t, "projects/web/app:1"), someImage(t, 1<<16)
	if err := remote.Write(ref, img, b.person(t, "ann")...); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"ann", "bob", "u1"} {
		got, err := remote.Image(ref, b.person(t, who)...)
		if err == nil {
			err = validate.Image(got)
		}
		if err != nil {
			t.Errorf("%s cannot pull: %v", who, err)
		}
	}
	if _, err := remote.Image(ref, b.as(t, authn.Anonymous)...); err == nil {
		t.Error("an image of a project is pulled without credentials")
	}
	another := someImage(t, 1<<10)
	for who, status := range map[string]int{
		"bob": http.StatusForbidden, "eve": http.StatusNotFound, "u1": http.StatusUnauthorized,
		"nobody": http.StatusUnauthorized, "slow": http.StatusTooManyRequests,
	} {
		if err := remote.Write(ref, another, b.person(t, who)...); statusOf(err) != status {
			t.Errorf("%s pushes: %v, want %d", who, err, status)
		}
		if err := remote.Delete(ref, b.person(t, who)...); statusOf(err) != status {
			t.Errorf("%s deletes: %v, want %d", who, err, status)
		}
	}
	err := remote.Write(b.ref(t, "kaas/pause:1"), img, b.person(t, "ann")...)
	if statusOf(err) != http.StatusForbidden {
		t.Errorf("a person pushes an image of a release: %v", err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Delete(b.ref(t, "projects/web/app@"+d.String()), b.person(t, "ann")...); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Image(ref, b.person(t, "ann")...); statusOf(err) != http.StatusNotFound {
		t.Errorf("what was deleted: %v", err)
	}
	var done []string
	for _, one := range c.deeds {
		if one.Err == nil {
			done = append(done, one.Person+" "+one.Repository+" "+one.Image)
		}
	}
	want := []string{"ann projects/web/app 1", "ann projects/web/app " + d.String()}
	if strings.Join(done, ",") != strings.Join(want, ",") {
		t.Errorf("recorded: %q, want %q", done, want)
	}
	c.mute = true
	if err := remote.Write(ref, img, append(b.person(t, "ann"), remote.WithRetryStatusCodes())...); statusOf(err) !=
		http.StatusServiceUnavailable {
		t.Errorf("a push that is not recorded: %v", err)
	}
}

// What someone may not see answers as what there is not, and is in no list.
func TestPeopleSeeTheirProjects(t *testing.T) {
	t.Parallel()
	b, _ := peopled(t)
	img := someImage(t, 1<<10)
	b.pushTest(t, b.ref(t, "kaas/pause:1"))
	for ref, who := range map[string]string{
		"projects/web/app:1": "ann", "projects/web/app/part:1": "ann", "projects/web/app-b:1": "ann",
		"projects/shop/till:1": "eve",
	} {
		if err := remote.Write(b.ref(t, ref), img, b.person(t, who)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/tags/list", "/manifests/1", "/blobs/sha256:" + strings.Repeat("0", 64)} {
		there, text := b.ask(t, "eve", http.MethodGet, "/v2/projects/web/app"+path, "", "")
		not, none := b.ask(t, "eve", http.MethodGet, "/v2/projects/nowhere/app"+path, "", "")
		if there.StatusCode != http.StatusNotFound || there.StatusCode != not.StatusCode || text != none {
			t.Errorf("%s: %d %s, and without the project: %d %s", path, there.StatusCode, text, not.StatusCode, none)
		}
	}
	for who, want := range map[string]string{
		"ann": "kaas/pause,projects/web/app,projects/web/app/part,projects/web/app-b",
		"u1":  "kaas/pause,projects/web/app,projects/web/app/part,projects/web/app-b",
		"eve": "kaas/pause,projects/shop/till",
	} {
		for _, page := range []string{"", "?n=1"} {
			var all []string
			for next := "/v2/_catalog" + page; next != ""; {
				resp, text := b.ask(t, who, http.MethodGet, next, "", "")
				var got struct{ Repositories []string }
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				all = append(all, got.Repositories...)
				next, _, _ = strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
			}
			if got := strings.Join(all, ","); got != want {
				t.Errorf("%s%s sees %s, want %s", who, page, got, want)
			}
		}
	}
}

// Names that lead elsewhere, blobs of others and uploads of others get nobody anything.
func TestPeopleStayInTheirPlace(t *testing.T) {
	t.Parallel()
	b, _ := peopled(t)
	img := someImage(t, 1<<10)
	if err := remote.Write(b.ref(t, "projects/shop/till:1"), img, b.person(t, "eve")...); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/v2/projects/web/../shop/till/manifests/1", "/v2/projects/web/%2e%2e/shop/till/manifests/1",
		"/v2/projects%2fshop/till/manifests/1", "/v2/projects//shop/till/manifests/1", "/v2/projects/shop/manifests/1",
		"/v2//projects/shop/till/manifests/1", "/v2/./projects/shop/till/manifests/1", "/v2/projects/manifests/1",
	} {
		if resp, text := b.ask(t, "ann", http.MethodGet, path, "", ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	d, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	mount := "mount=" + d.String() + "&from=projects/shop/till"
	const uploads = "/v2/projects/web/app/blobs/uploads/"
	for _, try := range [][3]string{
		{uploads + "?" + mount, "", ""},
		{uploads, "application/x-www-form-urlencoded", mount},
		{uploads + "?from=projects/web/x&" + mount, "", ""},
		{uploads + "?from=projects/web/../shop/till&" + mount, "", ""},
	} {
		resp, text := b.ask(t, "ann", http.MethodPost, try[0], try[1], try[2])
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("mount by %q: %d %s", try, resp.StatusCode, text)
		}
	}
	if resp, _ := b.ask(t, "ann", http.MethodHead, "/v2/projects/web/app/blobs/"+d.String(), "", ""); resp.StatusCode !=
		http.StatusNotFound {
		t.Errorf("the blob of another project is there: %d", resp.StatusCode)
	}
	begun, _ := b.ask(t, "ann", http.MethodPost, uploads, "", "")
	at := begun.Header.Get("Location")
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodPut, http.MethodDelete} {
		if resp, text := b.ask(t, "joe", method, at, "", "x"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s to the upload of another: %d %s", method, resp.StatusCode, text)
		}
	}
	if resp, text := b.ask(t, "bob", http.MethodGet, at, "", ""); resp.StatusCode != http.StatusForbidden {
		t.Errorf("who may only pull sees an upload: %d %s", resp.StatusCode, text)
	}
	if resp, text := b.ask(t, "ann", http.MethodPatch, at, "", "mine"); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the own upload: %d %s", resp.StatusCode, text)
	}
	alone, _ := b.ask(t, "eve", http.MethodDelete, "/v2/projects/shop/till/blobs/"+d.String(), "", "")
	if alone.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a blob is deleted alone: %d", alone.StatusCode)
	}
	if resp, _ := b.ask(t, "eve", http.MethodPut, "/v2/projects/shop/till/manifests/2",
		"application/vnd.oci.image.manifest.v1+json", strings.Repeat(" ", 5<<20)); resp.StatusCode < 400 {
		t.Errorf("a manifest of 5 MiB: %d", resp.StatusCode)
	}
}

func TestQuotaOfImages(t *testing.T) {
	t.Parallel()
	b, c := peopled(t)
	c.set("web", Project{UID: "w1", Images: 1 << 20})
	once := func(who string) []remote.Option { return append(b.person(t, who), remote.WithRetryStatusCodes()) }
	small := someImage(t, 200<<10) // two layers
	if err := remote.Write(b.ref(t, "projects/web/app:1"), small, once("ann")...); err != nil {
		t.Fatal(err)
	}
	before, most, err := b.reg.Usage(t.Context(), "web")
	if err != nil || before < 400<<10 || before > 410<<10 || most != 1<<20 {
		t.Errorf("%d of %d bytes are used, %v", before, most, err)
	}
	if err := remote.Write(b.ref(t, "projects/web/other:1"), small, once("ann")...); err != nil {
		t.Errorf("what the project has already: %v", err)
	}
	if used, _, err := b.reg.Usage(t.Context(), "web"); used != before || err != nil {
		t.Errorf("what images share counts once: %d, and not %d; %v", used, before, err)
	}
	if _, _, err := b.reg.Usage(t.Context(), "none"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("no project: %v", err)
	}
	err = remote.Write(b.ref(t, "projects/web/app:2"), someImage(t, 400<<10), once("joe")...)
	e, ok := errors.AsType[*transport.Error](err)
	if !ok || e.StatusCode != http.StatusForbidden || len(e.Errors) != 1 ||
		e.Errors[0].Code != transport.DeniedErrorCode ||
		!strings.Contains(e.Errors[0].Message, "of the project web have") ||
		!strings.Contains(e.Errors[0].Message, "they may have 1.0 MiB") {
		t.Errorf("over the quota: %v", err)
	}
	if err := remote.Write(b.ref(t, "projects/shop/app:2"), someImage(t, 400<<10), once("eve")...); err != nil {
		t.Errorf("another project: %v", err)
	}
	d, err := small.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app", "other"} {
		if err := remote.Delete(b.ref(t, "projects/web/"+name+"@"+d.String()), once("ann")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Write(b.ref(t, "projects/web/app:3"), someImage(t, 200<<10), once("ann")...); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	b.reg.largest = 100 << 10
	if err := remote.Write(b.ref(t, "projects/shop/app:3"), someImage(t, 200<<10), once("eve")...); statusOf(err) !=
		http.StatusForbidden {
		t.Errorf("a layer that is too large: %v", err)
	}
	b.reg.largest = largestBlob
	b.reg.cfg.Room = func() error {
		return director.Errorf(director.KindExhausted, "test", "the data disk has 1 MiB left")
	}
	if err := remote.Write(b.ref(t, "projects/shop/app:4"), someImage(t, 1<<10), once("eve")...); statusOf(err) !=
		http.StatusForbidden || !strings.Contains(err.Error(), "1 MiB left") {
		t.Errorf("on a full disk: %v", err)
	}
}

// later lets the registry look at what it has as if that time had passed.
func (b *bundle) later(d time.Duration) { b.ahead.Store(int64(d)) }

func (b *bundle) blobCount(t *testing.T) (n int) {
	t.Helper()
	for d, err := range (collector{b.reg}).blobs(t.Context()) {
		_, there, serr := b.reg.exists(t.Context(), blobPath(d))
		if err := errors.Join(err, serr); err != nil {
			t.Fatal(err)
		}
		if there {
			n++
		}
	}
	return n
}

func TestCollect(t *testing.T) {
	t.Parallel()
	b, c := peopled(t)
	release := b.pushTest(t, b.ref(t, "kaas/pause:1")) // three layers, a configuration and a manifest
	first, second := someImage(t, 1<<10), someImage(t, 1<<10)
	for _, img := range []v1.Image{first, second} { // the second takes the tag over
		if err := remote.Write(b.ref(t, "projects/web/app:1"), img, b.person(t, "ann")...); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Write(b.ref(t, "projects/shop/till:1"), someImage(t, 1<<10), b.person(t, "eve")...); err != nil {
		t.Fatal(err)
	}
	collect := func(after time.Duration, want int) {
		t.Helper()
		b.later(after)
		if err := (collector{b.reg}).collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := b.blobCount(t); n != want {
			t.Errorf("after %s: %d blobs, want %d", after, n, want)
		}
	}
	collect(time.Hour, 5+3*4)
	collect(25*time.Hour, 5+2*4)
	c.mu.Lock()
	delete(c.projects, "shop")
	c.mu.Unlock()
	collect(26*time.Hour, 5+2*4)
	collect(6*24*time.Hour, 5+2*4)
	collect(8*24*time.Hour, 5+4)
	for ref, img := range map[string]v1.Image{"kaas/pause:1": release, "projects/web/app:1": second} {
		got, err := remote.Image(b.ref(t, ref), b.person(t, "ann")...)
		if err == nil {
			err = validate.Image(got)
		}
		if err != nil {
			t.Errorf("%s: %v", ref, err)
		}
		have, herr := got.Digest()
		want, werr := img.Digest()
		if have != want || herr != nil || werr != nil {
			t.Errorf("%s is %s, want %s", ref, have, want)
		}
	}
	// A project that is made again gets nothing of the former one.
	c.set("web", Project{UID: "w2"})
	if used, _, err := b.reg.Usage(t.Context(), "web"); used != 0 || err != nil {
		t.Errorf("the former project's images count: %d bytes, %v", used, err)
	}
	_, err := remote.Image(b.ref(t, "projects/web/app:1"), b.person(t, "ann")...)
	if statusOf(err) != http.StatusNotFound {
		t.Errorf("an image of a former project: %v", err)
	}
	if err := remote.Write(b.ref(t, "projects/web/new:1"), someImage(t, 1<<10), b.person(t, "ann")...); err != nil {
		t.Fatal(err)
	}
	if _, text := b.ask(t, "ann", http.MethodGet, "/v2/_catalog", "", ""); strings.Contains(text, "web/app") {
		t.Errorf("the former project's repositories are there: %s", text)
	}
}

// What was pushed is whole, whatever a collection that spares nothing took meanwhile.
func TestCollectWhilePeoplePush(t *testing.T) {
	t.Parallel()
	b, _ := peopled(t)
	b.later(48 * time.Hour)
	img := someImage(t, 1<<10)
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	begin, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range begin {
			if err := (collector{b.reg}).collect(t.Context()); err != nil {
				t.Logf("a collection: %v", err)
			}
		}
	}()
	name := func(i int) string { return "projects/web/app" + strconv.Itoa(i) }
	left := map[int]bool{}
	for i := range 20 {
		if i%3 != 0 { // some have the registry for themselves
			begin <- struct{}{}
		}
		if err := remote.Write(b.ref(t, name(i)+":1"), img, b.person(t, "ann")...); err != nil {
			continue // the client was told
		}
		left[i] = true
		if i%2 == 1 {
			if err := remote.Delete(b.ref(t, name(i)+"@"+d.String()), b.person(t, "ann")...); err == nil {
				delete(left, i)
			}
		}
	}
	close(begin)
	<-done
	if len(left) == 0 {
		t.Error("no push succeeded")
	}
	for i := range left {
		got, err := remote.Image(b.ref(t, name(i)+":1"), b.person(t, "ann")...)
		if err == nil {
			err = validate.Image(got)
		}
		if err != nil {
			t.Errorf("an image that was pushed: %v", err)
		}
	}
}
