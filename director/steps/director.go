package steps

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/steady"
	"github.com/director-kaas/kaas/director/step"
)

// SecretFirstBoot is of the machine of a director's VM: what the VM is told at its first boot. Once the VM has read it,
// the certificate alone is left.
const SecretFirstBoot = "first-boot"

// FirstBoot is what the VM of a director is told at its first boot, and what is not in its document.
type FirstBoot struct {
	PasswordHash director.Secret // of the first password of admin
	// Certificate is of its pages with its chain, and Key its private key, both in PEM. Without a certificate the
	// director makes one for the VM.
	Certificate string
	Key         director.Secret
}

// Directors keeps what is known of the VMs of other directors.
type Directors interface {
	// FirstBoot opens what the credentials of the document hold. Errors: invalid, with the field of the document.
	FirstBoot(ctx context.Context, name string, d model.Director) (FirstBoot, error)
	// DirectorInstalled records that the director runs as the document says. Idempotent.
	DirectorInstalled(ctx context.Context, p step.DirectorParams, at time.Time) error
	// ForgetDirector removes the record, the secrets and the document. Idempotent. Conflict while it has a VM.
	ForgetDirector(ctx context.Context, p step.DirectorParams, actor string, at time.Time) error
}

// Doorbell asks the director on the machine whether it is ready. It proves itself with the certificate, in PEM, for the
// host name. Nil means that it is.
type Doorbell func(ctx context.Context, m director.Machine, hostname, certificate string) error

// storedFirstBoot is the form of a FirstBoot before it is sealed.
type storedFirstBoot struct {
	PasswordHash string `json:"password_hash,omitempty"`
	Certificate  string `json:"certificate"`
	Key          string `json:"key,omitempty"`
}

// certificateLife is how long a certificate is good for that the director makes for the VM of another one.
const certificateLife = 825 * 24 * time.Hour

// directorSteps make the VMs of other directors.
type directorSteps struct{ vmSteps }

func (e directorSteps) handlers() map[string]plan.Handler {
	return map[string]plan.Handler{
		step.DirectorCheck:  handler(e.check),
		step.DirectorReady:  handler(e.ready),
		step.DirectorRecord: plan.Recording{Handler: handler(e.record)},
		step.DirectorForget: handler(e.forget),
		step.CopyMake:       handler(e.disk().copyMake),
		step.CopyRestore:    handler(e.disk().copyRestore),
		step.CopyDelete:     handler(e.disk().copyDelete),
	}
}

// DirectorCertificate returns the certificate that the VM on the machine was given, in PEM; "" before it was made.
func (e Keys) DirectorCertificate(ctx context.Context, machine string) (string, error) {
	f, err := e.knownFirstBoot(ctx, machine)
	return f.Certificate, err
}

func (e Keys) knownFirstBoot(ctx context.Context, machine string) (FirstBoot, error) {
	plain, err := keyring(e).read(ctx, machine, SecretFirstBoot)
	if err != nil || plain == nil {
		return FirstBoot{}, err
	}
	return decodeFirstBoot(machine, plain)
}

func decodeFirstBoot(machine string, plain []byte) (FirstBoot, error) {
	var s storedFirstBoot
	if err := json.Unmarshal(plain, &s); err != nil { // the cause may quote the key
		return FirstBoot{}, director.Errorf(
			director.KindInternal, "steps.first_boot", "what machine %s is told at its first boot cannot be read",
			machine,
		)
	}
	return FirstBoot{
		PasswordHash: director.Secret(s.PasswordHash), Certificate: s.Certificate, Key: director.Secret(s.Key),
	}, nil
}

// told returns what the machine is told at its first boot, and makes it at the first call. It has no hash once the
// machine has booted. It is safe to call concurrently.
func (a Appliances) told(
	ctx context.Context, keys Keys, m plan.MachineSpec, d model.Director,
) (FirstBoot, error) {
	if f, err := keys.knownFirstBoot(ctx, m.ID); err != nil || f.Certificate != "" {
		return f, err
	}
	if a.Directors == nil {
		return FirstBoot{}, director.Errorf(
			director.KindInternal, "steps.first_boot", "this director makes no VMs of directors",
		)
	}
	f, err := a.Directors.FirstBoot(ctx, m.Cluster, d)
	if err != nil {
		return FirstBoot{}, err
	}
	if f.Certificate == "" {
		pair, err := ownCertificate(m, d)
		if err != nil {
			return FirstBoot{}, err
		}
		f.Certificate, f.Key = pair.Cert, pair.Key
	}
	plain, err := json.Marshal(storedFirstBoot{f.PasswordHash.Reveal(), f.Certificate, f.Key.Reveal()})
	if err == nil {
		plain, err = keyring(keys).add(ctx, m.ID, SecretFirstBoot, plain)
	}
	if err != nil {
		return FirstBoot{}, err
	}
	return decodeFirstBoot(m.ID, plain)
}

// ownCertificate makes a certificate for the VM, by an authority that signs nothing else: its key is forgotten.
// A director shows it to those who ask for its name, and to others the one that it has issued itself.
func ownCertificate(m plan.MachineSpec, d model.Director) (pki.Pair, error) {
	host := d.HostnameOf(m.Cluster)
	ca, err := pki.NewCA("director " + host)
	if err != nil {
		return pki.Pair{}, err
	}
	pair, err := pki.ServerCert(ca, []string{host}, nil, certificateLife)
	pair.Cert += ca.Cert
	return pair, err
}

