package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/wire"
)

// signedThings are a bundle and an image file, with what signs them.
type signedThings struct {
	t             testing.TB
	key           signature.Signer
	bundle, image string
	kubernetes    string
}

func signing(t testing.TB, dir, image, kubernetes string) signedThings {
	t.Helper()
	key, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return signedThings{t, key, dir, image, kubernetes}
}

func things(t *testing.T) signedThings {
	t.Helper()
	dir, err := simulate.Bundle(t.Context(), t.TempDir(), "k8s-1.37.1", "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	s := signing(t, dir, filepath.Join(t.TempDir(), "node.qcow2"), "v1.37.1")
	s.write(s.image, "a node image")
	return s
}

func (s signedThings) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s signedThings) sign(key signature.Signer, text string, subject signature.Subject) string {
	s.t.Helper()
	subject.Kubernetes, subject.Arch = s.kubernetes, "amd64"
	sig, err := key.Sign([]byte(text), subject)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(sig)
}

func (s signedThings) signRelease(key signature.Signer) {
	s.t.Helper()
	b, err := bundle.Open(s.bundle)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(
		filepath.Join(s.bundle, bundle.SignatureName),
		s.sign(key, string(b.Text()), signature.Subject{Kind: signature.KindRelease, Name: b.Release().Name}),
	)
}

func (s signedThings) signImage(key signature.Signer) {
	s.t.Helper()
	line := diskimagetest.SHA256(s.t, s.image) + "  node.qcow2\n"
	s.write(s.image+".sha256", line)
	s.write(s.image+".sha256.minisig", s.sign(key, line, signature.Subject{Kind: signature.KindImage}))
}

// documents names the things, with the words why they are used without signatures.
func (s signedThings) documents(words string) string {
	image := fmt.Sprintf(
		"{source: %s, sha256: %q, kubernetes: v1.37.1, unsigned: %q}", s.image, diskimagetest.SHA256(s.t, s.image),
		words,
	)
	release := fmt.Sprintf("{bundle: %s, kubernetes: v1.37.1, unsigned: %q}", s.bundle, words)
	return strings.NewReplacer(
		`{source: /nowhere/image, sha256: "0000000000000000000000000000000000000000000000000000000000000000", `+
			`kubernetes: v1.37.1}`, image,
		"{bundle: /nowhere/bundle, kubernetes: v1.37.1}", release,
	).Replace(demoDocuments)
}

// A director with a key makes clusters from what the key signed alone, or from what an administrator uses without a
// signature and says so.
func TestOnlySignedThingsAreUsed(t *testing.T) {
	t.Parallel()
	s := things(t)
	c := simulating(t, s.documents(""))
	keyFile := filepath.Join(t.TempDir(), "release.key")
	if err := s.key.Write(keyFile, ""); err != nil {
		t.Fatal(err)
	}
	c.TrustedKeys = []string{keyFile + ".pub"}
	_, api := opened(t, c)
	refused := func(what string, want ...string) {
		t.Helper()
		_, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterCreate})
		if director.KindOf(err) != director.KindInvalid {
			t.Fatalf("%s: %v", what, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", what, err, w)
			}
		}
	}
	refused("nothing is signed", "the release bundle in "+s.bundle+" is not used: it has no signature")
	s.signRelease(s.key)
	refused("the image is not signed", "Image/node: the image "+s.image+" is not used: it has no signature")
	other := things(t)
	s.signImage(other.key)
	refused("the image is signed by others", "which is not trusted")
	if items, err := api.Images(t.Context()); err != nil || len(items) != 1 ||
		!strings.Contains(items[0].Refused, "which is not trusted") {
		t.Errorf("the list says %+v, %v", items, err)
	}
	s.signImage(s.key)
	if items, err := api.Images(t.Context()); err != nil || len(items[0].SignedBy) != 16 || items[0].Refused != "" {
		t.Errorf("the list says %+v, %v", items, err)
	}

	// A plan that was made is not started when a file changed since, and its steps do not take another bundle.
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterCreate})
	if err != nil {
		t.Fatal(err)
	}
	sig := filepath.Join(s.bundle, bundle.SignatureName)
	if err := os.Remove(sig); err != nil {
		t.Fatal(err)
	}
	if _, err := api.StartPlan(
		t.Context(), p.ID, p.Hash,
	); err == nil || !strings.Contains(err.Error(), "it has no signature") {
		t.Errorf("a plan started without the signature: %v", err)
	}
	s.signRelease(s.key)
	run(t, api, plan.ClusterCreate)
}

