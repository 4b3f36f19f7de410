package kube_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

func connect(t *testing.T, kubeconfig director.Secret) *kube.Client {
	t.Helper()
	c, err := kube.Connect([]byte(kubeconfig.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// writer returns a plain client, for what the director's never does.
func writer(t *testing.T, kubeconfig director.Secret) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func newPKI(t *testing.T) pki.ClusterPKI {
	t.Helper()
	p, err := pki.NewCluster("kubetest")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRealAPIServer shares one API server among its parts, in order: the last ones break it.
func TestRealAPIServer(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	s := kubetest.Start(t, p)
	admin := connect(t, s.Admin())
	api := writer(t, s.Admin())

	t.Run("is ready and tells its version", func(t *testing.T) {
		if err := admin.Healthz(t.Context()); err != nil {
			t.Error(err)
		}
		v, err := admin.Version(t.Context())
		if err != nil || !strings.HasPrefix(v, "v1.") {
			t.Errorf("version %q, %v", v, err)
		}
		t.Log("kube-apiserver", v)
	})
	t.Run("nodes", func(t *testing.T) { testNodes(t, admin, api) })
	t.Run("workloads", func(t *testing.T) { testWorkloads(t, admin, api) })
	t.Run("rehearsal of a drain", func(t *testing.T) { testRehearsal(t, admin, api) })
	t.Run("pods with old authorities", func(t *testing.T) { testOldTrust(t, admin, api) })
	t.Run("claims", func(t *testing.T) { testClaims(t, admin) })
	t.Run("service account tokens are signed", func(t *testing.T) { testTokens(t, api, s) })
	t.Run("secrets are encrypted at rest", func(t *testing.T) { testEncryption(t, api, s) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, p, s) })
	t.Run("called off", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := admin.Nodes(ctx); director.KindOf(err) != director.KindUnavailable {
			t.Errorf("got %v", err)
		}
	})

	t.Run("etcd is gone", func(t *testing.T) {
		s.StopEtcd()
		// The server asks etcd at its own pace.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			err := admin.Healthz(t.Context())
			if director.KindOf(err) == director.KindUnavailable && strings.Contains(fmt.Sprint(err), "etcd") {
				t.Log(err)
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("got %v", err)
			case <-tick.C:
			}
		}
	})
	t.Run("the server is gone", func(t *testing.T) {
		s.Stop()
		for what, ask := range map[string]func() error{
			"healthz":   func() error { return admin.Healthz(t.Context()) },
			"version":   func() error { _, err := admin.Version(t.Context()); return err },
			"nodes":     func() error { _, err := admin.Nodes(t.Context()); return err },
			"ready":     func() error { _, err := admin.NodesReady(t.Context(), []string{"a"}, ""); return err },
			"workloads": func() error { _, err := admin.Workloads(t.Context(), "kube-system"); return err },
		} {
			if err := ask(); director.KindOf(err) != director.KindUnavailable || director.HintOf(err) == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func testNodes(t *testing.T, admin *kube.Client, api kubernetes.Interface) {
	condition := func(status corev1.ConditionStatus, reason, message string) []corev1.NodeCondition {
		return []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message},
		}
	}
	for _, n := range []corev1.Node{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "w1"},
			Status: corev1.NodeStatus{
				Conditions: condition(corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready"),
			},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "w2"}, Spec: corev1.NodeSpec{Unschedulable: true}},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "m1", Labels: map[string]string{
				"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/master": "", "other": "x",
			}},
			Status: corev1.NodeStatus{
				Conditions: condition(corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
				NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"},
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeHostName, Address: "m1"}, {Type: corev1.NodeInternalIP, Address: "10.88.0.10"},
				},
			},
		},
	} {
		made, err := api.CoreV1().Nodes().Create(t.Context(), &n, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = n.Status
		if _, err := api.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := admin.RecordHostKey(t.Context(), "w2", "signed"); err != nil {
			t.Errorf("RecordHostKey: %v", err)
		}
	}
	if err := admin.RecordHostKey(t.Context(), "w3", "signed"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("RecordHostKey of no node: %v", err)
	}
	got, err := admin.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []kube.Node{
		{
			Name: "m1", Ready: true, Reason: "KubeletReady", Message: "kubelet is posting ready status",
			Version: "v1.37.2",
			Roles:   []string{"control-plane", "master"}, InternalIP: "10.88.0.10",
		},
		{Name: "w1", Reason: "KubeletNotReady", Message: "container runtime network not ready"},
		{
			Name: "w2", Reason: "Unknown", Message: "its kubelet has not reported yet", Unschedulable: true,
			HostKey: "signed",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	absent, err := admin.NodesReady(t.Context(), []string{"w9", "m1", "w1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kube.Absence{
		{Name: "w9", Why: "has not joined"},
		{Name: "w1", Why: "KubeletNotReady: container runtime network not ready"},
	}, absent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if absent, err = admin.NodesReady(t.Context(), []string{"m1"}, "v1.37.2"); err != nil || len(absent) != 0 {
		t.Errorf("all ready: %v, %v", absent, err)
	}
	if absent, err = admin.NodesReady(
		t.Context(), []string{"m1"}, "v1.38.0",
	); err != nil || len(absent) != 1 || absent[0].Why != "runs v1.37.2 and not yet v1.38.0" {
		t.Errorf("a node of another version: %v, %v", absent, err)
	}
}

func testWorkloads(t *testing.T, admin *kube.Client, api kubernetes.Interface) {
	const ns = "kube-system"
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: ns, Labels: map[string]string{"app": name}}
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1"}}}
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: spec}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	two := int32(2)

	dns := &appsv1.Deployment{ObjectMeta: meta("coredns"), Spec: appsv1.DeploymentSpec{
		Replicas: &two, Selector: selector("coredns"), Template: template("coredns"),
	}}
	dns, err := api.AppsV1().Deployments(ns).Create(t.Context(), dns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dns.Status = appsv1.DeploymentStatus{
		ObservedGeneration: dns.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1,
	}
	if dns, err = api.AppsV1().Deployments(ns).UpdateStatus(t.Context(), dns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	proxy := &appsv1.DaemonSet{ObjectMeta: meta("kube-proxy"), Spec: appsv1.DaemonSetSpec{
		Selector: selector("kube-proxy"), Template: template("kube-proxy"),
	}}
	// Nobody has looked at it yet: it must not pass for healthy with 0 of 0.
	if _, err = api.AppsV1().DaemonSets(ns).Create(t.Context(), proxy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	makePods(t, api, ns, spec)
	got, err := admin.Workloads(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	want := []kube.Workload{
		{Kind: kube.WorkloadDaemonSet, Name: "kube-proxy", Desired: 1, Why: "no pods yet"},
		{Kind: kube.WorkloadDeployment, Name: "coredns", Desired: 2, Ready: 1, Why: "ErrImagePull: not found"},
		{Kind: kube.WorkloadStaticPod, Name: "etcd-m1", Desired: 1, Why: "CrashLoopBackOff"},
		{Kind: kube.WorkloadStaticPod, Name: "kube-apiserver-m1", Desired: 1, Ready: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(want[:3], kube.Unhealthy(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s := want[1].String(); s != "Deployment coredns 1/2 (ErrImagePull: not found)" {
		t.Error(s)
	}

	// A change that was asked for and not yet seen by the controller is not healthy either.
	dns.Status.ReadyReplicas = 2
	if dns, err = api.AppsV1().Deployments(ns).UpdateStatus(t.Context(), dns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	dns.Spec.Template.Spec.Containers[0].Image = "registry.example/c:2"
	if _, err = api.AppsV1().Deployments(ns).Update(t.Context(), dns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err = admin.Workloads(t.Context(), ns); err != nil || got[1].Healthy() {
		t.Errorf("an update under way: %v, %v", got, err)
	}
}

// makePods makes the pods of a Deployment and of a master, some of them with a trouble.
func makePods(t *testing.T, api kubernetes.Interface, ns string, spec corev1.PodSpec) {
	t.Helper()
	for name, status := range map[string]corev1.PodStatus{
		"coredns-a": {
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
		"coredns-b": {Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c",
			State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"},
			},
		}}},
		"kube-apiserver-m1": {
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
		"etcd-m1": {Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name:  "etcd",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		}}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: spec}
		if app, _, ok := strings.Cut(name, "-"); ok && app == "coredns" {
			pod.Labels = map[string]string{"app": app}
		} else {
			// The kubelet of this node owns it, which is what makes the API server take the annotation.
			node, err := api.CoreV1().Nodes().Get(t.Context(), "m1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			controller := true
			pod.Spec.NodeName = "m1"
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			pod.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: "m1", UID: node.UID, Controller: &controller},
			}
		}
		made, err := api.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = status
		if _, err := api.CoreV1().Pods(ns).UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// testEncryption looks for a secret in the files of etcd.
func testEncryption(t *testing.T, api kubernetes.Interface, s *kubetest.Server) {
	sec := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "x"}, StringData: map[string]string{"k": "a-canary-in-a-secret"},
	}
	if _, err := api.CoreV1().Secrets("default").Create(t.Context(), sec, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := api.CoreV1().Secrets("default").Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || string(got.Data["k"]) != "a-canary-in-a-secret" {
		t.Errorf("got %v, %v", got.Data, err)
	}
	sealed := false
	err = filepath.WalkDir(s.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("a-canary-in-a-secret")) {
			t.Errorf("%s holds the secret", path)
		}
		sealed = sealed || bytes.Contains(b, []byte("k8s:enc:secretbox:v1:key1:"))
		return err
	})
	if err != nil || !sealed {
		t.Errorf("nothing encrypted is stored: %v", err)
	}
}

func testRefusals(t *testing.T, p pki.ClusterPKI, s *kubetest.Server) {
	other := newPKI(t)
	foreign := *s
	foreign.PKI.CA = other.CA
	mixed, err := pki.ClientCert(other.CA, "admin", []string{"system:masters"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	wrongClient, err := pki.Kubeconfig("x", s.URL, p.CA.Cert, mixed)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ClientCert(p.CA, "admin", []string{"system:masters"}, -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := pki.Kubeconfig("x", s.URL, p.CA.Cert, cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name       string
		kubeconfig director.Secret
		want       director.Kind
	}{
		{"the server has another authority", foreign.Admin(), director.KindUnauthenticated},
		{"our certificate has another authority", wrongClient, director.KindUnauthenticated},
		{"our certificate has expired", expired, director.KindUnauthenticated},
		{"not an administrator", s.Kubeconfig("somebody", "users"), director.KindForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := connect(t, tc.kubeconfig).Nodes(t.Context())
			if director.KindOf(err) != tc.want || director.HintOf(err) == "" {
				t.Errorf("got %s (hint %q): %v", director.KindOf(err), director.HintOf(err), err)
			}
		})
	}
}

// testTokens has the API server sign a token and check it again, with the service account keys of the PKI.
func testTokens(t *testing.T, api kubernetes.Interface, s *kubetest.Server) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "someone"}}
	if _, err := api.CoreV1().ServiceAccounts("default").Create(t.Context(), sa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tok, err := api.CoreV1().ServiceAccounts("default").CreateToken(
		t.Context(), "someone", &authv1.TokenRequest{}, metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	review, err := api.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authv1.TokenReview{Spec: authv1.TokenReviewSpec{Token: tok.Status.Token}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:default:someone" {
		t.Errorf("review at %s: %+v", s.URL, review.Status)
	}
}

func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	const config = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, ` +
		`user: u}}],
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"%s}}], users: [{name: u, user: {%s}}]}`
	for _, tc := range []struct {
		name, cluster, user, field string
	}{
		{
			"a program", "",
			`exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}`,
			"users.u",
		},
		{"an auth provider", "", `auth-provider: {name: oidc}`, "users.u"},
		{"a key file", "", `client-key: /etc/shadow`, "users.u"},
		{"a token file", "", `tokenFile: /etc/shadow`, "users.u"},
		{"a CA file", `, certificate-authority: /etc/hosts`, "", "clusters.k"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := kube.Connect(fmt.Appendf(nil, config, tc.cluster, tc.user))
			e, ok := errors.AsType[*director.Error](err)
			if !ok || e.Kind != director.KindInvalid || len(e.Fields) != 1 || e.Fields[0].Path != tc.field {
				t.Errorf("got %v", err)
			}
		})
	}
	for name, text := range map[string]string{
		"no YAML":         "client-key-data: [CANARY",
		"empty":           "",
		"unknown context": `{apiVersion: v1, kind: Config, current-context: nope}`,
		"damaged key":     fmt.Sprintf(config, "", "client-key-data: CANARY, client-certificate-data: CANARY"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kube.Connect([]byte(text))
			if director.KindOf(err) != director.KindInvalid {
				t.Errorf("got %v", err)
			}
			if strings.Contains(fmt.Sprint(err), "CANARY") {
				t.Errorf("the error quotes the kubeconfig: %v", err)
			}
		})
	}
}

// What answers may be no API server, or nobody may.
func TestNotAnAPIServer(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	client, err := pki.ClientCert(p.CA, "admin", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config := func(url string) director.Secret {
		k, err := pki.Kubeconfig("x", url, p.CA.Cert, client)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}

	t.Run("a web server", func(t *testing.T) {
		t.Parallel()
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>welcome</html>"))
		}))
		web.TLS = serverTLS(t, p)
		web.StartTLS()
		t.Cleanup(web.Close)
		if _, err := connect(
			t, config(web.URL),
		).Version(t.Context()); director.KindOf(err) != director.KindUnavailable {
			t.Errorf("got %v", err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and never says a word
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = connect(t, config("https://"+ln.Addr().String())).Healthz(ctx)
		if director.KindOf(err) != director.KindUnavailable ||
			!strings.Contains(fmt.Sprint(err), "did not answer in time") {
			t.Errorf("got %v", err)
		}
	})
}

func serverTLS(t *testing.T, p pki.ClusterPKI) *tls.Config {
	t.Helper()
	pair, err := pki.ServerCert(p.CA, nil, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair([]byte(pair.Cert), []byte(pair.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}
}
