// Package steps holds the handlers of every kind of step that planners write. Each is safe to run again after it was
// killed at any line: it looks at what is there and does the rest.
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/cores"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Ledger keeps track of the director's VMs.
type Ledger interface {
	// IntendAgain makes sure that the ledger has a living row of the machine: no hypervisor is asked for a VM that is
	// not written down.
	IntendAgain(ctx context.Context, m director.Machine, now time.Time) error
	SetMachine(ctx context.Context, id string, state director.MachineState, host, vmID string) error
	// TakeCreation writes down that a VM is about to be asked for, if every allowance has room for it. Otherwise it
	// returns one that is used up, and when it has room again.
	TakeCreation(
		ctx context.Context, c director.Creation, limits []director.Allowance, now time.Time,
	) (*director.Allowance, time.Time, error)
	// RemoveVM records that the VM is gone and another one will follow.
	RemoveVM(ctx context.Context, id string) error
	BuryMachine(ctx context.Context, id string, now time.Time) error
	// NetworkUser returns the name of a cluster with machines on the provider's network, also such that are only
	// reserved, or "".
	NetworkUser(ctx context.Context, provider, network string) (string, error)
}

// Records keeps what was installed.
type Records interface {
	ClusterInstalled(ctx context.Context, p step.ClusterParams, at time.Time) error
	// SkippedSteps returns the steps of the plan that a person has had skipped.
	SkippedSteps(ctx context.Context, planID string) (map[string]bool, error)
	// SetNode records what the machine of a node is to its cluster.
	SetNode(ctx context.Context, p step.NodeParams) error
	ForgetCluster(ctx context.Context, p step.ClusterParams, actor string, at time.Time) error
}

// Secrets keeps sealed blobs.
type Secrets interface {
	Secret(ctx context.Context, owner, name string) ([]byte, error)
	// SecretsOf returns the blobs of those owners under those names, by owner and name. What is not there is left out.
	SecretsOf(ctx context.Context, owners, names []string) (map[[2]string][]byte, error)
	// AddSecret stores the blob unless there is one, and returns the one that is stored then.
	AddSecret(ctx context.Context, owner, name string, sealed []byte) ([]byte, error)
	// SetSecret replaces the stored blob, and deletes it if it is nil.
	SetSecret(ctx context.Context, owner, name string, sealed []byte) error
}

// Backends finds the back end of a provider by the provider's name.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Images keeps which images were brought to which providers.
type Images interface {
	NoteImage(ctx context.Context, i director.ProviderImage) error
}

// Player runs playbooks.
type Player interface {
	Play(ctx context.Context, p ansible.Play) (ansible.Result, error)
}

// Nodes looks at machines over the network that they are in.
type Nodes interface {
	// Answers tells whether a host answers at the address of the machine, which does not exist yet. It can only see
	// hosts that the director reaches.
	Answers(ctx context.Context, m director.Machine) (bool, error)
	// CloudInit returns the file with which cloud-init on the machine says how it went, and "" as long as it runs. The
	// machine proves itself with hostKey, its public SSH host key; another host at the address is a conflict. Any other
	// error means that it cannot be reached yet.
	CloudInit(ctx context.Context, m director.Machine, hostKey string) (string, error)
	// Script runs a shell script as root on the machine, which proves itself as for CloudInit. A script that fails is a
	// conflict with what it said.
	Script(ctx context.Context, m director.Machine, hostKey, script string) error
	// FirstBoot tells how the first-boot scripts of the machine went; nothing for a machine that has none. again starts
	// those that have not succeeded once more, and does not wait for them.
	FirstBoot(ctx context.Context, m director.Machine, hostKey string, again bool) (cloudinit.Report, error)
	// NextHostKey has the machine make a second host key, and returns its public part. Another call returns the same.
	NextHostKey(ctx context.Context, m director.Machine, hostKey string) (string, error)
	// TakeHostKey has the machine show its next host key from now on, and its certificate unless that is "". It may
	// take a moment.
	TakeHostKey(ctx context.Context, m director.Machine, hostKey, certificate string) error
	// HostCertificate returns the certificate of the host key with which what answers at the machine's address proves
	// itself, as in authorized_keys; "" if it shows none. Who signed it is not checked. Any error means that the
	// machine cannot be reached.
	HostCertificate(ctx context.Context, m director.Machine) (string, error)
}

