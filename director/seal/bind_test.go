package seal

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
)

// unbound seals as directors did that bound nothing, and as anyone can who knows the public half of the key.
func unbound(t *testing.T, public, plain string) []byte {
	t.Helper()
	recipient, err := age.ParseX25519Recipient(public)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(plain)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func testBox(t *testing.T) *Box {
	t.Helper()
	box, err := Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// What was sealed for one row opens in no other, also where owner and name run into each other.
func TestUnsealRefusesAnotherRow(t *testing.T) {
	t.Parallel()
	box := testBox(t)
	sealed, err := box.Seal("u1", "pki", []byte("a canary"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range [][2]string{{"u2", "pki"}, {"u1", "token"}, {"u1p", "ki"}, {"", "u1pki"}, {"pki", "u1"}} {
		plain, err := box.Unseal(at[0], at[1], sealed)
		if plain != nil || director.KindOf(err) != director.KindInternal ||
			!strings.Contains(director.HintOf(err), "changed the database") {
			t.Errorf("%v: got %q, %v (hint %q)", at, plain, err, director.HintOf(err))
		}
	}
	if plain, err := box.Unseal("u1", "pki", sealed); err != nil || string(plain) != "a canary" {
		t.Errorf("its own row: %q, %v", plain, err)
	}
}

// The public half of the key, which is in the database, is not enough to make up a secret.
func TestUnsealRefusesWhatAnyoneCanSeal(t *testing.T) {
	t.Parallel()
	box := testBox(t)
	forged := unbound(t, box.Public(), "a key that the attacker knows")
	if plain, err := box.Unseal(
		"u1", "pki", forged,
	); plain != nil || !strings.Contains(director.HintOf(err), BoundFile) {
		t.Errorf("got %q, %v (hint %q)", plain, err, director.HintOf(err))
	}
	// A tag from elsewhere does not help: it is over the key of another content.
	legit, err := box.Seal("u1", "pki", []byte("a canary"))
	if err != nil {
		t.Fatal(err)
	}
	tag := legit[bytes.Index(legit, []byte("-> "+stanzaType)):]
	tag = tag[:bytes.Index(tag, []byte("--- "))]
	at := bytes.Index(forged, []byte("--- "))
	spliced := append(append(bytes.Clone(forged[:at]), tag...), forged[at:]...)
	if plain, err := box.Unseal("u1", "pki", spliced); plain != nil || director.KindOf(err) != director.KindInternal {
		t.Errorf("with another's tag: %q, %v", plain, err)
	}
}

func TestBind(t *testing.T) {
	t.Parallel()
	box, other := testBox(t), testBox(t)
	old := unbound(t, box.Public(), "a canary")
	box.AcceptUnbound(true)
	if plain, err := box.Unseal("u1", "pki", old); err != nil || string(plain) != "a canary" {
		t.Errorf("while old rows are accepted: %q, %v", plain, err)
	}
	bound, err := box.Bind("u1", "pki", old)
	if err != nil {
		t.Fatal(err)
	}
	box.AcceptUnbound(false)
	if plain, err := box.Unseal("u1", "pki", bound); err != nil || string(plain) != "a canary" {
		t.Errorf("bound: %q, %v", plain, err)
	}
	// A director that knows nothing of bindings opens it, too: it may still run beside this one.
	if plain, err := box.open(box.identity, bound); err != nil || string(plain) != "a canary" {
		t.Errorf("an older director: %q, %v", plain, err)
	}
	for _, at := range [][2]string{{"u1", "pki"}, {"u2", "pki"}} { // it never moves what is bound
		if again, err := box.Bind(at[0], at[1], bound); again != nil || err != nil {
			t.Errorf("bound again at %v: %q, %v", at, again, err)
		}
	}
	for name, sealed := range map[string][]byte{
		"damaged": []byte("plain"), "another key": unbound(t, other.Public(), "x"),
	} {
		if got, err := box.Bind("u1", "pki", sealed); got != nil || director.KindOf(err) != director.KindInternal {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
