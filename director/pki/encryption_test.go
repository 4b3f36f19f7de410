package pki

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func keyNames(k EncryptionKeys) (names string) {
	for _, one := range k.Keys {
		names += one.Name + " "
	}
	names += "|"
	for _, one := range k.Former {
		names += " " + one.Name
	}
	return names
}

func TestEncryptionKeysChange(t *testing.T) {
	t.Parallel()
	p, err := NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	k := p.EncryptionKeys()
	first := k.Keys[0].Secret
	for _, stage := range []struct {
		name string
		do   func() bool
		want string
	}{
		{"add", func() bool { k.Add("key2"); return true }, "key1 key2 |"},
		{"use", func() bool { return k.Use("key2") }, "key2 key1 |"},
		{"drop", func() bool { k.Drop(); return true }, "key2 | key1"},
		{"recall", func() bool { return k.Recall("key1") }, "key2 key1 |"},
		{"drop again", func() bool { k.Drop(); return true }, "key2 | key1"},
		{"use what is not there", func() bool { return !k.Use("key1") }, "key2 | key1"},
		{"recall what is not there", func() bool { return !k.Recall("key9") }, "key2 | key1"},
	} {
		for range 2 { // each stage may be cut off and run again
			if !stage.do() || keyNames(k) != stage.want {
				t.Errorf("%s: %s, want %s", stage.name, keyNames(k), stage.want)
			}
		}
	}
	if k.Former[0].Secret != first || k.Keys[0].Secret == first || len(k.Keys[0].Secret.Reveal()) != 44 {
		t.Error("the keys are not those that they were")
	}
	sealed, err := k.Seal(xorSealer{}, "u1", "keys")
	if err != nil || strings.Contains(string(sealed), "key2") {
		t.Fatalf("sealed: %v", err)
	}
	again, err := UnsealEncryptionKeys(xorSealer{}, "u1", "keys", sealed)
	if err != nil || !cmp.Equal(again, k) {
		t.Errorf("unsealed %s, %v", keyNames(again), err)
	}
}
