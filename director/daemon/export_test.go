package daemon

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// What opens a cluster for good is handed out to nobody without a password, and what opens its nodes ends soon.
func TestExportOfSecrets(t *testing.T) {
	t.Parallel()
	const password = "correct horse battery"
	c := simulating(t, threeHosts)
	d, api := created(t, c)

	plain, err := api.Inventory(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range plain {
		if strings.Contains(text, "PRIVATE KEY") || name == "secrets.json" {
			t.Errorf("an inventory without a password has %s:\n%s", name, text)
		}
	}
	if line := plain["authorized_keys"]; !strings.HasPrefix(line, `cert-authority,principals="cluster-`) {
		t.Errorf("what a VM of somebody else needs is %q", line)
	}
	if _, err := api.ExportInventory(
		t.Context(), "demo", "not my password", 0,
	); director.KindOf(err) != director.KindInvalid {
		t.Errorf("with another password: %v", err)
	}
	if _, err := api.ExportInventory(
		t.Context(), "demo", password, 13*time.Hour,
	); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a certificate for 13 hours: %v", err)
	}
	if n := exports(t, c); n != 0 {
		t.Errorf("%d exports that were refused are in the audit", n)
	}
	files, err := api.ExportInventory(t.Context(), "demo", password, 30*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n := exports(t, c); n != 1 {
		t.Errorf("%d events of the audit say that secrets were exported", n)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(files["id_ed25519-cert.pub"]))
	if err != nil {
		t.Fatal(err)
	}
	cert, ok := public.(*ssh.Certificate)
	if !ok || len(cert.ValidPrincipals) != 1 || !strings.HasPrefix(cert.ValidPrincipals[0], "cluster-") {
		t.Fatalf("the certificate is %+v", public)
	}
	if left := time.Until(time.Unix(int64(cert.ValidBefore), 0)); left > 30*time.Minute {
		t.Errorf("it is good for %s", left)
	}
	var vars map[string]any
	if err := json.Unmarshal([]byte(files["secrets.json"]), &vars); err != nil || vars["pki_ca_key"] == nil {
		t.Errorf("the secrets are not whole: %v", err)
	}
	dir := t.TempDir()
	for name, text := range files { // ssh itself finds the certificate beside the key
		file := filepath.Join(dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(
		"ssh-keygen", "-L", "-f", filepath.Join(dir, "id_ed25519-cert.pub"),
	).CombinedOutput(); err != nil || !strings.Contains(string(out), "export admin") {
		t.Errorf("ssh-keygen: %v\n%s", err, out)
	}
	authority := secretsOf(t, c, d)["SSH authority of the cluster"][0]
	for name, text := range files {
		if strings.Contains(text, authority) {
			t.Errorf("%s has the key of the SSH authority", name)
		}
	}
}

// exports counts the events of the audit that say so.
func exports(t *testing.T, c Config) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(c.StateDir, "director.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.QueryRowContext(
		t.Context(),
		"SELECT count(*) FROM audit WHERE actor = 'admin' AND action = 'export secrets' AND object = 'Cluster/demo'",
	).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
