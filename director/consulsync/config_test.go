package consulsync

import (
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

const goodConfig = `
owner: director-1
cluster: 0f7c9a
consul:
  addresses: [https://consul1.example:8501, https://consul2.example:8501]
  tokenFile: /etc/consul-sync/token
export: {loadBalancer: true, ingress: true, annotated: true, reserved: [vault]}
import:
- {service: postgres_main, namespace: default, name: postgres, port: 5432, networks: [10.0.0.0/8]}
`

func TestParseConfig(t *testing.T) {
	t.Parallel()
	c, err := ParseConfig([]byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "kube-system" || c.Guard != (Guard{Percent: 20, Minimum: 5}) ||
		time.Duration(c.Resync) != time.Minute ||
		c.Listen != ":8080" || c.Import[0].Key() != "default/postgres" {
		t.Errorf("config = %+v, want the defaults", c)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, new, want string }{
		{"owner: director-1", "owner: ../x", "owner"},
		{"cluster: 0f7c9a", "cluster: \"a b\"", "cluster"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nsecret: x", "field secret not found"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nnamespace: Kube", "namespace"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nlisten: x", "listen"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nlogLevel: loud", "logLevel"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nresync: 1s", "resync"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nresync: soon", `line 4: "soon"`},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nguard: {percent: 0}", "guard.percent"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\nguard: {minimum: -1}", "guard.minimum"},
		{"https://consul1.example:8501", "http://consul1.example:8500", "not encrypted"},
		{"https://consul1.example:8501", "https://user:pw@consul1.example:8501", "consul.addresses[0]"},
		{"https://consul1.example:8501", "https://consul1.example", "consul.addresses[0]"},
		{"https://consul1.example:8501", "http://127.0.0.1:8500", "mixes http and https"},
		{"[https://consul1.example:8501, https://consul2.example:8501]", "[]", "consul.addresses"},
		{"tokenFile: /etc", "tokenFile: etc", "consul.tokenFile"},
		{"tokenFile: /etc", "certFile: /etc", "consul.certFile"},
		{"tokenFile: /etc", "datacenter: \"../x\"\n  tokenFile: /etc", "consul.datacenter"},
		{"reserved: [vault]", "reserved: [Vault]", "export.reserved[0]"},
		{"service: postgres_main", "service: ../catalog", "import[0].service"},
		{"service: postgres_main", "service: \"..\"", "import[0].service"},
		{"name: postgres", "name: 1postgres", "import[0].name"},
		{"port: 5432", "port: 0", "import[0].port"},
		{"10.0.0.0/8", "10.0.0.0", "10.0.0.0"},
		{"networks: [10.0.0.0/8]}", "tag: \"a b\"}", "import[0].tag"},
		{"networks: [10.0.0.0/8]}", "}\n- {service: b, namespace: default, name: postgres, port: 1}", "import[1].name"},
		{"cluster: 0f7c9a", "cluster: 0f7c9a\n---\nowner: x", "document"},
	} {
		text := strings.Replace(goodConfig, c.old, c.new, 1)
		if text == goodConfig {
			t.Fatalf("%q is not in the example", c.old)
		}
		_, err := ParseConfig([]byte(text))
		if err == nil || director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: error = %v, want one with %q", c.old, c.new, err, c.want)
		}
	}
	if _, err := ParseConfig([]byte(strings.Repeat("#", maxConfig+1))); err == nil {
		t.Error("a huge file was read")
	}
}
