package daemon

import (
	"context"
	"encoding/pem"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/appliance"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// directorRecords is the store and the vault as the steps for VMs of other directors want them.
type directorRecords struct {
	db    *store.Store
	vault providers.Vault
}

var _ steps.Directors = directorRecords{}

// FirstBoot implements steps.Directors. What the credentials hold is read as the appliance itself reads it.
func (r directorRecords) FirstBoot(ctx context.Context, name string, d model.Director) (steps.FirstBoot, error) {
	const op = "daemon.first_boot"
	given, problems := map[string]string{"hostname": d.HostnameOf(name), "ssh_keys": strings.Join(d.SSHKeys, "\n")},
		[]director.Field(nil)
	bad := func(field string, err error) {
		problems = append(problems, director.Field{
			Path: "Director/" + name + ": spec." + field, Msg: director.MessageOf(err), Hint: director.HintOf(err),
		})
	}
	admin, err := r.vault.OpenDirector(ctx, name, d.Credentials, d)
	if err != nil {
		bad("credentials", err)
	}
	if key := "admin_password"; strings.HasPrefix(admin.Password.Reveal(), "$") {
		given[key+"_hash"] = strings.TrimSpace(admin.Password.Reveal())
	} else {
		given[key] = admin.Password.Reveal()
	}
	if d.Certificate != "" {
		pair, err := r.vault.OpenDirector(ctx, name, d.Certificate, d)
		if err != nil {
			bad("certificate", err)
		} else {
			given["certificate"], given["certificate_key"] = splitPair(pair.Password.Reveal())
		}
	}
	if err := director.Invalid(op, "director "+name+" cannot be set up", problems); err != nil {
		return steps.FirstBoot{}, err
	}
	setup, err := appliance.Read(given)
	for _, f := range director.FieldsOf(err) {
		at := map[string]string{
			"admin_password": "credentials", "admin_password_hash": "credentials", "certificate": "certificate",
			"certificate_key": "certificate", "hostname": "hostname",
		}[f.Path]
		if at == "" {
			at = "sshKeys" + strings.TrimPrefix(f.Path, "ssh_keys")
		}
		bad(at, &director.Error{Kind: director.KindInvalid, Op: op, Msg: f.Msg, Hint: f.Hint})
	}
	return steps.FirstBoot{
		PasswordHash: director.Secret(setup.PasswordHash), Certificate: setup.Certificate,
		Key: director.Secret(setup.Key),
	}, director.Invalid(op, "director "+name+" cannot be set up", problems)
}

// splitPair takes a private key out of the PEM of a certificate with its chain.
func splitPair(text string) (certificate, key string) {
	var certs, keys strings.Builder
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return certs.String(), keys.String()
		}
		into := &certs
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			into = &keys
		}
		into.Write(pem.EncodeToMemory(block))
	}
}

// Problems implements planning.FirstBoots.
func (r directorRecords) Problems(ctx context.Context, name string, d model.Director) []director.Field {
	_, err := r.FirstBoot(ctx, name, d)
	if fields := director.FieldsOf(err); len(fields) > 0 || err == nil {
		return fields
	}
	return []director.Field{{
		Path: "Director/" + name + ": spec.credentials", Msg: director.MessageOf(err), Hint: director.HintOf(err),
	}}
}

// DirectorInstalled implements steps.Directors.
func (r directorRecords) DirectorInstalled(ctx context.Context, p step.DirectorParams, at time.Time) error {
	return r.db.Update(ctx, func(tx *store.Tx) error {
		if err := tx.SetMade(p.Machine.Row()); err != nil {
			return err
		}
		return tx.PutInstalled(store.Installed{
			UID: p.UID, Name: p.Name, Generation: p.Generation, At: at,
			Endpoint: "https://" + p.Document.HostnameOf(p.Name),
			Document: model.Document{
				Kind: model.KindDirector, Metadata: model.Metadata{Name: p.Name, Labels: p.Labels},
				Director: &p.Document,
			},
		})
	})
}

// ForgetDirector implements steps.Directors.
func (r directorRecords) ForgetDirector(ctx context.Context, p step.DirectorParams, actor string, at time.Time) error {
	return r.db.Update(ctx, func(tx *store.Tx) error {
		machines, err := tx.Living(p.UID)
		if err == nil && len(machines) > 0 {
			err = director.Errorf(
				director.KindConflict, "director.forget", "director %s still has its VM", p.Name,
			).WithHint("discard this plan and plan the deletion again: directorctl director delete %s", p.Name)
		}
		if err != nil {
			return err
		}
		if err := tx.ForgetCluster(p.UID, p.Name); err != nil {
			return err
		}
		return tx.Audit(at, actor, "deleted", "Director/"+p.Name)
	})
}
