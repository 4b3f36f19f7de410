package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// HeldCertificate is a certificate in an object of the cluster. Its key, where the object holds one, is left out.
type HeldCertificate struct {
	Name  string // cluster-info, or tls-secret
	Place string // kind, namespace and name
	PEM   string // may hold a chain
}

// HeldCertificates returns the certificates that objects of the cluster hold: the authority that nodes join by, and
// those of secrets for TLS.
func (c *Client) HeldCertificates(ctx context.Context) ([]HeldCertificate, error) {
	const op = "kube.certificates"
	var out []HeldCertificate
	info, err := c.api.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	if config, err := clientcmd.Load([]byte(info.Data["kubeconfig"])); err == nil {
		for _, cluster := range config.Clusters {
			out = append(out, HeldCertificate{
				Name: "cluster-info", Place: "ConfigMap/kube-public/cluster-info",
				PEM: string(cluster.CertificateAuthorityData),
			})
		}
	}
	next := ""
	for {
		secrets, err := c.api.CoreV1().Secrets("").List(ctx, metav1.ListOptions{
			FieldSelector: "type=" + string(corev1.SecretTypeTLS), Limit: 100, Continue: next,
		})
		if err != nil {
			return nil, c.failed(op, err)
		}
		for i := range secrets.Items {
			s := &secrets.Items[i]
			out = append(out, HeldCertificate{
				Name: "tls-secret", Place: "Secret/" + s.Namespace + "/" + s.Name,
				PEM: string(s.Data[corev1.TLSCertKey]),
			})
		}
		if next = secrets.Continue; next == "" {
			return out, nil
		}
	}
}
