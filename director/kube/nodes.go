package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a node as the API server knows it.
type Node struct {
	Name          string
	Ready         bool
	Reason        string // of the ready condition, such as KubeletNotReady
	Message       string // of the ready condition
	Unschedulable bool   // cordoned
	Version       string // of its kubelet, such as v1.37.2
	Roles         []string
	InternalIP    string
	Etcd          bool   // its etcd member, a static pod, is ready
	HostKey       string // its SSH host key as the director signed it; empty if it did not
}

// Absence is a node that should be ready and is not.
type Absence struct {
	Name string
	Why  string // for people, such as "has not joined" or "NetworkPluginNotReady: ..."
}

const roleLabel = "node-role.kubernetes.io/"

// Nodes returns the nodes of the cluster, ordered by name.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	list, err := c.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed("kube.nodes", err)
	}
	// kubeadm's labels
	etcd, err := c.api.CoreV1().Pods(
		"kube-system",
	).List(ctx, metav1.ListOptions{LabelSelector: "component=etcd,tier=control-plane"})
	if err != nil {
		return nil, c.failed("kube.nodes", err)
	}
	ready := map[string]bool{}
	for i := range etcd.Items {
		ready[etcd.Items[i].Spec.NodeName] = isReady(&etcd.Items[i])
	}
	nodes := make([]Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = nodeOf(&list.Items[i])
		nodes[i].Etcd = ready[nodes[i].Name]
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// NodesReady returns which of the named nodes are not ready yet, or run another kubelet than version unless that is
// empty, and why, in the order of names: none when all are.
func (c *Client) NodesReady(ctx context.Context, names []string, version string) ([]Absence, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return absent(nodes, names, version), nil
}

func absent(nodes []Node, names []string, version string) []Absence {
	var missing []Absence
	for _, name := range names {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
		switch {
		case i < 0:
			missing = append(missing, Absence{Name: name, Why: "has not joined"})
		case !nodes[i].Ready:
			missing = append(missing, Absence{Name: name, Why: nodes[i].Reason + ": " + nodes[i].Message})
		case version != "" && nodes[i].Version != version:
			missing = append(missing, Absence{Name: name, Why: "runs " + nodes[i].Version + " and not yet " + version})
		}
	}
	return missing
}

func nodeOf(n *corev1.Node) Node {
	out := Node{
		Name:          n.Name,
		Reason:        "Unknown",
		Message:       "its kubelet has not reported yet",
		Unschedulable: n.Spec.Unschedulable,
		Version:       n.Status.NodeInfo.KubeletVersion,
		HostKey:       n.Annotations[HostKeyAnnotation],
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.Reason, out.Message = c.Status == corev1.ConditionTrue, c.Reason, c.Message
		}
	}
	for l := range n.Labels {
		if role, ok := strings.CutPrefix(l, roleLabel); ok && role != "" {
			out.Roles = append(out.Roles, role)
		}
	}
	slices.Sort(out.Roles)
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.InternalIP = a.Address
			break
		}
	}
	return out
}

// failingChecks reads the answer of /readyz?verbose, whose lines look like "[-]etcd failed: reason withheld".
func failingChecks(body []byte) string {
	var failing []string
	for s := bufio.NewScanner(bytes.NewReader(body)); s.Scan(); {
		if check, ok := strings.CutPrefix(s.Text(), "[-]"); ok {
			failing = append(failing, strings.TrimSuffix(check, ": reason withheld"))
		}
	}
	return strings.Join(failing, ", ")
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return nil
}