// API looks at a cluster through its Kubernetes API.
type API interface {
	// NodesReady returns which of the named nodes are not ready, or not at the version unless that is empty.
	NodesReady(ctx context.Context, names []string, version string) ([]kube.Absence, error)
	// NotCarrying says why the node does not carry traffic to services and pods, or "".
	NotCarrying(ctx context.Context, node string) (string, error)
	// RollingOut returns which nodes that are Ready suffer from a rollout of what carries traffic to services and pods.
	RollingOut(ctx context.Context) ([]kube.Absence, error)
	// Nodes returns every node; nil from a cluster that only pretends.
	Nodes(ctx context.Context) ([]kube.Node, error)
	// RecordHostKey writes the signed host key of the node into the cluster.
	RecordHostKey(ctx context.Context, node, signed string) error
	// Rehearse tells what a drain of the node would move away, and what would block it.
	Rehearse(ctx context.Context, node string, may kube.DrainLimits) ([]kube.Eviction, error)
	// KubeletClientEnd returns when the client certificate of the node's kubelet ends.
	KubeletClientEnd(ctx context.Context, node string) (time.Time, error)
	Workloads(ctx context.Context, namespace string) ([]kube.Workload, error)
	// OldTrust returns the pods that have the cluster's authorities in a volume, and have run since before t; those of
	// kube-system, since before own. It leaves out those on nodes that are away.
	OldTrust(ctx context.Context, t, own time.Time, away []string) ([]string, error)
	// BindAdministrators makes the group, and no other one of kubeconfigs, administrators of the cluster.
	BindAdministrators(ctx context.Context, group string) error
	Close()
}

// RegistryName is the name of the director's registry in the names of images, on every node of every director: node
// images carry the release's images under it, and each node is told which address is behind it. An address in the names
// would tie images to one director for ever.
const RegistryName = model.OwnRegistry

// RegistryPrefix comes before every image's name in the registry.
const RegistryPrefix = "kaas"

// Handlers returns a handler for every kind that planners write.
func Handlers(env Env) map[string]plan.Handler {
	env.Sealer = newUnsealed(env.Sealer) // before what is made of it
	if env.Transfer == nil {
		env.Transfer = sshNodes{login: env.SSH().Machine}
	}
	if env.Nodes == nil {
		env.Nodes = sshNodes{login: env.SSH().Machine}
	}
	if env.Ring == nil {
		env.Ring = ring
	}
	env.facts = &factsCache{}
	env.rendering = make(chan struct{}, max(1, cores.Count()-1))
	vms, clusters := env.vms(), env.kube()
	all := map[string]plan.Handler{
		step.ReleasePush:      handler(env.releases().releasePush),
		step.NetworkEnsure:    handler(env.sources().networkEnsure),
		step.NetworkDelete:    handler(env.sources().networkDelete),
		step.ImageEnsure:      handler(env.sources().imageEnsure),
		step.ClusterPKI:       handler(env.keys().clusterPKI),
		step.ClusterReady:     plan.Recording{Handler: handler(clusters.clusterReady)},
		step.ClusterForget:    handler(clusters.clusterForget),
		step.VMEnsure:         undoable(vms.vmEnsure, vms.vmUndo),
		step.VMBoot:           handler(vms.vmBoot),
		step.VMAdopt:          handler(vms.vmAdopt),
		step.VMDelete:         handler(vms.vmDelete),
		step.Play:             playHandler{handler(env.plays().play), env.Player},
		step.VMRemove:         handler(vms.vmRemove),
		step.VMMove:           handler(vms.vmMove),
		step.KubeReady:        handler(clusters.kubeReady),
		step.KubeTraffic:      handler(clusters.kubeTraffic),
		step.NodeReady:        handler(clusters.nodeReady),
		step.NodeLeft:         handler(clusters.nodeLeft),
		step.PullRenew:        handler(env.keys().pullRenew),
		step.PullSettle:       handler(env.keys().pullSettle),
		step.BackupStore:      handler(env.backup().backupStore),
		step.RestoreStage:     handler(env.backup().restoreStage),
		step.EncryptionKey:    handler(env.keys().encryptionKey),
		step.DrillKeys:        handler(env.backup().drillKeys),
		step.DrillAsk:         handler(env.backup().drillAsk),
		step.DrillEnd:         handler(env.backup().drillEnd),
		step.HookAsk:          handler(env.hooks().hookAsk),
		step.ConsulRegister:   handler(env.consul().consulRegister),
		step.ConsulDeregister: handler(env.consul().consulDeregister),
		step.ConsulToken:      handler(env.consul().consulToken),
		step.ConsulAgents:     handler(env.consul().consulAgents),
		step.SigningKey:       handler(env.keys().signingKey),
		step.AuthorityChange:  handler(env.keys().authority),
		step.AuthorityAgree:   handler(env.keys().authorityAgree),
		step.SSHAuthority:     handler(env.keys().changeSSHAuthority),
		step.DirectorBackup:   handler(env.backup().directorBackup),
		step.SnapshotTake:     handler(vms.snapshotTake),
		step.SnapshotRevert:   handler(vms.snapshotRevert),
		step.SnapshotDelete:   handler(vms.snapshotDelete),
	}
	maps.Copy(all, directorSteps{vms}.handlers())
	return all
}

