package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Each cluster pulls with a password of its own, which comes with it, is sealed, and goes with it.
func TestPullCredentials(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.fill()
		now := time.Now()
		p := &pulls{
			db: v.db, keys: v.env.Keys, anonymous: anonymousExisting, log: v.d.log,
			now: func() time.Time { return now }, known: map[string]pullAnswer{},
		}
		password := func(uid string) director.Secret {
			text, err := v.env.SecretVars(t.Context(), step.Facts{UID: uid})
			if err != nil {
				t.Fatal(err)
			}
			var vars map[string]string
			if err := json.Unmarshal(text, &vars); err != nil {
				t.Fatal(err)
			}
			plain, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(vars["registry_authorization"], "Basic "))
			if err != nil {
				t.Fatal(err)
			}
			user, password, _ := strings.Cut(string(plain), ":")
			if user != uid || len(password) < 40 {
				t.Errorf("user %q, a password of %d characters", user, len(password))
			}
			return director.Secret(password)
		}
		if p.read(t.Context(), "u1", "", "") {
			t.Error("a cluster without a password reads")
		}
		one, two := password("u1"), password("u2")
		if one == two || one != password("u1") {
			t.Error("passwords are not one for each cluster")
		}
		now = now.Add(pullsFor)
		for user, tries := range map[string]map[director.Secret]bool{
			"u1": {one: true, two: false, "": false}, "u2": {two: true, one: false}, "u3": {one: false, "": false},
			"": {"": false},
		} {
			for try, want := range tries {
				if got := p.read(t.Context(), user, try, "10.0.0.1"); got != want {
					t.Errorf("%q reads: %t, want %t", user, got, want)
				}
			}
		}
		sealed, err := v.db.Secret(t.Context(), "u1", steps.SecretPull)
		if err != nil || sealed == nil || strings.Contains(string(sealed), one.Reveal()) {
			t.Errorf("the password is not sealed: %v", err)
		}

		// Clusters from before keep pulling without, until they are gone or it is forbidden.
		v.exec("INSERT INTO anonymous_pulls (cluster_uid) VALUES ('u2')")
		now = now.Add(pullsFor)
		if !p.read(t.Context(), "", "", "") {
			t.Error("a cluster from before is refused")
		}
		p.anonymous = anonymousNever
		now = now.Add(pullsFor)
		if p.read(t.Context(), "", "", "") {
			t.Error("anyone reads, though it is forbidden")
		}
		p.anonymous = anonymousExisting
		if err := v.db.Update(t.Context(), func(tx *store.Tx) error {
			return tx.ForgetCluster("u2", "two")
		}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(pullsFor)
		if p.read(t.Context(), "u2", two, "") || p.read(t.Context(), "", "", "") ||
			!p.read(t.Context(), "u1", one, "") {
			t.Error("the access of a cluster does not go with it")
		}
	})
}

// The nodes of a cluster get another password while both are accepted; then the former one ends. Each step may run
// again, and a rotation that stopped half way continues with the password that some nodes have already.
func TestPullPasswordsRotate(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.fill()
		now := time.Now()
		p := &pulls{
			db: v.db, keys: v.env.Keys, anonymous: anonymousExisting, log: v.d.log,
			now: func() time.Time { return now }, known: map[string]pullAnswer{},
		}
		v.env.Pulls, v.env.Records = v.db, clusterRecords{v.db}
		given := func() director.Secret { // to a node that a playbook works on now
			t.Helper()
			text, err := v.env.SecretVars(t.Context(), step.Facts{UID: "u1"})
			if err != nil {
				t.Fatal(err)
			}
			var vars map[string]string
			if err := json.Unmarshal(text, &vars); err != nil {
				t.Fatal(err)
			}
			plain, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(vars["registry_authorization"], "Basic "))
			if err != nil {
				t.Fatal(err)
			}
			_, password, _ := strings.Cut(string(plain), ":")
			return director.Secret(password)
		}
		run := func(kind string) {
			t.Helper()
			r := plan.Run{
				Plan: &plan.Plan{ID: "p1"},
				Step: plan.Step{ID: kind, Kind: kind, Params: []byte(`{"uid": "u1", "cluster": "one"}`)},
			}
			if err := steps.Handlers(v.env)[kind].Run(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			now = now.Add(map[string]time.Duration{step.PullRenew: pullsAgain, step.PullSettle: pullsFor}[kind])
		}
		accepted := func(what string, passwords map[director.Secret]bool) {
			t.Helper()
			for password, want := range passwords {
				if got := p.read(t.Context(), "u1", password, "10.0.0.1"); got != want {
					t.Errorf("%s: accepted %t, want %t", what, got, want)
				}
			}
		}
		v.exec("INSERT INTO anonymous_pulls (cluster_uid) VALUES ('u1')")
		old := given()
		accepted("before", map[director.Secret]bool{old: true, "other": false})
		run(step.PullRenew)
		fresh := given()
		run(step.PullRenew)
		if old == fresh || given() != fresh {
			t.Error("nodes are not given the one new password")
		}
		accepted("meanwhile", map[director.Secret]bool{old: true, fresh: true, "other": false})
		run(step.PullSettle)
		accepted("afterwards", map[director.Secret]bool{old: false, fresh: true})
		run(step.PullSettle)
		accepted("again", map[director.Secret]bool{old: false, fresh: true})
		if given() != fresh || p.read(t.Context(), "", "", "10.0.0.1") {
			t.Error("the cluster has no password, or pulls without one still")
		}
		sealed, err := v.db.Secret(t.Context(), "u1", steps.SecretPullNext)
		if err != nil || sealed != nil {
			t.Errorf("the next password stays: %v", err)
		}
	})
}

