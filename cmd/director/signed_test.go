package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/simulate"
)

// signedPages are pages of docs/operate whose director trusts a key: signatures, and directors that a director makes
// from a disk that is signed.
var signedPages = scripted{
	dir: "operate", pages: []string{"signatures", "directors"}, script: "testdata/signed.txtar",
	here: strings.NewReplacer(
		"go run ./images/release/assemble", "assemble", "RWQf6LRC...", "$(tail -1 release.key.pub)",
		"https://outer.example.org", "$OUTER",
	),
}

// TestSignedPages runs the commands of signedPages with the real programs, minisign and the documents of these pages.
// The director that a director makes is a second one that simulates.
func TestSignedPages(t *testing.T) {
	t.Parallel()
	_, signatures := manualPage(t, "operate", "signatures")
	_, directors := manualPage(t, "operate", "directors")
	if len(signatures) != 2 || len(directors) != 1 {
		t.Fatalf("the pages show %d and %d documents, want 2 and 1", len(signatures), len(directors))
	}
	testscript.Run(t, testscript.Params{
		Files: []string{signedPages.script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			return signedMachine(t.Context(), env, map[string]string{
				"trust.yaml": signatures[0], "unsigned.yaml": signatures[1], "outer.yaml": directors[0],
			})
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready,
			"answers": func(ts *testscript.TestScript, _ bool, _ []string) {
				waitFor(ts, "the other director does not answer", func(ctx context.Context) error {
					return reach(ctx, strings.TrimPrefix(ts.Getenv("OUTER"), "https://"), ts.MkAbs("outer.cert"))
				})
			},
		},
	})
}

// signedMachine gives a script the documents that pages show, the configurations of its two directors, a bundle, a disk
// and the program assemble.
func signedMachine(ctx context.Context, env *testscript.Env, shown map[string]string) error {
	home, err := newcomer(ctx, env)
	if err != nil {
		return err
	}
	other := [2]string{env.Getenv("API"), env.Getenv("REGISTRY")}
	if _, err := newcomer(ctx, env); err != nil { // further addresses
		return err
	}
	_, port, _ := strings.Cut(other[0], ":")
	env.Setenv("OUTER", "https://localhost:"+port)
	env.Setenv("ETC", filepath.Join(env.WorkDir, "etc"))
	env.Setenv("STATE", filepath.Join(home, "rehearsal"))
	bin := filepath.Join(env.WorkDir, "bin")
	env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
	build := exec.CommandContext(
		ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "assemble"), "../../images/release/assemble",
	)
	if out, err := build.CombinedOutput(); err != nil {
		return errors.New(string(out))
	}
	here := strings.NewReplacer(
		"$WORK", env.WorkDir, "$STATE", env.Getenv("STATE"), "$API", env.Getenv("API"), "$REGISTRY",
		env.Getenv("REGISTRY"), "$OUTER_API", other[0], "$OUTER_REGISTRY", other[1],
		"/var/lib/director", env.WorkDir, "/srv/director/bundles", env.WorkDir,
	)
	for _, file := range []string{"director.yaml", "outer-director.yaml"} {
		text, readErr := os.ReadFile(filepath.Join(env.WorkDir, file))
		err = errors.Join(err, readErr)
		shown[file] = string(text)
	}
	for file, text := range shown {
		err = errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, file), []byte(here.Replace(text)), 0o600))
	}
	_, bundleErr := simulate.Bundle(ctx, env.WorkDir, "k8s-1.37.1", "v1.37.1")
	return errors.Join(err, bundleErr, bootable(filepath.Join(env.WorkDir, "node.raw")))
}
