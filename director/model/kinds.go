package model

import "slices"

// The kinds of documents. A new one has a name and a field here, a line in known, and a file with its type, its
// validation and its entry of that line.
const (
	KindProvider Kind = "Provider"
	KindImage    Kind = "Image"
	KindRelease  Kind = "Release"
	KindNetwork  Kind = "Network"
	KindCluster  Kind = "Cluster"
	KindSchedule Kind = "Schedule"

	KindIdentityProvider Kind = "IdentityProvider"
	KindProject          Kind = "Project"
	KindGrant            Kind = "Grant"
	KindBackupTarget     Kind = "BackupTarget"
	KindHook             Kind = "Hook"
	KindConsul           Kind = "Consul"
	KindNotification     Kind = "Notification"

	KindCertificateAuthority Kind = "CertificateAuthority"
	KindDirector             Kind = "Director"
	KindRegistry             Kind = "Registry"
)

// Document is one document of any kind. Exactly the spec of its kind is set.
type Document struct {
	Kind     Kind
	Metadata Metadata
	Provider *Provider
	Image    *Image
	Release  *Release
	Network  *Network
	Cluster  *Cluster
	Schedule *Schedule

	IdentityProvider *IdentityProvider
	Project          *Project
	Grant            *Grant
	BackupTarget     *BackupTarget
	Hook             *Hook
	Consul           *Consul
	Notification     *Notification

	CertificateAuthority *CertificateAuthority
	Director             *Director
	Registry             *Registry
}

// known has every kind in the order in which a set of documents is applied: what is named comes before what names it.
var known []kind

func init() { // not in the declaration: the functions of the kinds look into the table
	known = []kind{
		providerKind,
		imageKind,
		releaseKind,
		networkKind,
		projectKind,
		backupTargetKind,
		consulKind,
		certificateAuthorityKind,
		registryKind,
		clusterKind,
		directorKind,
		scheduleKind,
		identityProviderKind,
		grantKind,
		hookKind,
		notificationKind,
	}
}

// kind is what the model knows of a kind of document.
type kind struct {
	name    Kind
	meaning string // for the reference
	spec    func(*Document) any
	// versioned lets names of documents have dots: they are called after versions.
	versioned bool
	// validate checks the document by itself, and against holds it against the documents that references lists. Both
	// and references may be nil.
	validate   func(*validator, *Document)
	against    func(*validator, *Document, Set)
	references func(*Document) []Ref
	// credentials returns the names of the credentials that the document names, where it may be "" for none.
	credentials func(*Document) []string
	// columns are what tables show of a document after its name: a heading and a place in the spec.
	columns [][2]string
	// effects says of each field what its change means. An entry of a list holds for everything below the list; lists
	// whose items have a name have an entry of their own for items that come and go, which ends in [].
	effects map[string]FieldEffect
}

// about returns what is known of the kind: nothing of one that is not known.
func (k Kind) about() kind {
	for i := range known {
		if known[i].name == k {
			return known[i]
		}
	}
	return kind{}
}

// Kinds returns every kind in the order of application.
func Kinds() []Kind {
	out := make([]Kind, len(known))
	for i := range known {
		out[i] = known[i].name
	}
	return out
}

// CredentialKinds returns the kinds whose documents may name credentials.
func CredentialKinds() []Kind {
	var out []Kind
	for i := range known {
		if known[i].credentials != nil {
			out = append(out, known[i].name)
		}
	}
	return out
}

// Columns returns what tables show of a document of the kind after its name: headings, and places in the spec.
func Columns(k Kind) [][2]string { return k.about().columns }

// NamesCredentials tells whether the document names the credentials.
func (d *Document) NamesCredentials(name string) bool {
	k := d.Kind.about()
	return name != "" && k.credentials != nil && slices.Contains(k.credentials(d), name)
}
