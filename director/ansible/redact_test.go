package ansible

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestRedactorKnowsEncodedSecrets(t *testing.T) {
	t.Parallel()
	key := "-----BEGIN PRIVATE KEY-----\n" +
		strings.Repeat("MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgabcdefghijklmnop\n", 4) +
		"-----END PRIVATE KEY-----\n"
	token := "abcdef.0123456789abcdef"
	vars, err := json.Marshal(map[string]any{"pki": map[string]any{"key": key}, "tokens": []string{token}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRedactor(vars)
	if err != nil {
		t.Fatal(err)
	}
	std := base64.StdEncoding.EncodeToString
	wrapped := std([]byte(key))
	for at := 76; at < len(wrapped); at += 77 {
		wrapped = wrapped[:at] + "\n" + wrapped[at:]
	}
	for name, text := range map[string]string{
		"as it is":                key,
		"in JSON":                 string(vars),
		"base64":                  std([]byte(strings.TrimSpace(key))),
		"base64 with the newline": std([]byte(key)),
		"base64 without padding":  base64.RawStdEncoding.EncodeToString([]byte(key)),
		"base64 for URLs":         base64.RawURLEncoding.EncodeToString([]byte(key)),
		"base64 in lines":         wrapped,
		"token":                   "join with " + token,
		"token in base64":         std([]byte(token)),
		"token with the newline":  std([]byte(token + "\n")),
	} {
		got := r.Redact(text)
		if !strings.Contains(got, "<secret>") {
			t.Errorf("%s: nothing is replaced in %q", name, got)
		}
		for rest := range strings.SplitSeq(got, "<secret>") { // nothing of any length stays but armour
			for line := range strings.Lines(strings.ReplaceAll(rest, `\n`, "\n")) {
				if line = strings.TrimSpace(
					line,
				); len(line) > 8 && !strings.Contains(line, "-----") && name != "in JSON" &&
					!strings.Contains(line, "join") {
					t.Errorf("%s: %q stays", name, line)
				}
			}
		}
	}
	if got := r.Redact("nothing to hide"); got != "nothing to hide" {
		t.Errorf("became %q", got)
	}
}
