package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup/s3test"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

func TestRegistryBucketSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, err := pki.NewCA("of the bucket")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"key": "secret of the key\n", "empty": "\n", "open": "x", "ca": ca.Cert} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "open"), 0o640); err != nil {
		t.Fatal(err)
	}
	const whole = "url: 'https://s3:9000', bucket: images, accessKey: director, secretKeyFile: DIR/key"
	for text, want := range map[string][]string{
		"{}":                                 nil,
		"{" + whole + "}":                    nil,
		"{" + whole + ", caFile: DIR/ca}":    nil,
		"{" + whole + ", prefix: site-a/r}":  nil,
		"{bucket: images}":                   {"url"},
		"{" + whole + ", caFile: ca}":        {"caFile"},
		"{" + whole + ", caFile: DIR/key}":   {"caFile"},
		"{" + whole + ", prefix: ../other}":  {"prefix"},
		"{" + whole + ", region: 'a b'}":     {"region"},
		"{url: 'http://s3', bucket: images}": {"url", "accessKey", "secretKeyFile"},
		"{url: 'https://u:p@s3', bucket: Images, accessKey: a, secretKeyFile: DIR/key}": {"url", "bucket"},
		"{url: 'https://s3/x', bucket: images, accessKey: ' a', secretKeyFile: DIR}": {
			"url", "accessKey", "secretKeyFile",
		},
		"{url: 'https://s3', bucket: images, accessKey: a, secretKeyFile: DIR/open}":  {"secretKeyFile"},
		"{url: 'https://s3', bucket: images, accessKey: a, secretKeyFile: DIR/empty}": {"secretKeyFile"},
		"{url: 'https://s3', bucket: images, accessKey: a, secretKeyFile: DIR/none}":  {"secretKeyFile"},
	} {
		path := filepath.Join(dir, "director.yaml")
		text = "stateDir: /x\naddress: 10.0.0.1\nregistryBucket: " + strings.ReplaceAll(text, "DIR", dir)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadConfig(path)
		var got []string
		if e, ok := errors.AsType[*director.Error](err); ok {
			for _, f := range e.Fields {
				if f.Msg == "" || f.Hint == "" || strings.Contains(f.Msg, "secret of") {
					t.Errorf("%s: %+v", text, f)
				}
				got = append(got, strings.TrimPrefix(f.Path, "registryBucket."))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", text, err, diff)
		}
	}
}

// bucketOf is the configuration of a registry in the bucket of a server.
func bucketOf(t *testing.T, s *s3test.Server) RegistryBucket {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"key": s.Secret.Reveal(), "ca": s.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return RegistryBucket{
		URL: s.URL, Bucket: s.Bucket, AccessKey: s.Key, SecretKeyFile: dir + "/key", CAFile: dir + "/ca",
	}
}

// A plan whose release goes into a bucket that is away waits for it, and spends no attempts.
func TestPlanWaitsForTheBucket(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	c := simulating(t, demoDocuments)
	c.RegistryBucket = bucketOf(t, s)
	s.Kill()
	d, api := opened(t, c)
	id := started(t, api, plan.ClusterCreate)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const push = "release.push/k8s"
	events := func(kinds ...plan.EventKind) (found []plan.Event) {
		t.Helper()
		all, _, err := d.services.db.EventPage(ctx, id, store.EventQuery{Kinds: kinds, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Step == push {
				found = append(found, e)
			}
		}
		return found
	}
	for tick := time.NewTicker(100 * time.Millisecond); len(events(plan.NotReady)) < 2; <-tick.C {
	}
	if said := events(plan.NotReady)[0].Message; !strings.Contains(said, "bucket") || strings.Contains(said, s.URL) {
		t.Errorf("it waits because %q", said)
	}
	s.Again(t)
	wantPlanDone(t, api, id)
	if tried := events(plan.Retry); len(tried) > 0 {
		t.Errorf("attempts were spent: %+v", tried)
	}
}

// A director works on while its bucket is away, starts without it, and says so.
func TestDirectorWithoutItsBucket(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	c := testConfig(t)
	c.RegistryBucket = bucketOf(t, s)
	s.Kill()
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	says := func(want, metric string) {
		t.Helper()
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for end := time.Now().Add(time.Minute); ; <-look.C {
			code, body := get(t, c, d, "/readyz")
			shown := httptest.NewRecorder()
			d.metrics(d.services.db, Build{}).Handler().ServeHTTP(
				shown, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil),
			)
			if code != http.StatusOK || strings.Contains(body, s.URL) {
				t.Fatalf("a director is ready without its bucket, and says nothing of where it is: %d %s", code, body)
			}
			if strings.Contains(body, want) && bytes.Contains(shown.Body.Bytes(), []byte(metric)) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it does not say %s: %s", want, body)
			}
		}
	}
	says(`"name":"registry-bucket","ok":false`, "director_registry_bucket_up 0")
	s.Again(t)
	says(`"name":"registry-bucket","ok":true`, "director_registry_bucket_up 1")
}
