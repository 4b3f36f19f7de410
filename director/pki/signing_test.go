package pki

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSigningKeysChange(t *testing.T) {
	t.Parallel()
	p, err := NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	k := p.SigningKeys()
	first := k.Keys[0]
	for _, stage := range []struct {
		name string
		do   func() bool
		want string
	}{
		{"add", func() bool { return k.Add("key2") == nil }, "key1 key2 |"},
		{"use", func() bool { return k.Use("key2") }, "key2 key1 |"},
		{"drop", func() bool { k.Drop(); return true }, "key2 | key1"},
		{"use what is not there", func() bool { return !k.Use("key1") }, "key2 | key1"},
	} {
		var once SigningKeys
		for again := range 2 { // each stage may be cut off and run again
			ok := stage.do()
			if got := strings.Join(append(append(k.Names(), "|"), k.Former...), " "); !ok || got != stage.want {
				t.Errorf("%s: %s, want %s", stage.name, got, stage.want)
			}
			if again == 1 && !cmp.Equal(once, k) {
				t.Errorf("%s: a second run gave other keys", stage.name)
			}
			once = k
		}
		vars := k.Vars()
		if vars["pki_sa_key"] != k.Keys[0].Key.Reveal() || !strings.HasPrefix(vars["pki_sa_pub"], k.Keys[0].Public) ||
			strings.Count(vars["pki_sa_pub"], "BEGIN PUBLIC KEY") != len(k.Keys) {
			t.Errorf("%s: the masters get %s", stage.name, vars["pki_sa_pub"])
		}
	}
	if k.Keys[0].Key == first.Key || k.Keys[0].Public == first.Public {
		t.Error("the key is the former one")
	}
	sealed, err := k.Seal(xorSealer{}, "u1", "keys")
	if err != nil || strings.Contains(string(sealed), "key2") {
		t.Fatalf("sealed: %v", err)
	}
	again, err := UnsealSigningKeys(xorSealer{}, "u1", "keys", sealed)
	if err != nil || !cmp.Equal(again, k) {
		t.Errorf("unsealed %v, %v", again.Names(), err)
	}
	if sealed, err = (xorSealer{}).Seal("u1", "keys", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := UnsealSigningKeys(xorSealer{}, "u1", "keys", sealed); err == nil {
		t.Error("no keys were read as keys")
	}
}