// A cluster from before pulls with its password alone once each of its machines has shown it.
func TestAClusterThatShowsItsPasswordNeedsNoAnonymousPulls(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.fill()
		err := v.db.Update(t.Context(), func(tx *store.Tx) error {
			for i, id := range []string{"n1", "n2"} {
				err := tx.IntendMachine(director.Machine{
					ID: id, Name: id, Cluster: "one", ClusterUID: "u1", Provider: "lab", Network: "net",
					Address: fmt.Sprintf("10.99.0.%d", i+1), MAC: fmt.Sprintf("52:54:00:99:00:0%d", i),
				}, time.Now())
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		living, err := v.db.Machines(t.Context(), store.MachineFilter{ClusterUID: "u1"})
		if err != nil {
			t.Fatal(err)
		}
		v.exec("INSERT INTO anonymous_pulls (cluster_uid) VALUES ('u1')")
		p := &pulls{
			db: v.db, keys: v.env.Keys, anonymous: anonymousExisting, log: v.d.log, now: time.Now,
			known: map[string]pullAnswer{},
		}
		// the first play makes the password
		if _, err := v.env.SecretVars(t.Context(), step.Facts{UID: "u1"}); err != nil {
			t.Fatal(err)
		}
		passwords, err := v.env.PullPasswords(t.Context(), "u1")
		if err != nil || len(passwords) != 1 {
			t.Fatalf("%d passwords, %v", len(passwords), err)
		}
		for i, m := range living {
			if p.read(t.Context(), "u1", "wrong", m.Address) || !p.read(t.Context(), "u1", passwords[0], m.Address) ||
				!p.read(t.Context(), "u1", passwords[0], "192.0.2.1") {
				t.Fatalf("the password of %s", m.Name)
			}
			without, err := v.db.AnonymousPulls(t.Context())
			if last := i == len(living)-1; err != nil || (len(without) == 0) != last {
				t.Errorf("after %d of %d nodes: %v, %v", i+1, len(living), without, err)
			}
		}
	})
}

// The migration notes the clusters that are there.
func TestClustersFromBeforePullWithoutCredentials(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.exec(
			"INSERT INTO clusters (uid, name, installed_generation, installed_body, endpoint, installed_at) VALUES " +
				"('u9', 'old', 1, '{}', '', 1)",
		)
		v.exec("DROP TABLE anonymous_pulls")
		v.exec("DELETE FROM schema_migrations WHERE version = '0026_anonymous_pulls'")
		v = openVault(t, c)
		if got, err := v.db.AnonymousPulls(t.Context()); err != nil || fmt.Sprint(got) != "[u9]" {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// The registry and the metrics of a new director answer nobody who shows nothing.
func TestMetricsAndRegistryAreClosed(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(d.path("tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	get := func(url, authorization string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, string(body)
	}
	for _, path := range []string{"/v2/", "/v2/_catalog", "/v2/kaas/pause/tags/list", "/artifacts/x/bin/kubelet"} {
		if code, body := get("https://"+d.registryAddr.String()+path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	token, err := os.ReadFile(d.path("metrics.token"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.path("metrics.token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	metrics := "https://" + d.Addr().String() + "/metrics"
	for _, authorization := range []string{"", "Bearer wrong", "Bearer ", "Basic " + strings.TrimSpace(string(token))} {
		if code, _ := get(metrics, authorization); code != http.StatusUnauthorized {
			t.Errorf("metrics with %.10q: %d", authorization, code)
		}
	}
	if code, body := get(
		metrics, "Bearer "+strings.TrimSpace(string(token)),
	); code != http.StatusOK || !strings.Contains(body, "director_build_info{") ||
		!strings.Contains(body, "director_queue_length 0") {
		t.Errorf("metrics with the token: %d %.200s", code, body)
	}
}