// applianceSeed is what the VM reads at its first boot. Once it has booted, its data disk has all that: another VM in
// front of the disk is told nothing but which machine it is.
func (e vmSteps) applianceSeed(ctx context.Context, p step.VMParams, nic hypervisor.NIC) (hypervisor.Seed, error) {
	d := *p.Appliance
	f, err := e.told(ctx, e.Keys, p.Machine, d)
	if err != nil {
		return hypervisor.Seed{}, err
	}
	if f.PasswordHash == "" {
		return cloudinit.RenderApplianceAgain(p.Machine.ID)
	}
	return cloudinit.RenderAppliance(cloudinit.Appliance{
		InstanceID: p.Machine.ID, Hostname: d.HostnameOf(p.Machine.Cluster), Address: nic.Addresses[0],
		Gateway: nic.Gateway, DNS: nic.DNS, NTP: p.Network.NTP, SSHKeys: d.SSHKeys, PasswordHash: f.PasswordHash,
		Certificate: f.Certificate, Key: f.Key,
	})
}

// steadily is how a director has to say that it is ready.
var steadily = steady.Wait{For: 20 * time.Second, Every: 2 * time.Second}

// ready waits until the director has said for some time that it is ready, and takes away what its VM was told.
func (e directorSteps) ready(ctx context.Context, r plan.Run, p step.DirectorParams) error {
	f, err := e.knownFirstBoot(ctx, p.Machine.ID)
	if err != nil {
		return err
	}
	if f.Certificate == "" {
		return director.Errorf(
			director.KindConflict, "director.ready", "the director does not know what the VM of %s was told", p.Name,
		).WithHint("make the VM again: directorctl director delete %s, and then its creation", p.Name)
	}
	if err := e.steadyAt(ctx, r, p, f.Certificate); err != nil {
		return e.bootTimeout(ctx, step.VMParams{Machine: p.Machine}, err)
	}
	if err := e.dropSeed(ctx, r, p.Machine); err != nil {
		return err
	}
	plain, err := json.Marshal(storedFirstBoot{Certificate: f.Certificate})
	if err != nil {
		return err
	}
	return keyring(e.Keys).write(ctx, p.Machine.ID, SecretFirstBoot, plain)
}

// steadyAt waits until the director has said for some time that it is ready.
func (e directorSteps) steadyAt(ctx context.Context, r plan.Run, p step.DirectorParams, certificate string) error {
	r.Note(ctx, "waiting for https://"+p.Machine.Address+"/readyz")
	return cmp.Or(e.Steady, steadily).Until(ctx, func(ctx context.Context) error {
		return e.Ring(ctx, p.Machine.Row(), p.Document.HostnameOf(p.Name), certificate)
	})
}

// check looks whether the director is ready before anything of it is touched: only of one that is can be said
// afterwards that it is well again. It asks for the certificate that director.ready asks for.
func (e directorSteps) check(ctx context.Context, r plan.Run, p step.DirectorParams) error {
	const op = "director.check"
	if _, err := e.disk().copyOf(ctx, r, p.Machine); err != nil {
		return err
	}
	f, err := e.knownFirstBoot(ctx, p.Machine.ID)
	if err != nil {
		return err
	}
	err = e.steadyAt(ctx, r, p, f.Certificate)
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return plan.Abort(director.Errorf(
		director.KindUnavailable, op, "director %s is not ready, and nothing of it was touched: %w", p.Name, err,
	).WithHint("repair it, and retry the plan; or give the plan up, and upgrade it as it is: directorctl director "+
		"upgrade %s --unready", p.Name))
}

// record writes down what runs.
func (e directorSteps) record(ctx context.Context, _ plan.Run, p step.DirectorParams) error {
	return e.Directors.DirectorInstalled(ctx, p, e.Now())
}

// forget removes what is known of a director whose VM is gone.
func (e directorSteps) forget(ctx context.Context, r plan.Run, p step.DirectorParams) error {
	return e.Directors.ForgetDirector(ctx, p, r.Plan.CreatedBy, e.Now())
}

// ring asks over the network.
func ring(ctx context.Context, m director.Machine, hostname, certificate string) error {
	return ringAt(ctx, net.JoinHostPort(m.Address, "443"), hostname, certificate)
}

// ringAt trusts the certificate itself, and nothing that another one signs.
func ringAt(ctx context.Context, place, hostname, certificate string) error {
	const op = "director.ready"
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return director.Errorf(director.KindInternal, op, "the certificate of %s is no PEM", place)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return director.Errorf(director.KindInternal, op, "the certificate of %s cannot be read: %w", place, err)
	}
	pinned := x509.NewCertPool()
	pinned.AddCert(leaf)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pinned, ServerName: hostname, MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := "https://" + place + "/readyz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return director.Errorf(director.KindInternal, op, "%w", err)
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(req)
	if err != nil {
		return director.Errorf(director.KindUnavailable, op, "%s does not answer: %w", url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return director.Errorf(
			director.KindUnavailable, op, "%s is not ready: it answers with status %d", url, answer.StatusCode,
		)
	}
	return nil
}
