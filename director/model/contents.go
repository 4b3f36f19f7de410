package model

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

var (
	nodeLabelKey = regexp.MustCompile(
		`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`,
	)
	nodeLabelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
	timeServer     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	apiName        = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	variableName   = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	pemText        = regexp.MustCompile(`^[A-Za-z0-9+/= \n-]*$`)
)

// variableOfLines is the one variable whose value has lines.
const variableOfLines = "registry_ca"

// textValidator validates every text of a document.
type textValidator struct{ *validator }

func (v *validator) content() textValidator { return textValidator{v} }

// contents checks every text of the document, whatever field it is in: what is stored reaches templates, files of nodes
// and other people's terminals.
func (v textValidator) contents(d *Document) {
	for _, key := range sorted(d.Metadata.Labels) {
		v.line("metadata.labels", key)
		v.line("metadata.labels."+key, d.Metadata.Labels[key])
	}
	v.texts("spec", reflect.ValueOf(d.Spec()).Elem(), false)
	if c := d.Cluster; c != nil {
		v.clusterContents(c)
	}
}

func (v *validator) line(at, text string) {
	if err := director.CheckLine(text); err != nil {
		v.fail(quotedPath(at), "one line of plain text", "%s", err)
	}
}

// quotedPath keeps what is wrong with a key out of the path that names it.
func quotedPath(at string) string {
	if director.CheckLine(at) == nil {
		return at
	}
	return strings.Trim(fmt.Sprintf("%q", at), `"`)
}

// texts looks at all texts below val. lines tells that a text is a script or a key: it has lines, and no template sees
// it.
func (v textValidator) texts(at string, val reflect.Value, lines bool) {
	if a, ok := val.Interface().(netip.Addr); ok {
		if a.Zone() != "" {
			v.fail(at, "leave out what is behind the %", "is an address with a zone")
		}
		return
	}
	if val.CanAddr() && val.Addr().Type().Implements(textUnmarshaler) {
		return // what it has read, it writes
	}
	switch val.Kind() {
	case reflect.String:
		if !lines {
			v.line(at, val.String())
		}
	case reflect.Pointer, reflect.Interface:
		if !val.IsNil() {
			v.texts(at, val.Elem(), lines)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(val.Type()) {
			v.texts(join(at, f.name), val.FieldByIndex(f.index), f.tag.Get("text") == "lines")
		}
	case reflect.Slice:
		for i := range val.Len() {
			v.texts(fmt.Sprintf("%s[%d]", at, i), val.Index(i), lines)
		}
	case reflect.Map:
		keys := val.MapKeys()
		slices.SortFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
		for _, key := range keys {
			v.line(at, key.String())
			name := join(at, quotedPath(key.String()))
			if name == "spec.vars."+variableOfLines {
				v.pem(name, val.MapIndex(key).Interface())
				continue
			}
			v.texts(name, val.MapIndex(key), lines)
		}
	}
}

func (v textValidator) pem(at string, value any) {
	if text, ok := value.(string); ok && !pemText.MatchString(text) {
		v.fail(at, "certificates in PEM form", "has characters that no certificate has")
	}
}

// clusterContents checks what a cluster's document brings into the files of its nodes.
func (v textValidator) clusterContents(c *Cluster) {
	(&vmValidator{v.validator}).aliases("spec.hostAliases", c.Hosts)
	for i, name := range c.API.Names {
		if _, err := netip.ParseAddr(name); err != nil {
			v.match(fmt.Sprintf("spec.api.names[%d]", i), name, apiName, "a host name or an address", 253)
		}
	}
	for _, name := range sorted(c.Vars) {
		if !variableName.MatchString(name) {
			v.fail(
				"spec.vars."+quotedPath(name), "letters a-z, digits and underscores", "is not the name of a variable",
			)
		}
	}
	v.persisted("spec.masters", c.Masters.Persist)
	for i, p := range c.Workers {
		at := fmt.Sprintf("spec.workers[%d]", i)
		v.persisted(at, p.Persist)
		for _, key := range sorted(p.Labels) {
			if !nodeLabelKey.MatchString(key) {
				v.fail(
					at+".labels."+quotedPath(key), "as Kubernetes has them: example.org/name",
					"is not the key of a label",
				)
			}
			if !nodeLabelValue.MatchString(p.Labels[key]) {
				v.fail(
					at+".labels."+quotedPath(key),
					"at most 63 letters, digits, dots, dashes and underscores, as Kubernetes has them",
					"%q is not the value of a label", p.Labels[key],
				)
			}
		}
	}
}

// persisted checks the directories that lie on the data disk: they are mounted over what the image has there.
func (v textValidator) persisted(at string, dirs []string) {
	for i, dir := range dirs {
		here := fmt.Sprintf("%s.persist[%d]", at, i)
		switch {
		case !strings.HasPrefix(dir, "/"): // said already
		case !pathPattern.MatchString(dir) || path.Clean(dir) != dir:
			v.fail(
				here, "the whole path, beginning with /, of letters, digits, dots and dashes", "%q is not allowed", dir,
			)
		case slices.Contains(dirs[:i], dir):
			v.fail(here, "keep one", "%s is there twice", dir)
		}
	}
}

func (v *validator) timeServers(at string, list []string) {
	for i, s := range list {
		if _, err := netip.ParseAddr(s); err != nil {
			v.match(fmt.Sprintf("%s[%d]", at, i), s, timeServer, "a name or an address", 253)
		}
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