// What nobody signed is used when its documents say so in words, which plans and the audit repeat.
func TestUnsignedThingsAreUsedInWords(t *testing.T) {
	t.Parallel()
	const words = "made on my own machine for a try"
	s := things(t)
	c := simulating(t, s.documents(words))
	c.TrustedKeys = []string{s.key.Public()}
	_, api := opened(t, c)
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterCreate})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Image/node is used without a signature: " + words, "Release/k8s is used without a signature: " + words,
	} {
		if !strings.Contains(strings.Join(p.Warnings, "\n"), want) {
			t.Errorf("the plan warns %q, want %q", p.Warnings, want)
		}
	}
	sig := filepath.Join(s.bundle, bundle.SignatureName)
	s.write(sig, "a forged one")
	if _, err := api.MakePlan(t.Context(), "demo", plan.Request{
		Operation: plan.ClusterCreate,
	}); err == nil || !strings.Contains(err.Error(), "minisign's format") {
		t.Errorf("a forged signature with words: %v", err)
	}
	if err := os.Remove(sig); err != nil {
		t.Fatal(err)
	}
	run(t, api, plan.ClusterCreate)
	if _, err := api.Apply(
		t.Context(), []byte(strings.ReplaceAll(s.documents(words), words, "yes")), "x", false,
	); err == nil || !strings.Contains(err.Error(), "is no reason") {
		t.Errorf("a yes is no reason: %v", err)
	}
}

// The signature of an image goes with its upload. A director that has none of both does not even begin.
func TestUploadsAreSigned(t *testing.T) {
	t.Parallel()
	s := things(t)
	c := simulating(t, demoDocuments)
	c.TrustedKeys = []string{s.key.Public()}
	_, api := opened(t, c)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.1"), "qcow2")
	sum := diskimagetest.SHA256(t, path)
	line := sum + "  node.qcow2\n"
	good := s.sign(s.key, line, signature.Subject{Kind: signature.KindImage})
	for name, q := range map[string]wire.UploadRequest{
		"has no signature": {},
		"does not match":   {Checksum: strings.Replace(line, "node", "nope", 1), Signature: good},
		"not trusted": {
			Checksum: line, Signature: s.sign(things(t).key, line, signature.Subject{Kind: signature.KindImage}),
		},
		"is for the file": {
			Checksum:  strings.Repeat("ab", 32) + "  x\n",
			Signature: s.sign(s.key, strings.Repeat("ab", 32)+"  x\n", signature.Subject{Kind: signature.KindImage}),
		},
		"for another thing": {
			Checksum: line, Signature: s.sign(s.key, line, signature.Subject{Kind: signature.KindRelease, Name: "x"}),
		},
		"there is a sign":    {Checksum: line, Signature: good, Unsigned: "because I want it"},
		"unsigned: is no re": {Unsigned: "yes"},
	} {
		q.SHA256, q.Size = sum, 4096
		if _, err := api.SendFile(
			t.Context(), q, strings.NewReader(""), nil, nil,
		); director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	file, err := sendImage(
		t, api, path, wire.UploadRequest{SHA256: sum, Checksum: line, Signature: good},
		wire.ImageImport{Upload: sum, Checksum: line, Signature: good},
	)
	if err != nil || file.Kubernetes != "v1.37.1" {
		t.Fatalf("%+v, %v", file, err)
	}
	signed := func() wire.Image {
		t.Helper()
		items, err := api.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			if i.SHA256 == sum {
				return i
			}
		}
		t.Fatalf("the image is not in %+v", items)
		return wire.Image{}
	}
	if got := signed(); len(got.SignedBy) != 16 || got.Unsigned != "" || got.Refused != "" {
		t.Errorf("got %+v", got)
	}
	const words = "the key was lost"
	if _, err := sendImage(t, api, path, wire.UploadRequest{
		SHA256: sum, Unsigned: words,
	}, wire.ImageImport{Upload: sum, Unsigned: words}); err != nil {
		t.Fatal(err)
	}
	if got := signed(); got.SignedBy != "" || got.Unsigned != words {
		t.Errorf("after it was imported in words: %+v", got)
	}
}

// sendImage uploads the file and makes an image of it.
func sendImage(
	t *testing.T, api *client.Client, path string, q wire.UploadRequest, i wire.ImageImport,
) (wire.ImageFile, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	q.Size = info.Size()
	if _, err := api.SendFile(t.Context(), q, f, nil, nil); err != nil {
		return wire.ImageFile{}, err
	}
	return api.ImportImage(t.Context(), i, nil)
}
