package providers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store"
)

// Vault opens sealed credentials for the places that they were set for: an address, and what its certificate is trusted
// by. A document that leads elsewhere gets no password.
type Vault struct {
	Store  *store.Store
	Sealer pki.Sealer
	Files  confine.Dirs // that caFile may lie in
}

// Open returns the credentials that the provider names. Credentials that have no place yet get those of all providers
// that name them. Errors: conflict when they were set for other places.
func (v Vault) Open(ctx context.Context, provider string, s model.VSphere) (director.Credentials, error) {
	here, err := v.placeOfVSphere(provider, s)
	if err != nil {
		return director.Credentials{}, err
	}
	return v.openFor(ctx, s.Credentials, here, setForAnother(provider))
}

// Peek is Open for a provider that may not be stored yet. It binds the credentials to nothing; those that are bound
// elsewhere are not opened. Its caller has made sure that the person may set credentials: those that are bound to
// nothing are opened for any place.
func (v Vault) Peek(ctx context.Context, provider string, s model.VSphere) (director.Credentials, error) {
	here, err := v.placeOfVSphere(provider, s)
	if err != nil {
		return director.Credentials{}, err
	}
	row, err := openSealed(ctx, v.Store, v.Sealer, s.Credentials)
	if err != nil {
		return director.Credentials{}, err
	}
	if places := row.inside.Places; len(places) > 0 && !slices.Contains(places, here) {
		return director.Credentials{}, setForAnother(provider)(row.Credentials)
	}
	return row.Credentials, nil
}

// setForAnother is the error of credentials that were set for another vCenter than the provider's.
func setForAnother(provider string) func(director.Credentials) error {
	return func(row director.Credentials) error {
		return director.Errorf(
			director.KindConflict, "providers.credentials",
			"the credentials %s were not set for the address and the certificate of provider %s", row.Name, provider,
		).
			WithHint("compare url, thumbprint and caFile of the provider with what vCenter's own console shows; "+
				"then set the credentials again: "+
				"directorctl provider credentials set %s --user %s --password-file FILE", row.Name, row.User)
	}
}

// placeOfVSphere is place with an error that names the provider.
func (v Vault) placeOfVSphere(provider string, s model.VSphere) (string, error) {
	here, err := v.place(s)
	if err != nil {
		return "", director.Errorf(
			director.KindInvalid, "providers.credentials", "provider %s: spec.vsphere.caFile cannot be read", provider,
		).
			WithHint("put the certificates there on the director, in PEM form; or correct spec.vsphere.caFile")
	}
	return here, nil
}

// OpenIdentity is Open for a directory with people. The account's user is its distinguished name.
func (v Vault) OpenIdentity(
	ctx context.Context, provider string, p model.IdentityProvider,
) (director.Credentials, error) {
	return v.openFor(ctx, p.Credentials, placeOfIdentity(p), setElsewhere(
		"the servers and the certificates of IdentityProvider/"+provider,
		"servers, startTLS, issuer and ca of the document",
	))
}

// placeOfIdentity says where a password goes, and what the certificate there is trusted by.
func placeOfIdentity(p model.IdentityProvider) string {
	if p.Type == model.IdentityOIDC {
		return fmt.Sprintf("oidc %s authorities=%x", p.Issuer, sha256.Sum256([]byte(p.CA)))
	}
	servers := slices.Sorted(slices.Values(p.Servers))
	sum := sha256.Sum256([]byte(p.CA))
	return fmt.Sprintf(
		"ldap %s startTLS=%v authorities=%x", strings.ToLower(strings.Join(servers, ",")), p.StartTLS, sum,
	)
}

// OpenBackup is Open for a bucket with backups. The account's user is the id of an access key.
func (v Vault) OpenBackup(ctx context.Context, target string, b model.S3Bucket) (director.Credentials, error) {
	return v.openFor(ctx, b.Credentials, placeOfBucket(b), setElsewhere(
		"the server and the certificates of BackupTarget/"+target,
		"url, bucket and ca of the document",
	))
}

// setElsewhere is the error of credentials that were set for another place than the document's. check says what of the
// document to look at.
func setElsewhere(place, check string) func(director.Credentials) error {
	return func(row director.Credentials) error {
		return director.Errorf(
			director.KindConflict, "providers.credentials", "the credentials %s were not set for %s", row.Name, place,
		).
			WithHint("check "+check+"; then set the credentials again: directorctl provider credentials set %s "+
				"--user %q --password-file FILE", row.Name, row.User)
	}
}

