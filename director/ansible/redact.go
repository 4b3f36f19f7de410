package ansible

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// minSecret is the length from which a string in the secrets is taken for one: shorter ones would black out plain words.
const minSecret = 8

// redactor replaces secrets in texts. no_log in the playbooks is what keeps secrets out of events; this is for the place
// where it was forgotten, or where ansible-playbook quotes a file. The zero value replaces nothing.
type redactor struct {
	replacer *strings.Replacer
}

// newRedactor knows every string in the JSON document extraVars, the lines of those that have several, their base64 form, and
// the lines of the private texts. It fails if extraVars is not a JSON object; its error does not quote it.
func newRedactor(extraVars []byte, private ...[]byte) (*redactor, error) {
	found := map[string]bool{}
	add := func(s string) {
		s = strings.TrimSpace(s)
		if len(s) < minSecret {
			return
		}
		if !strings.Contains(s, "\n") {
			found[s] = true
			found[base64.StdEncoding.EncodeToString([]byte(s))] = true
			if quoted, err := json.Marshal(s); err == nil {
				found[string(quoted[1:len(quoted)-1])] = true
			}
			return
		}
		for line := range strings.Lines(s) {
			// The armour of a PEM block is no secret, and its lines are longer than this.
			if line = strings.TrimSpace(line); len(line) >= 2*minSecret && !strings.HasPrefix(line, "-----") {
				found[line] = true
			}
		}
		whole := base64.StdEncoding.EncodeToString([]byte(s))
		found[whole] = true
	}
	if len(extraVars) > 0 {
		var vars map[string]any
		if json.Unmarshal(extraVars, &vars) != nil {
			return nil, fmt.Errorf("the extra variables are not a JSON object")
		}
		walk(vars, add)
	}
	for _, p := range private {
		add(string(p))
	}
	if len(found) == 0 {
		return &redactor{}, nil
	}
	secrets := make([]string, 0, len(found))
	for s := range found {
		secrets = append(secrets, s)
	}
	// The replacer prefers the earlier of two that match at one place.
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		pairs = append(pairs, s, "<secret>")
	}
	return &redactor{strings.NewReplacer(pairs...)}, nil
}

func (r *redactor) redact(s string) string {
	if r == nil || r.replacer == nil || s == "" {
		return s
	}
	return r.replacer.Replace(s)
}

func walk(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			walk(e, visit)
		}
	}
}
