package model

import (
	"fmt"
	"strings"
	"testing"
)

// Whatever text a document brings, it is one line of plain text, or a script that no template sees.
func TestContents(t *testing.T) {
	t.Parallel()
	const cluster = "apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c}\nspec:\n  release: r\n  provider: p\n  " +
		"image: i\n  network: n\n"
	const network = "apiVersion: kaas/v1\nkind: Network\nmetadata: {name: n}\nspec:\n  provider: p\n  cidr: " +
		"10.1.0.0/24\n  pool: {from: 10.1.0.10, to: 10.1.0.20}\n"
	worker := func(rest string) string { return "  workers: [{name: w, count: 1, dataDisk: 1GiB, " + rest + "}]\n" }
	for name, tt := range map[string]struct{ base, text, want string }{
		"plain": {cluster, worker(
			`persist: [/var/lib/kept], labels: {"example.org/tier": front, empty: ""}, hostAliases: [{address: `+
				`10.0.0.1, names: [a.b]}], ntp: [ntp1.example.org]`,
		) +
			"  hostAliases: [{address: fd00::1, names: [x]}]\n  vars: {setup_chrony: false, registry_ca: " +
			"\"-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n\"}\n  api: {names: " +
			"[api.example.org, 10.0.0.9, '*.example.org']}\n", ""},
		"script": {
			cluster, worker(`scripts: [{name: s, content: "docker ps --format '{{.ID}}'\n\techo"}]`), "",
		},
		"label": {cluster, worker(`labels: {"a b": x}`), "spec.workers[0].labels.a b: is not the key"},
		"label value": {
			cluster, worker(`labels: {a: "x y"}`), "spec.workers[0].labels.a: \"x y\" is not the value",
		},
		"label line": {
			cluster, worker(`labels: {a: "x\ny"}`), "spec.workers[0].labels.a: has the control character U+000A",
		},
		"alias": {
			cluster, "  hostAliases: [{address: 10.0.0.1, names: [\"a\\nb\"]}]\n", "spec.hostAliases[0].names[0]",
		},
		"alias, pattern": {
			cluster, "  hostAliases: [{address: 10.0.0.1, names: ['a b']}]\n", "spec.hostAliases[0].names[0]",
		},
		"alias, zone": {
			cluster, "  hostAliases: [{address: \"fe80::1%a\\nb\", names: [x]}]\n",
			"spec.hostAliases[0].address: is an address with a zone",
		},
		"persist":        {cluster, worker(`persist: ["/var/lib/a b"]`), "spec.workers[0].persist[0]"},
		"persist, dots":  {cluster, worker(`persist: [/var/lib/../../etc]`), "spec.workers[0].persist[0]"},
		"persist, line":  {cluster, worker(`persist: ["/var/lib/a\nb"]`), "spec.workers[0].persist[0]"},
		"persist, twice": {cluster, worker(`persist: [/a, /a]`), "spec.workers[0].persist[1]: /a is there twice"},
		"api name":       {cluster, "  api: {names: ['a b']}\n", "spec.api.names[0]"},
		"template": {
			cluster, "  vars: {helm_chart_loc_override: \"{{ lookup('pipe', 'id') }}\"}\n",
			"spec.vars.helm_chart_loc_override: has {{, which begins a template",
		},
		"template, deep": {cluster, "  vars: {a: [{b: \"{% x %}\"}]}\n", "spec.vars.a[0].b: has {%"},
		"variable, key":  {cluster, "  vars: {\"a\\nb\": 1}\n", "is not the name of a variable"},
		"variable, line": {cluster, "  vars: {a: \"x\\ny\"}\n", "spec.vars.a: has the control character"},
		"certificate": {
			cluster, "  vars: {registry_ca: \"{{ x }}\"}\n", "spec.vars.registry_ca: has characters",
		},
		"bucket's authority": {
			"apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: b}\nspec:\n  type: s3\n",
			"  s3: {url: 'https://s3.example:9000', bucket: clusters, credentials: key, ca: " +
				"\"-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n\"}\n", "",
		},
		"ntp":           {network, "  ntp: ['a b']\n", "spec.ntp[0]"},
		"gateway, zone": {network, "  gateway: 'fe80::1%eth0'\n", "spec.gateway: is an address with a zone"},
		"bridge": {
			network, "  mode: bridge\n  bridge: \"br0\\u0007\"\n", "spec.bridge: has the control character U+0007",
		},
		"label of documents": {
			strings.Replace(network, "{name: n}", `{name: n, labels: {a: "x\ny"}}`, 1), "",
			"metadata.labels.a: has the control character",
		},
	} {
		docs, err := Parse([]byte(tt.base+tt.text), "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = Validate(&docs[0])
		if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) && err != nil {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		} else if strings.ContainsAny(got, "\a\x00") || strings.Contains(got, "a\nb") {
			t.Errorf("%s: the error repeats the control character: %q", name, got)
		}
	}
}
