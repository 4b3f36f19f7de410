package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

// ask is a request for a serving certificate; what is empty is what the kubelet of w1 asks for.
type ask struct {
	user   string
	groups []string
	cn     string
	org    []string
	dns    []string
	ips    []net.IP
	uris   []*url.URL
	usages []certificatesv1.KeyUsage
	signer string
}

func (a ask) request(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: a.cn, Organization: a.org}, DNSNames: a.dns, IPAddresses: a.ips, URIs: a.uris,
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
		Name: name,
	}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: a.signer,
		Usages: a.usages, Username: a.user, Groups: a.groups,
	}}
}

func own(change func(*ask)) ask {
	a := ask{
		user: "system:node:w1", groups: []string{"system:nodes"}, cn: "system:node:w1", org: []string{"system:nodes"},
		dns: []string{"w1"}, ips: []net.IP{net.ParseIP("10.0.0.4")},
		usages: []certificatesv1.KeyUsage{"digital signature", "server auth"}, signer: "kubernetes.io/kubelet-serving",
	}
	change(&a)
	return a
}

var asks = map[string]struct {
	ask ask
	why string // "" for what is approved
}{
	"its own":             {own(func(*ask) {}), ""},
	"its own, for RSA":    {own(func(a *ask) { a.usages = append(a.usages, "key encipherment") }), ""},
	"its address alone":   {own(func(a *ask) { a.dns = nil }), ""},
	"another node's name": {own(func(a *ask) { a.dns = []string{"w1", "m1"} }), `names the host "m1"`},
	"a stranger's name": {
		own(func(a *ask) { a.dns = []string{"w1", "kubernetes.default.svc"} }),
		`names the host "kubernetes.default.svc"`,
	},
	"a wildcard": {own(func(a *ask) { a.dns = []string{"*"} }), `names the host "*"`},
	"another address": {
		own(func(a *ask) { a.ips = append(a.ips, net.ParseIP("10.0.0.1")) }), "names the address 10.0.0.1",
	},
	"the loopback": {
		own(func(a *ask) { a.ips = []net.IP{net.ParseIP("127.0.0.1")} }), "names the address 127.0.0.1",
	},
	"another subject": {own(func(a *ask) { a.cn = "system:node:m1" }), `is for "system:node:m1"`},
	"masters' group":  {own(func(a *ask) { a.org = []string{"system:masters"} }), "system:masters"},
	"no names":        {own(func(a *ask) { a.dns, a.ips = nil, nil }), "neither a host nor an address"},
	"a URI": {
		own(func(a *ask) { a.uris = []*url.URL{{Scheme: "spiffe", Host: "x"}} }), "mail addresses or URIs",
	},
	"for a client too": {
		own(func(a *ask) { a.usages = append(a.usages, "client auth") }), `also for "client auth"`,
	},
	"for nothing to serve": {
		own(func(a *ask) { a.usages = []certificatesv1.KeyUsage{"digital signature"} }), "not for a server",
	},
	"an unknown node": {
		own(func(a *ask) { a.user, a.cn, a.dns = "system:node:w9", "system:node:w9", []string{"w9"} }),
		"no node of this name",
	},
	"a user of a node name": {own(func(a *ask) { a.groups = nil }), "not asked for by a node"},
	"somebody else":         {own(func(a *ask) { a.user = "jane" }), "not asked for by a node"},
}

var known = []Known{
	{Name: "m1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
	{Name: "w1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4")}},
}

func TestServingNode(t *testing.T) {
	t.Parallel()
	for name, tt := range asks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, err := servingNode(tt.ask.request(t, "x"), known)
			switch {
			case tt.why == "" && (err != nil || node != "w1"):
				t.Errorf("got %q, %v; want w1", node, err)
			case tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)):
				t.Errorf("got %v, want %q", err, tt.why)
			}
		})
	}
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "x",
		"no request": "-----BEGIN CERTIFICATE REQUEST-----\nb25l\n-----END CERTIFICATE REQUEST-----\n",
		"two":        strings.Repeat(string(asks["its own"].ask.request(t, "x").Spec.Request), 2),
	} {
		r := asks["its own"].ask.request(t, "x")
		r.Spec.Request = []byte(text)
		if node, err := servingNode(r, known); err == nil {
			t.Errorf("%s: got %q", name, node)
		}
	}
	// Somebody who has seen a node's request cannot have it for a key of their own: the signature has to be that of the
	// key.
	r := asks["its own"].ask.request(t, "x")
	block, _ := pem.Decode(r.Spec.Request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	r.Spec.Request = pem.EncodeToMemory(block)
	if _, err := servingNode(r, known); err == nil {
		t.Error("a request with a wrong signature was taken")
	}
}

// TestApproveServing sends what kubelets could ask for to a real API server, as who they are.
func TestApproveServing(t *testing.T) {
	t.Parallel()
	p, err := pki.NewCluster("serving")
	if err != nil {
		t.Fatal(err)
	}
	s := kubetest.Start(t, p)
	connect := func(kubeconfig director.Secret) *Client {
		c, err := Connect([]byte(kubeconfig.Reveal()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	worker := connect(s.Kubeconfig("system:node:w1", "system:nodes"))
	wanted := map[string]string{}
	for title, tt := range asks {
		name := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(title)
		if tt.ask.user != "system:node:w1" || tt.ask.groups == nil {
			continue // the API server itself does not let w1 ask as somebody else
		}
		wanted[name] = tt.why
		if _, err := worker.api.CertificatesV1().CertificateSigningRequests().Create(
			t.Context(), tt.ask.request(t, name), metav1.CreateOptions{},
		); err != nil {
			t.Fatal(name, err)
		}
	}
	client := own(func(a *ask) {
		a.dns, a.ips, a.signer = nil, nil, certificatesv1.KubeAPIServerClientKubeletSignerName
		a.usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	})
	if _, err := worker.api.CertificatesV1().CertificateSigningRequests().Create(
		t.Context(), client.request(t, "client"), metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}

	admin := connect(s.Admin())
	approved, refused, err := admin.ApproveServing(t.Context(), known)
	if diff := cmp.Diff([]string{"w1", "w1", "w1"}, approved); err != nil || diff != "" {
		t.Fatalf("%v, approved (-want +got):\n%s", err, diff)
	}
	if len(refused) != len(wanted)-3 {
		t.Errorf("%d requests were refused, want %d: %+v", len(refused), len(wanted)-3, refused)
	}
	for _, r := range refused {
		if why := wanted[r.Request]; why == "" || !strings.Contains(r.Why, why) {
			t.Errorf("%s was refused because %q, want %q", r.Request, r.Why, why)
		}
	}
	if again, _, err := admin.ApproveServing(t.Context(), known); err != nil || len(again) > 0 {
		t.Errorf("a second look approved %v, %v; want nothing", again, err)
	}
	list, err := admin.api.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if decided := len(r.Status.Conditions) > 0; decided != (r.Name != "client" && wanted[r.Name] == "") {
			t.Errorf("%s has the conditions %+v", r.Name, r.Status.Conditions)
		}
	}
}