// undoable is a handler that can undo its step.
func undoable[P any](do, takeBack func(context.Context, plan.Run, P) error) plan.Handler {
	return plan.Undoable{Do: handler(do).Run, TakeBack: handler(takeBack).Run}
}

// handler decodes the step's parameters and classifies the error.
func handler[P any](fn func(context.Context, plan.Run, P) error) plan.Handler {
	return plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
		var p P
		if err := json.Unmarshal(r.Step.Params, &p); err != nil {
			return plan.Abort(&director.Error{
				Kind: director.KindInternal, Op: "steps.params", Msg: "the step's parameters cannot be read", Err: err,
				Hint: "the plan was made by another version: discard it and plan again",
			})
		}
		return classify(fn(ctx, r, p))
	})
}

// classify says which errors trying again can help. Only what is known to pass by itself is retried: all else reaches a
// person at once. A full disk of the director's own costs no attempts: plans wait for space, and say so.
func classify(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return plan.After(5*time.Second, "waits for space on the director's disk: "+err.Error())
	}
	if err == nil || plan.OutcomeOf(err).Kind != plan.Retry {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	switch director.KindOf(err) {
	case director.KindUnavailable:
		return err
	case director.KindInternal:
		if _, ok := errors.AsType[*director.Error](err); !ok {
			return err // not one of ours: nothing is known about it, so it gets its attempts
		}
	}
	return plan.Abort(err)
}

func (e Machines) backend(ctx context.Context, provider string) (hypervisor.Backend, error) {
	return e.Backends.Backend(ctx, provider)
}

func (i Installation) stamp(machine string) director.Stamp {
	return director.Stamp{Director: i.Director, Machine: machine}
}

// calicoManifest is the file of a bundle that plays apply to clusters.
const calicoManifest = "manifests/calico.yaml"

// checked returns the directory of a copy of what plays read from the bundle: checked against the digest that the plan
// was made for, and where only the director writes. A bundle may have been replaced since the plan was made.
func (e playSteps) checked(ctx context.Context, f step.Facts) (string, error) {
	if f.Digest == "" || e.Artifacts == "" {
		return f.Bundle, nil // plans of old have no digest
	}
	b, err := e.bundle(f.Bundle, f.Digest)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.Artifacts, f.Digest)
	files := slices.DeleteFunc(b.Release().Files, func(f bundle.File) bool { return f.Path != calicoManifest })
	return dir, b.CopyFiles(ctx, dir, files)
}

// The names of secrets.
const (
	SecretPKI     = "pki"      // of a cluster
	SecretHostKey = "ssh-host" // of a machine; without the private part once the machine has made its own
	// SecretNextHostKey is the public host key that a machine has made, until it has shown it.
	SecretNextHostKey = "ssh-host-next"
	SecretAdopted     = "ssh-host-adopted" // public host key of a VM made by others for a machine
	SecretSSH         = "ssh"              // of the director, from the time before clusters had authorities
	// SecretSSHAuthority is of a cluster: it signs the certificates of who logs in to its nodes.
	SecretSSHAuthority = "ssh-user-ca"
	SecretTrust        = "ssh-trust" // of a machine: whose certificates open it
)

// prefixOf returns the node's address with the network's prefix length.
func prefixOf(address string, network netip.Prefix) (netip.Prefix, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, director.Errorf(
			director.KindInternal, "steps.address", "%q is not an address: %w", address, err,
		)
	}
	return netip.PrefixFrom(a, network.Bits()), nil
}
