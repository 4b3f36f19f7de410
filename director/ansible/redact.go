package ansible

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// minSecret is the length from which a string in the secrets is taken for one: shorter ones would black out plain
// words.
const minSecret = 8

// Redactor replaces secrets in texts. no_log in the playbooks is what keeps secrets out of events; this is for the
// place where it was forgotten, or where ansible-playbook quotes a file. The zero value replaces nothing.
type Redactor struct {
	replacer *strings.Replacer
}

// NewRedactor knows every string in the JSON document extraVars, the lines of those that have several, their base64
// forms, and the lines of the private texts. It fails if extraVars is not a JSON object; its error does not quote it.
func NewRedactor(extraVars []byte, private ...[]byte) (*Redactor, error) {
	found := map[string]bool{}
	add := func(s string) {
		s = strings.TrimSpace(s)
		if len(s) < minSecret {
			return
		}
		encoded(s, func(form string) { found[form] = true })
		if !strings.Contains(s, "\n") {
			found[s] = true
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
	}
	if len(extraVars) > 0 {
		var vars map[string]any
		if json.Unmarshal(extraVars, &vars) != nil {
			return nil, fmt.Errorf("the extra variables are not a JSON object")
		}
		walk(vars, func(s string) {
			add(s)
			// What is an object of secrets itself may be shown in parts.
			var inside map[string]any
			if json.Unmarshal([]byte(s), &inside) == nil {
				walk(inside, add)
			}
		})
	}
	for _, p := range private {
		add(string(p))
	}
	if len(found) == 0 {
		return &Redactor{}, nil
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
	return &Redactor{strings.NewReplacer(pairs...)}, nil
}

// encoded visits what s looks like in base64: as a whole, what is common to it with a newline behind it (which most
// filters leave there) and without padding, and the lines into which base64(1) breaks it.
func encoded(s string, visit func(string)) {
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		visit(e.EncodeToString([]byte(s)))
		whole := e.EncodeToString([]byte(s[:len(s)/3*3]))
		if len(whole) >= minSecret {
			visit(whole)
		}
		const wrap = 76
		for ; len(whole) > wrap; whole = whole[wrap:] {
			visit(whole[:wrap])
		}
		if len(whole) >= 2*minSecret {
			visit(whole)
		}
	}
}

// Redact returns s with every secret replaced by <secret>. It is safe for concurrent use.
func (r *Redactor) Redact(s string) string {
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