// placeOfBucket says where a key signs for, and what the certificate there is trusted by.
func placeOfBucket(b model.S3Bucket) string {
	return fmt.Sprintf("s3 %s/%s authorities=%x", strings.ToLower(strings.TrimRight(b.URL, "/")), b.Bucket,
		sha256.Sum256([]byte(b.CA)))
}

// OpenHook is Open for the endpoint of a hook. The password is a client certificate with its key, in PEM.
func (v Vault) OpenHook(ctx context.Context, hook string, h model.Hook) (director.Credentials, error) {
	name := h.TLS.ClientCredentials
	return v.openFor(ctx, name, placeOfHook(h), setElsewhere(
		"the address and the certificates of Hook/"+hook,
		"url and tls.ca of the document",
	))
}

// OpenConsul is Open for a Consul. name is that of its token's credentials, or of those of its gossip key.
func (v Vault) OpenConsul(ctx context.Context, consul, name string, c model.Consul) (director.Credentials, error) {
	return v.openFor(ctx, name, placeOfConsul(c), setElsewhere(
		"the servers and the certificates of Consul/"+consul,
		"addresses, datacenter and tls of the document",
	))
}

// OpenNotification is Open for what a notification is sent with: the account at a mail server, or a client certificate
// with its key, in PEM.
func (v Vault) OpenNotification(
	ctx context.Context, notification string, n model.Notification,
) (director.Credentials, error) {
	return v.openFor(ctx, n.CredentialsName(), placeOfNotification(n), setElsewhere(
		"the server and the certificates of Notification/"+notification,
		"server, port and ca, or url and ca, of the document",
	))
}

// OpenAuthority is Open for a CertificateAuthority: the password is that of its provisioner, or its private key.
func (v Vault) OpenAuthority(
	ctx context.Context, name string, a model.CertificateAuthority,
) (director.Credentials, error) {
	return v.openFor(ctx, a.Account(), placeOfAuthority(a), setElsewhere(
		"the server or the certificate of CertificateAuthority/"+name,
		"certificate or stepCA of the document",
	))
}

// PeekAuthority is OpenAuthority for a document that may not be stored yet. It binds the credentials to nothing; those
// that are bound elsewhere are not opened.
func (v Vault) PeekAuthority(
	ctx context.Context, name string, a model.CertificateAuthority,
) (director.Credentials, error) {
	row, err := openSealed(ctx, v.Store, v.Sealer, a.Account())
	if err != nil {
		return director.Credentials{}, err
	}
	if places := row.inside.Places; len(places) > 0 && !slices.Contains(places, placeOfAuthority(a)) {
		return director.Credentials{}, director.Errorf(
			director.KindConflict, "providers.credentials",
			"the credentials %s were not set for the server or the certificate of CertificateAuthority/%s",
			row.Name, name,
		)
	}
	return row.Credentials, nil
}

// placeOfAuthority says where a provisioner's password opens a key, or for which certificate a private key signs.
func placeOfAuthority(a model.CertificateAuthority) string {
	if s := a.StepCA; s != nil {
		return fmt.Sprintf("stepca %s root=%s provisioner=%s", strings.ToLower(strings.TrimRight(s.URL, "/")),
			s.RootFingerprint, s.Provisioner)
	}
	pin, err := pki.PublicKeyPin(a.Certificate)
	if err != nil {
		pin = fmt.Sprintf("%x", sha256.Sum256([]byte(a.Certificate)))
	}
	return "authority " + pin
}

// OpenDirector is Open for the VM of a director. name is that of its first password's credentials, or of those of its
// certificate.
func (v Vault) OpenDirector(
	ctx context.Context, document, name string, d model.Director,
) (director.Credentials, error) {
	return v.openFor(ctx, name, placeOfDirector(document, d), setElsewhere(
		"the provider and the image of Director/"+document, "provider and image of the document",
	))
}

// placeOfDirector says which VM is told a password and a key, and what runs there.
func placeOfDirector(document string, d model.Director) string {
	return fmt.Sprintf("director %s provider=%s image=%s", document, d.Provider, d.Image.SHA256)
}

