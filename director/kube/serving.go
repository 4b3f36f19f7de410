package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Known is what a node is known as: the only names and addresses that its kubelet may have a serving certificate for.
type Known struct {
	Name      string
	Addresses []netip.Addr
}

// Refused is a request for a serving certificate that is not what the node is known as. It stays as it is: a person may
// approve or deny it.
type Refused struct {
	Request string // name of the request
	Asked   string // who asked, such as system:node:worker-1
	Why     string
}

const (
	nodeUser  = "system:node:"
	nodeGroup = "system:nodes"
)

// ApproveServing approves every open request for a kubelet's serving certificate that was made by the node itself, for
// its own name and addresses and nothing else. It returns the nodes that get one, and the requests that it left alone.
// Approving again changes nothing.
func (c *Client) ApproveServing(ctx context.Context, nodes []Known) ([]string, []Refused, error) {
	const op = "kube.approve_serving"
	requests := c.api.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName,
	})
	if err != nil {
		return nil, nil, c.failed(op, err)
	}
	var approved []string
	var refused []Refused
	for i := range list.Items {
		r := &list.Items[i]
		if len(r.Status.Conditions) > 0 || r.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			continue // decided
		}
		node, err := servingNode(r, nodes)
		if err != nil {
			refused = append(refused, Refused{Request: r.Name, Asked: r.Spec.Username, Why: err.Error()})
			continue
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Known",
			Message: "The director knows the node by these names and addresses.",
		})
		_, err = requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
		switch {
		case err == nil:
			approved = append(approved, node)
		case apierrors.IsConflict(err),
			apierrors.IsNotFound(err): // someone else changed it; the next look shows the result
		default:
			return approved, refused, c.failed(op, err)
		}
	}
	return approved, refused, nil
}

// servingNode returns the node whose serving certificate is asked for, or an error that says why it may not have it.
func servingNode(r *certificatesv1.CertificateSigningRequest, nodes []Known) (string, error) {
	name, ok := strings.CutPrefix(r.Spec.Username, nodeUser)
	if !ok || !slices.Contains(r.Spec.Groups, nodeGroup) {
		return "", errors.New("it was not asked for by a node")
	}
	i := slices.IndexFunc(nodes, func(k Known) bool { return k.Name == name })
	if i < 0 {
		return "", errors.New("the cluster is to have no node of this name")
	}
	if err := servingUsages(r.Spec.Usages); err != nil {
		return "", err
	}
	block, rest := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return "", errors.New("it is not one request in PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	if err := asked.CheckSignature(); err != nil {
		return "", fmt.Errorf("it is not signed with its key: %w", err)
	}
	return name, servingNames(asked, nodes[i])
}

// servingNames returns an error unless the request names the node and nothing else.
func servingNames(asked *x509.CertificateRequest, node Known) error {
	if asked.Subject.CommonName != nodeUser+node.Name ||
		!slices.Equal(asked.Subject.Organization, []string{nodeGroup}) {
		return fmt.Errorf("it is for %q of %q", asked.Subject.CommonName, asked.Subject.Organization)
	}
	if len(asked.EmailAddresses)+len(asked.URIs) > 0 {
		return errors.New("it names mail addresses or URIs")
	}
	if len(asked.DNSNames)+len(asked.IPAddresses) == 0 {
		return errors.New("it names neither a host nor an address")
	}
	for _, host := range asked.DNSNames {
		if host != node.Name {
			return fmt.Errorf("it names the host %q, and the node is %s", host, node.Name)
		}
	}
	for _, raw := range asked.IPAddresses {
		ip, ok := netip.AddrFromSlice(raw)
		if !ok || !slices.Contains(node.Addresses, ip.Unmap()) {
			return fmt.Errorf("it names the address %s, which is not the node's", raw)
		}
	}
	return nil
}

// servingUsages returns an error unless the key is asked for to serve with and for nothing else.
func servingUsages(usages []certificatesv1.KeyUsage) error {
	may := []certificatesv1.KeyUsage{
		certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
	}
	for _, u := range usages {
		if !slices.Contains(may, u) {
			return fmt.Errorf("it is also for %q", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageServerAuth) {
		return errors.New("it is not for a server")
	}
	return nil
}
