// Package consulsync decides how a cluster's Services and a Consul catalog are brought together: which entries of the
// catalog a cluster wants, what has to change for that, which changes are too many to be meant, and which endpoints an
// imported service has. It is pure: director/consulsync/controller reads both sides and acts.
package consulsync

import (
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// What marks an object of Kubernetes. People write the annotations; the labels are ours.
const (
	prefix = "consul.kaas/"

	// AnnotationExport is "true" or "false": export this object, or never.
	AnnotationExport = prefix + "export"
	// AnnotationName is the name in Consul; NAME-NAMESPACE without it.
	AnnotationName = prefix + "name"
	// AnnotationPort is the name or number of the Service's port that is exported; the first one without it.
	AnnotationPort = prefix + "port"
	// AnnotationTags holds tags, separated by commas.
	AnnotationTags = prefix + "tags"
	// AnnotationMeta is what annotations begin with that become meta: consul.kaas/meta-KEY.
	AnnotationMeta = prefix + "meta-"
	// AnnotationConfirm is written by a person on the config map of the status: the id of a hold that may go on.
	AnnotationConfirm = prefix + "confirm"
	// AnnotationService names the service of Consul that an imported Service is made of.
	AnnotationService = prefix + "service"

	// LabelCluster is on every object that was imported, with the cluster's uid.
	LabelCluster = prefix + "cluster"
	// LabelManagedBy is on every object that was imported, with ManagedBy.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "consul-sync"
	// SliceManager is who manages an imported EndpointSlice, for the controllers of Kubernetes.
	SliceManager = "consul-sync.kaas"
)

// The keys of the meta that says whose an entry of Consul is.
const (
	MetaOwner   = "kaas-owner"   // the director
	MetaCluster = "kaas-cluster" // the uid of the cluster
	MetaKey     = "kaas-key"     // kind/namespace/name of the object
	// MetaWriter is on what the director itself writes on the cluster's node, such as the entries of its API server.
	MetaWriter = "kaas-writer"
)

// Identity says whose entries these are.
type Identity struct {
	Owner   string // the director
	Cluster string // the uid of the cluster
}

// Node returns the name of one of the nodes in Consul that carry the entries of the cluster, counted from 0. No agent
// has such a name, so that no agent's anti-entropy removes them. They are several because Consul reads all checks of a
// node for each entry that changes on it, also when a server reads its own log again after a crash.
func (i Identity) Node(n int) string {
	if n == 0 {
		return director.ConsulNode(i.Cluster)
	}
	return director.ConsulMoreNodes(i.Cluster) + strconv.Itoa(n+1)
}

// Number returns which of the cluster's nodes has this name.
func (i Identity) Number(node string) (n int, ok bool) {
	if node == i.Node(0) {
		return 0, true
	}
	digits, ok := strings.CutPrefix(node, director.ConsulMoreNodes(i.Cluster))
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n - 1, err == nil && n > 1 && i.Node(n-1) == node
}

// Meta returns the meta that marks the node and every entry.
func (i Identity) Meta() map[string]string {
	return map[string]string{MetaOwner: i.Owner, MetaCluster: i.Cluster}
}

// Known says whether meta marks something that the director wrote on the node. It is left alone without a word.
func (i Identity) Known(meta map[string]string) bool {
	return meta[MetaOwner] == i.Owner && meta[MetaWriter] != "" && meta[MetaCluster] == ""
}

// Owns says whether meta marks something of this director and this cluster.
func (i Identity) Owns(meta map[string]string) bool {
	return meta[MetaOwner] == i.Owner && meta[MetaCluster] == i.Cluster
}
