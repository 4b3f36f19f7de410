package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/ldap/ldaptest"
	"github.com/director-kaas/kaas/director/oidc/oidctest"
)

// servicePages are pages of docs/operate about services that the director asks.
var servicePages = scripted{
	dir: "operate", pages: []string{"ldap", "oidc", "consul", "consul-sync"}, script: "testdata/services.txtar",
	notRun: map[string]string{"kubectl ": aCluster, "useradd ": aHost, "install ": aHost},
	elsewhere: map[string]string{
		"directorctl consul sync ": "consul", // a director that simulates removes nothing
	},
	here: strings.NewReplacer(`"cn=director,ou=services,dc=example,dc=org"`, "$SEARCHER"),
}

// TestServicePages runs the commands of servicePages with a real OpenLDAP, OpenID Connect provider and Consul, and the
// documents of these pages with their addresses.
func TestServicePages(t *testing.T) {
	t.Parallel()
	ann := "uid=ann," + ldaptest.People
	entries := ldaptest.Person("ann", "correct horse battery") + ldaptest.Person("adam", "another one") +
		ldaptest.Group("operations", ann) + ldaptest.Group("k8s-admins", "uid=adam,"+ldaptest.People)
	directory := ldaptest.Start(t, entries, time.Hour, "unlimited")
	provider := oidctest.Start(t)
	consul := consultest.Start(t)
	_, ldap := manualPage(t, "operate", "ldap")
	_, oidc := manualPage(t, "operate", "oidc")
	_, consuls := manualPage(t, "operate", "consul")
	if len(ldap) != 1 || len(oidc) != 2 || len(consuls) == 0 {
		t.Fatalf("the pages show %d, %d and %d documents", len(ldap), len(oidc), len(consuls))
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "consul.md"))
	policy := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindSubmatch(page)
	if err != nil || policy == nil {
		t.Fatalf("docs/operate/consul.md shows no policy: %v", err)
	}
	files := map[string]string{
		"ldap.yaml": strings.NewReplacer(
			"type: ad", "type: ldap", "ldaps://dc1.example.org, ldaps://dc2.example.org", directory.URLS,
		).Replace(withCA(ldap[0], string(directory.CA))),
		"oidc.yaml": strings.ReplaceAll(
			oidc[1]+"  ca: |\n    "+indent(string(provider.CA), "    "),
			"https://sso.example.org/realms/corp", provider.Issuer,
		),
		"consul.yaml": strings.ReplaceAll(
			withCA(consuls[0], consul.CA),
			"https://consul1.example.org:8501, https://consul2.example.org:8501", consul.URL,
		),
		"director.hcl": string(policy[1]), "consul.pem": consul.CA, "key": consul.Gossip,
		"password": ldaptest.Password, "secret": oidctest.Secret,
	}
	testscript.Run(t, testscript.Params{
		Files: []string{servicePages.script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error { return serviceMachine(t.Context(), env, consul, files) },
		Cmds:  map[string]func(*testscript.TestScript, bool, []string){"ready": ready},
	})
}

// shownCA is the picture of a certificate in a document, with its indentation.
var shownCA = regexp.MustCompile(`(?s)( +)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n`)

// withCA returns the document with the certificate instead of the picture of one.
func withCA(document, ca string) string {
	return shownCA.ReplaceAllStringFunc(document, func(shown string) string {
		spaces := shown[:len(shown)-len(strings.TrimLeft(shown, " "))]
		return spaces + indent(ca, spaces)
	})
}

func indent(text, spaces string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+spaces) + "\n"
}

// serviceMachine gives a script the files, the configuration of its director, and the program of Consul with the
// settings of an administrator.
func serviceMachine(
	ctx context.Context, env *testscript.Env, consul *consultest.Server, files map[string]string,
) error {
	home, err := newcomer(ctx, env)
	if err != nil {
		return err
	}
	env.Setenv("STATE", filepath.Join(home, "rehearsal"))
	bin := filepath.Join(env.WorkDir, "bin")
	for name, value := range map[string]string{
		"SEARCHER":         ldaptest.BindDN,
		"PATH":             bin + string(os.PathListSeparator) + env.Getenv("PATH"),
		"CONSUL_HTTP_ADDR": consul.URL, "CONSUL_HTTP_TOKEN": consul.Management,
		"CONSUL_CACERT": filepath.Join(env.WorkDir, "consul.pem"), "CONSUL_TLS_SERVER_NAME": consultest.Name,
	} {
		env.Setenv(name, value)
	}
	config, err := os.ReadFile(filepath.Join(env.WorkDir, "director.yaml"))
	files["director.yaml"] = strings.NewReplacer(
		"$STATE", env.Getenv("STATE"), "$API", env.Getenv("API"), "$REGISTRY", env.Getenv("REGISTRY"),
	).Replace(string(config))
	err = errors.Join(err, os.Mkdir(bin, 0o700), os.Symlink(consul.Binary, filepath.Join(bin, "consul")))
	for file, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, file), []byte(text), 0o600))
	}
	return err
}
