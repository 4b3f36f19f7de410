package pki

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/director-kaas/kaas/director"
)

// UserName is the user in kubeconfigs without a secret. Who it is the person's login says.
const UserName = "director"

// UserKubeconfig returns a kubeconfig in YAML without a secret: kubectl asks the program for a token whenever it needs
// one, with the arguments. Its one context is named director@cluster.
func UserKubeconfig(cluster, server, caCert, program, hint string, args ...string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: []byte(caCert)}
	c.AuthInfos[UserName+"@"+cluster] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: program, Args: args, InstallHint: hint,
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
	}}
	c.CurrentContext = UserName + "@" + cluster
	c.Contexts[c.CurrentContext] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: c.CurrentContext}
	return written("pki.user_kubeconfig", c)
}

// Kubeconfig returns a kubeconfig in YAML that reaches the API server at the URL server, trusts caCert alone and shows
// the client certificate, with everything inside the text. Its one context is named user@cluster, user being the
// certificate's common name.
func Kubeconfig(cluster, server, caCert string, client Pair) (director.Secret, error) {
	const op = "pki.kubeconfig"
	cert, err := ParseCert(client.Cert)
	if err != nil {
		return "", err
	}
	user := cert.Subject.CommonName
	context := user + "@" + cluster
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: []byte(caCert)}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: []byte(client.Cert),
		ClientKeyData:         []byte(client.Key.Reveal()),
	}
	c.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = context
	y, err := written(op, c)
	return director.Secret(y), err
}

func written(op string, c *clientcmdapi.Config) (string, error) {
	if err := clientcmd.Validate(*c); err != nil {
		return "", director.Errorf(director.KindInvalid, op, "cannot make a kubeconfig of this: %w", err)
	}
	y, err := clientcmd.Write(*c)
	if err != nil {
		return "", director.Errorf(director.KindInternal, op, "cannot write the kubeconfig: %w", err)
	}
	return string(y), nil
}