// OpenRegistry is Open for an outer registry, from which nodes pull with the account.
func (v Vault) OpenRegistry(ctx context.Context, name string, r model.Registry) (director.Credentials, error) {
	return v.openFor(ctx, r.Credentials, placeOfRegistry(r), setElsewhere(
		"the servers and the certificates of Registry/"+name, "host, endpoints and ca of the document",
	))
}

// placeOfRegistry says where nodes show a password, and what the certificates there are trusted by.
func placeOfRegistry(r model.Registry) string {
	servers := slices.Sorted(slices.Values(r.Endpoints))
	if r.Mode == model.RegistryDirect {
		servers = []string{r.Host}
	}
	return fmt.Sprintf("registry %s authorities=%x", strings.Join(servers, ","), sha256.Sum256([]byte(r.CA)))
}

// placeOfHook says to whom a client certificate is shown, and what the certificate there is trusted by.
func placeOfHook(h model.Hook) string { return placeOfEndpoint(h.URL, h.TLS.CA) }

func placeOfEndpoint(address, ca string) string {
	host := address
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Hostname()) + ":" + cmp.Or(u.Port(), "443")
	}
	return fmt.Sprintf("hook %s authorities=%x", host, sha256.Sum256([]byte(ca)))
}

// placeOfNotification says where a password goes or to whom a client certificate is shown, and what the certificate
// there is trusted by.
func placeOfNotification(n model.Notification) string {
	if n.Mail == nil {
		return placeOfEndpoint(n.Webhook.URL, n.Webhook.CA)
	}
	return fmt.Sprintf("smtp %s:%d authorities=%x", strings.ToLower(n.Mail.Server), n.Mail.ServerPort(),
		sha256.Sum256([]byte(n.Mail.CA)))
}

// placeOfConsul says where a token goes, and what the certificates there are trusted by.
func placeOfConsul(c model.Consul) string {
	addresses := slices.Sorted(slices.Values(c.Addresses))
	return fmt.Sprintf("consul %s %s name=%s authorities=%x", c.Datacenter,
		strings.ToLower(strings.Join(addresses, ",")), c.TLS.ServerName, sha256.Sum256([]byte(c.TLS.CA)))
}

// openFor opens credentials for a place. elsewhere says that they were set for other places.
func (v Vault) openFor(
	ctx context.Context, name, here string, elsewhere func(director.Credentials) error,
) (director.Credentials, error) {
	const op = "providers.credentials"
	for range 3 { // another director may set or bind them meanwhile
		row, err := openSealed(ctx, v.Store, v.Sealer, name)
		if err != nil {
			return row.Credentials, err
		}
		if len(row.inside.Places) > 0 {
			if slices.Contains(row.inside.Places, here) {
				return row.Credentials, nil
			}
			return director.Credentials{}, elsewhere(row.Credentials)
		}
		places, err := v.places(ctx, row.Name)
		if err != nil {
			return director.Credentials{}, err
		}
		if !slices.Contains(places, here) {
			return director.Credentials{}, director.Errorf(
				director.KindConflict, op, "the document that names the credentials %s was changed meanwhile", name,
			).WithHint("try again")
		}
		row.inside.Places = places
		sealed, err := sealCredentials(v.Sealer, row.inside)
		if err != nil {
			return director.Credentials{}, err
		}
		if err := v.Store.Update(ctx, func(tx *store.Tx) error {
			return tx.ResealCredentials(row.Name, row.sealed, sealed)
		}); err != nil && director.KindOf(err) != director.KindConflict {
			return director.Credentials{}, err
		}
	}
	return director.Credentials{}, director.Errorf(
		director.KindUnavailable, op, "the credentials %s are being changed", name,
	).
		WithHint("try again")
}

// Reveal returns the credentials with their password, for no place in particular. Back ends use Open.
func (v Vault) Reveal(ctx context.Context, name string) (director.Credentials, error) {
	row, err := openSealed(ctx, v.Store, v.Sealer, name)
	return row.Credentials, err
}

