package model

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/director-kaas/kaas/director"
)

var update = flag.Bool("update", false, "rewrite golden files and generated docs")

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func problems(err error) string {
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return ""
	}
	var lines []string
	for _, f := range e.Fields {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// Every bad document of testdata/bad.txt is refused with the problems that stand below it, all at once.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	const path = "testdata/bad.txt"
	var out strings.Builder
	for _, c := range strings.Split(read(t, path), "\n=== ")[1:] {
		head, rest, _ := strings.Cut(c, "\n")
		doc, want, _ := strings.Cut(rest, "--- problems\n")
		got := parseAndCheck(doc)
		out.WriteString("\n=== " + head + "\n" + doc + "--- problems\n" + got + "\n")
		if strings.TrimSpace(got) == "" {
			t.Errorf("%s: accepted", head)
		}
		if !*update && strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s:\n%s", head, cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)))
		}
	}
	if *update {
		intro, _, _ := strings.Cut(read(t, path), "\n=== ")
		if err := os.WriteFile(path, []byte(intro+strings.TrimRight(out.String(), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A problem names its document, so that a form can show it at the field: also where the text cannot be read as one.
func TestProblemsNameTheirDocument(t *testing.T) {
	t.Parallel()
	const network = "apiVersion: kaas/v1\nkind: Network\nmetadata: {name: net1}\n" +
		"spec: {provider: lab, cidr: 10.90.0.0/33, pool: {from: 10.90.0.10, to: 10.90.0.90}}\n"
	for _, c := range []struct{ text, path, document string }{
		{network, "t:4: spec.cidr", "Network/net1"},
		{"kind: Cluster\nmetadata: {name: [}\n", "t", ""},
		{strings.Replace(network, "net1", `"Net: 1"`, 1), "t:4: spec.cidr", "Network/Net: 1"},
		{strings.Replace(network, "net1", "7", 1), "t:3: metadata.name", "Network/"},
		{strings.Replace(network, "{name: net1}", "net1", 1), "t:3: metadata", "Network/"},
		{strings.Replace(network, "Network", "Net", 1), "t:2: kind", ""},
		{strings.Replace(network, "kind: Network\n", "", 1), "t:1: kind", ""},
		{"- a\n", "t:1: document", ""},
		{"a: [\n---\n" + network, "t", ""},
		{
			strings.Replace(network, "/33", "/24", 1) + "---\n" + strings.Replace(network, "net1", "net2", 1),
			"t:9: spec.cidr", "Network/net2",
		},
		{
			strings.Replace(strings.Replace(network, "net1", "Net1", 1), "/33", "/24", 1),
			"Network/Net1: metadata.name", "Network/Net1",
		},
	} {
		docs, err := Parse([]byte(c.text), "t")
		if err == nil {
			_, err = Validate(&docs[0])
		}
		e, ok := errors.AsType[*director.Error](err)
		if !ok {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if f := e.Fields[0]; f.Path != c.path || f.Document != c.document {
			t.Errorf("%s: %q in %q, want %q in %q", c.text, f.Path, f.Document, c.path, c.document)
		}
	}
}

// parseAndCheck does what an apply does, with the demo's documents already there.
func parseAndCheck(text string) string {
	docs, err := Parse([]byte(text), "bad.yaml")
	if err != nil {
		return problems(err)
	}
	all := demoSet()
	var lines []string
	for i := range docs {
		all[docs[i].Ref()] = &docs[i]
	}
	for i := range docs {
		if _, err := Validate(&docs[i]); err != nil {
			lines = append(lines, problems(err))
			continue
		}
		if err := Check(&docs[i], all); err != nil {
			lines = append(lines, problems(err))
		}
	}
	return strings.Join(lines, "\n")
}

func demoSet() Set {
	text, err := os.ReadFile("testdata/demo.yaml")
	if err != nil {
		panic(err)
	}
	docs, err := Parse(text, "demo.yaml")
	if err != nil {
		panic(err)
	}
	return SetOf(docs)
}

// A document that is being written may lack fields, and has no others for that.
func TestPartOfADocument(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: p}\nspec: "
	docs, err := ParsePart([]byte(head+"{type: vsphere, vsphere: {url: vc}}\n"), "text")
	if err != nil || len(docs) != 1 || docs[0].Provider.VSphere.URL != "vc" {
		t.Errorf("got %+v, %v", docs, err)
	}
	for _, wrong := range []string{"{type: vsphere, vsphere: {hosts: 3}}", "{type: vsphere, center: x}", "[", ""} {
		if _, err := ParsePart([]byte(head+wrong+"\n"), "text"); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestDemoIsValid(t *testing.T) {
	t.Parallel()
	docs, err := Parse([]byte(read(t, "testdata/demo.yaml")), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := SetOf(docs)
	for i := range docs {
		if warnings, err := Validate(&docs[i]); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", docs[i].Ref(), warnings, err)
		}
		if err := Check(&docs[i], all); err != nil {
			t.Error(err)
		}
	}
}

// What `make demo` applies must stay valid.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/examples/demo/*.yaml*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	var text strings.Builder
	for _, f := range files {
		body := strings.NewReplacer(
			"@BUNDLE@", "/b", "@IMAGE@", "/i", "@KUBERNETES@", "v1.37.1", "@SHA256@", strings.Repeat("0", 64),
		).Replace(read(t, f))
		text.WriteString("---\n" + body)
	}
	docs, err := Parse([]byte(text.String()), "examples")
	if err != nil {
		t.Fatal(problems(err))
	}
	for i := range docs {
		if _, err := Validate(&docs[i]); err != nil {
			t.Error(problems(err))
		}
		if err := Check(&docs[i], SetOf(docs)); err != nil {
			t.Error(problems(err))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	docs, err := Parse([]byte(read(t, "testdata/demo.yaml")), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		yaml, err := Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		json, err := EncodeJSON(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{yaml, json} {
			back, err := Parse(text, "")
			if err != nil {
				t.Fatalf("%s\n%s", problems(err), text)
			}
			if diff := cmp.Diff(
				[]Document{d}, back, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(),
			); diff != "" {
				t.Errorf("%s changes by being written and read:\n%s", d.Ref(), diff)
			}
		}
	}
}

func TestWarnsBelowTheRecommendedSize(t *testing.T) {
	t.Parallel()
	d := *demoSet()[Ref{KindCluster, "demo"}]
	d.Cluster.Masters.Memory = 3 * GiB
	warnings, err := Validate(&d)
	if err != nil || len(warnings) != 1 {
		t.Errorf("warnings %v, err %v; want one warning", warnings, err)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Size{
		"512MiB": 512 * MiB, "4GiB": 4 * GiB, "4Gi": 4 * GiB, "1TiB": TiB, "1024GiB": TiB, "0GiB": 0,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%s = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "4", "4GB", "-1GiB", "1.5GiB", "99999999999TiB", "GiB"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q was read as %d", in, got)
		}
	}
}

func TestFreeAddresses(t *testing.T) {
	t.Parallel()
	n := demoSet()[Ref{KindNetwork, "demo"}].Network
	free, err := n.Free(2, nil)
	if err != nil || len(free) != 2 || free[0].String() != "10.88.0.10" || free[1].String() != "10.88.0.12" {
		t.Errorf("got %v, %v; want .10 and .12 around the excluded .11", free, err)
	}
	if _, err := n.Free(1000, nil); err == nil {
		t.Error("a thousand addresses came from a pool of ninety")
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	if got := Diff("a\nb\nc\n", "a\nb\nc\n"); got != "" {
		t.Errorf("equal texts differ: %q", got)
	}
	if got, want := Diff("a\nb\nc\nd\n", "a\nx\nc\nd\n"), "  a\n- b\n+ x\n  c\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// docs/reference/models.md and docs/reference/schemas are written from the types.
func TestReferenceIsGenerated(t *testing.T) {
	t.Parallel()
	want := map[string]string{"../../docs/reference/models.md": Reference()}
	for _, k := range Kinds() {
		want["../../docs/reference/schemas/"+strings.ToLower(string(k))+".json"] = Schema(k)
	}
	for path, text := range want {
		if *update {
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644),
			); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, path) != text {
			t.Errorf("%s is stale; run: make generate", path)
		}
	}
}

// Gossip without a key can be forged by whoever reaches a node.
func TestWarnsOfOpenGossip(t *testing.T) {
	t.Parallel()
	docs, err := Parse([]byte(`apiVersion: kaas/v1
kind: Consul
metadata: {name: dc1}
spec:
  addresses: ["https://10.0.0.1"]
  datacenter: dc1
  credentials: token
  agents: {join: [10.0.0.1, "consul.example.org:8302", "fd00::1"], networks: [10.0.0.0/8]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	c := docs[0].Consul
	warnings, err := Validate(&docs[0])
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "neither encrypted") {
		t.Errorf("warnings %v, err %v", warnings, err)
	}
	want := []string{"10.0.0.1:8301", "consul.example.org:8302", "[fd00::1]:8301"}
	if got := c.Agents.Servers(); !slices.Equal(got, want) {
		t.Errorf("the agents join %v", got)
	}
	c.Gossip = "gossip"
	if warnings, err = Validate(&docs[0]); err != nil || len(warnings) > 0 {
		t.Errorf("with a key: %v, %v", warnings, err)
	}
}
