package steps

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// The list of keys has those of each purpose with their ages, and nothing of a key.
func TestKeys(t *testing.T) {
	t.Parallel()
	env, _, _ := issuing(t, model.Cluster{})
	if keys, err := env.KeysOf(t.Context(), "c1"); err != nil || len(keys) > 0 {
		t.Errorf("before there are any: %v, %v", keys, err)
	}
	p, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := p.Seal(env.Sealer, "c1", SecretPKI)
	if err == nil {
		err = env.Secrets.SetSecret(t.Context(), "c1", SecretPKI, sealed)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []step.SigningVerb{step.SigningAdd, step.SigningUse} {
		change := step.SigningParams{UID: "c1", Do: do, Key: "key2"}
		if err := env.keys().signingKey(t.Context(), plan.Run{}, change); err != nil {
			t.Fatal(err)
		}
	}
	for _, do := range []step.EncryptionVerb{step.EncryptionAdd, step.EncryptionUse, step.EncryptionDrop} {
		change := step.EncryptionParams{UID: "c1", Do: do, Keys: []string{"key2"}}
		if err := env.keys().encryptionKey(t.Context(), plan.Run{}, change); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := env.KeysOf(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for _, k := range keys {
		got = append(got, k.Purpose+" "+k.Name+" "+string(k.State))
		if k.ID == "" || ids[k.ID] || k.Made.IsZero() || time.Since(k.Made) > 2*time.Hour || !k.Ends.IsZero() {
			t.Errorf("%+v", k)
		}
		ids[k.ID] = true
	}
	want := "service-account-key key2 used, service-account-key key1 accepted, encryption-key key2 used, " +
		"encryption-key key1 former, ssh-authority key1 used"
	if list := strings.Join(got, ", "); list != want {
		t.Errorf("%s, want %s", list, want)
	}
	text, err := json.Marshal(keys)
	if err != nil || strings.Contains(string(text), "PRIVATE") ||
		strings.Contains(string(text), p.EncryptionKey.Reveal()) {
		t.Errorf("%s: %v", text, err)
	}
	drop := step.SigningParams{UID: "c1", Do: step.SigningDrop}
	if err := env.keys().signingKey(t.Context(), plan.Run{}, drop); err != nil {
		t.Fatal(err)
	}
	keys, err = env.KeysOf(t.Context(), "c1")
	if err != nil || len(keys) != 5 || keys[1].State != director.KeyFormer || keys[1].ID != "" {
		t.Errorf("after the drop: %+v, %v", keys, err)
	}
}
