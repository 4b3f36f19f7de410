package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// While the director cannot be reached, a token that is kept is good until its end, and no longer.
func TestKubeTokenWithoutDirector(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("DIRECTOR_SERVER", "")
	a := &app{configFlag: filepath.Join(dir, "config.yaml")}
	c := config{Server: "https://127.0.0.1:1", User: "ann"}
	if err := saveConfig(a.configFlag, c, "kaas_of_ann"); err != nil {
		t.Fatal(err)
	}
	path := c.kubeTokenPath("shop")
	for _, k := range []struct {
		name string
		life time.Duration
		mode os.FileMode
		want bool
	}{
		{"fresh", 5 * time.Minute, 0o600, true},
		{"in its last minute", 30 * time.Second, 0o600, true},
		{"ended", -time.Second, 0o600, false},
		{"read by others", 5 * time.Minute, 0o640, false},
	} {
		keepKubeToken(path, wire.ClusterToken{Token: k.name, ExpiresAt: time.Now().Add(k.life)})
		if err := os.Chmod(path, k.mode); err != nil {
			t.Fatal(err)
		}
		got, err := a.kubeToken(t.Context(), "shop")
		if k.want && (err != nil || got.Token != k.name) {
			t.Errorf("%s: %+v, %v", k.name, got, err)
		}
		if !k.want && director.KindOf(err) != director.KindUnavailable {
			t.Errorf("%s: %+v, %v", k.name, got, err)
		}
	}
	if one, other := path, c.kubeTokenPath("../../shop"); filepath.Dir(one) != filepath.Dir(other) || one == other {
		t.Errorf("%s and %s", one, other)
	}
}
