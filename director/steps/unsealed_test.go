package steps

import (
	"errors"
	"testing"
)

// countingSealer seals nothing and counts what it opens.
type countingSealer struct {
	opened int
	err    error
}

func (c *countingSealer) Seal(_, _ string, plain []byte) ([]byte, error) { return plain, nil }

func (c *countingSealer) Unseal(_, _ string, sealed []byte) ([]byte, error) {
	c.opened++
	return sealed, c.err
}

func TestPublicRowsAreOpenedOnce(t *testing.T) {
	t.Parallel()
	public, private := `{"private":"","public":"ssh-ed25519 A"}`, `{"private":"P","public":"ssh-ed25519 A"}`
	for name, tt := range map[string]struct {
		rows  [][3]string // owner, name, content
		times int         // that the sealer opens one
	}{
		"the same row":              {[][3]string{{"m1", SecretHostKey, public}, {"m1", SecretHostKey, public}}, 1},
		"trust":                     {[][3]string{{"m1", SecretTrust, "{}"}, {"m1", SecretTrust, "{}"}}, 1},
		"of another machine":        {[][3]string{{"m1", SecretHostKey, public}, {"m2", SecretHostKey, public}}, 2},
		"of another name":           {[][3]string{{"m1", SecretHostKey, public}, {"m1", SecretTrust, public}}, 2},
		"changed":                   {[][3]string{{"m1", SecretTrust, "{}"}, {"m1", SecretTrust, `{"a":1}`}}, 2},
		"with its private part":     {[][3]string{{"m1", SecretHostKey, private}, {"m1", SecretHostKey, private}}, 2},
		"what is no key":            {[][3]string{{"m1", SecretHostKey, "x"}, {"m1", SecretHostKey, "x"}}, 2},
		"the keys of a cluster":     {[][3]string{{"u1", SecretPKI, public}, {"u1", SecretPKI, public}}, 2},
		"the director's former key": {[][3]string{{"d1", SecretSSH, public}, {"d1", SecretSSH, public}}, 2},
	} {
		sealer := &countingSealer{}
		u := newUnsealed(sealer)
		for _, row := range tt.rows {
			plain, err := u.Unseal(row[0], row[1], []byte(row[2]))
			if err != nil || string(plain) != row[2] {
				t.Errorf("%s: %q, %v", name, plain, err)
			}
			for i := range plain { // the caller's own
				plain[i] = 0
			}
		}
		if sealer.opened != tt.times {
			t.Errorf("%s: opened %d times, want %d", name, sealer.opened, tt.times)
		}
	}
}

func TestPublicPartsOfPairsAreOpenedOnce(t *testing.T) {
	t.Parallel()
	sealer := &countingSealer{}
	u := newUnsealed(sealer)
	pair := func(public string) []byte { return []byte(`{"private":"P","public":"` + public + `"}`) }
	for _, row := range []struct {
		machine, public string
		opened          int // so far
	}{
		{machine: "m1", public: "ssh-ed25519 A", opened: 1},
		{machine: "m1", public: "ssh-ed25519 A", opened: 1},
		{machine: "m2", public: "ssh-ed25519 A", opened: 2},
		{machine: "m1", public: "ssh-ed25519 B", opened: 3}, // it has another key now
		{machine: "m1", public: "ssh-ed25519 B", opened: 3},
	} {
		got, err := u.hostKey(row.machine, pair(row.public))
		if err != nil || got != row.public || sealer.opened != row.opened {
			t.Errorf("%s: %q, %v, opened %d times, want %q and %d", row.machine, got, err, sealer.opened, row.public,
				row.opened)
		}
	}
	if len(u.plain) > 0 {
		t.Error("private parts are remembered")
	}
}

func TestWhatDoesNotOpenIsAskedAgain(t *testing.T) {
	t.Parallel()
	sealer := &countingSealer{err: errors.New("damaged")}
	u := newUnsealed(sealer)
	for range 2 {
		if _, err := u.Unseal("m1", SecretTrust, nil); err == nil {
			t.Error("opened")
		}
	}
	if sealer.opened != 2 {
		t.Errorf("asked %d times", sealer.opened)
	}
}