// places are those of all documents that name the credentials. One whose certificates cannot be read has none.
func (v Vault) places(ctx context.Context, credentials string) ([]string, error) {
	docs, err := v.naming(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range docs {
		if p := v.placeOf(d, credentials); p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// naming returns all documents of the kinds that may name credentials.
func (v Vault) naming(ctx context.Context) ([]model.Stored, error) {
	var out []model.Stored
	for _, kind := range model.CredentialKinds() {
		docs, err := v.Store.Documents(ctx, kind)
		if err != nil {
			return nil, err
		}
		out = append(out, docs...)
	}
	return out, nil
}

// placeOf is where the document sends the credentials, and empty if it does not name them.
func (v Vault) placeOf(d model.Stored, credentials string) string {
	switch {
	case !d.NamesCredentials(credentials):
	case d.Provider != nil:
		if p, err := v.place(*d.Provider.VSphere); err == nil {
			return p
		}
	case d.IdentityProvider != nil:
		return placeOfIdentity(*d.IdentityProvider)
	case d.BackupTarget != nil:
		return placeOfBucket(*d.BackupTarget.S3)
	case d.Hook != nil:
		return placeOfHook(*d.Hook)
	case d.Notification != nil:
		return placeOfNotification(*d.Notification)
	case d.Consul != nil:
		return placeOfConsul(*d.Consul)
	case d.CertificateAuthority != nil:
		return placeOfAuthority(*d.CertificateAuthority)
	case d.Director != nil:
		return placeOfDirector(d.Metadata.Name, *d.Director)
	case d.Registry != nil && d.Registry.Credentials == credentials:
		return placeOfRegistry(*d.Registry)
	}
	return ""
}

// mostAuthorities is the size that a file with certificates may have.
const mostAuthorities = 1 << 20

// place says where a password goes, and what the certificate there is trusted by.
func (v Vault) place(s model.VSphere) (string, error) {
	text := s.URL
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("the address cannot be read") // the parser's error may quote an account
	}
	authorities := ""
	if s.CAFile != "" {
		f, err := v.Files.Open(s.CAFile)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		sum := sha256.New()
		if _, err := io.Copy(sum, io.LimitReader(f, mostAuthorities)); err != nil {
			return "", err
		}
		authorities = hex.EncodeToString(sum.Sum(nil))
	}
	pin := strings.ToUpper(strings.ReplaceAll(s.Thumbprint, ":", ""))
	return fmt.Sprintf(
		"vsphere %s:%s thumbprint=%s authorities=%s", strings.ToLower(u.Hostname()), cmp.Or(u.Port(), "443"), pin,
		authorities,
	), nil
}

// sealedRow is a row of credentials with what is inside of its seal.
type sealedRow struct {
	director.Credentials
	inside sealedCredentials
	sealed []byte
}

func openSealed(ctx context.Context, db *store.Store, box pki.Sealer, name string) (sealedRow, error) {
	const op = "providers.credentials"
	c, sealed, err := db.Credentials(ctx, name)
	row := sealedRow{Credentials: c, sealed: bytes.Clone(sealed)}
	if err != nil {
		if director.KindOf(err) == director.KindNotFound {
			return row, director.Errorf(director.KindNotFound, op, "there are no credentials %q", name).
				WithHint("set them: directorctl provider credentials set %s --user USER --password-file FILE", name)
		}
		return row, err
	}
	plain, err := box.Unseal(store.CredentialsOwner, name, sealed)
	if err != nil {
		return row, director.Errorf(
			director.KindInternal, op, "the sealed credentials %s cannot be read: %w", name, err,
		).
			WithHint(
				"%s; set them again: directorctl provider credentials set %s --user %s --password-file FILE",
				director.HintOf(err), name, c.User,
			)
	}
	// the parser's error is left out: it may quote them
	if err := json.Unmarshal(plain, &row.inside); err != nil || row.inside.Name != name {
		return row, director.Errorf(director.KindInternal, op, "the sealed credentials %s cannot be read", name).
			WithHint(
				"set them again: directorctl provider credentials set %s --user %s --password-file FILE", name, c.User,
			)
	}
	row.Password = director.Secret(row.inside.Password)
	return row, nil
}

func sealCredentials(box pki.Sealer, inside sealedCredentials) ([]byte, error) {
	plain, err := json.Marshal(inside)
	if err != nil {
		return nil, err
	}
	return box.Seal(store.CredentialsOwner, inside.Name, plain)
}
