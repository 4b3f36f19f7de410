package providers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
)

// opened is what an opener was asked for.
type opened struct {
	provider model.Provider
	account  director.Credentials
	closed   int
}

// closing counts how often the back end is closed.
type closing struct {
	hypervisor.Backend
	n *int
}

func (c closing) Close() error { *c.n++; return c.Backend.Close() }

// Unwrap shows what the back end can do.
func (c closing) Unwrap() hypervisor.Backend { return c.Backend }

// openDrafts is open with an opener of drafts, which logs in to a vCenter as a back end does.
func openDrafts(t *testing.T) (*fixture, *opened) {
	t.Helper()
	l, o := open(t), &opened{}
	l.Check = func(d *model.Document) error {
		_, err := model.Validate(d)
		return err
	}
	l.Open = func(name string, p model.Provider, accounts Accounts) (hypervisor.Backend, error) {
		o.provider, o.account = p, director.Credentials{}
		if p.VSphere != nil {
			var err error
			if o.account, err = accounts(t.Context(), name, *p.VSphere); err != nil {
				return nil, err
			}
		}
		return closing{sim.Open(l.world), &o.closed}, nil
	}
	return l, o
}

func draftOf(spec string) Draft {
	return Draft{Text: []byte("apiVersion: kaas/v1\nkind: Provider\nmetadata: {name: new}\nspec: " + spec + "\n")}
}

func hostAt(uri string) Draft {
	return draftOf("{type: libvirt, libvirt: {hosts: [{name: h, uri: '" + uri + "'}]}}")
}

const project = "apiVersion: kaas/v1\nkind: Project\nmetadata: {name: p}\nspec: {}\n"

const center = "{type: vsphere, vsphere: {url: vc.example.org, credentials: vcenter, %s}}"

// A provider that is not stored is asked with nothing but its address and its account, and nothing of it stays.
func TestDiscoverDraft(t *testing.T) {
	t.Parallel()
	l, o := openDrafts(t)
	ctx := t.Context()
	d, err := l.DiscoverDraft(ctx, "ann", draftOf(
		"{type: libvirt, libvirt: {domainType: kvm, hosts: [{name: h, uri: 'qemu+ssh://root@h/system', pool: no}]}}",
	))
	if err != nil || len(d.Items) != 6 {
		t.Errorf("got %+v, %v", d, err)
	}
	if h := o.provider.Libvirt.Hosts; len(h) != 1 || h[0].URI != "qemu+ssh://root@h/system" || h[0].Pool == "no" {
		t.Errorf("opened %+v", h)
	}
	// names that are looked for need not be there
	with := draftOf("{type: vsphere, vsphere: {url: vc.example.org, thumbprint: " + strings.Repeat("ab", 32) + "}}")
	with.User, with.Password = "kaas@vsphere.local", "hunter2"
	if _, err := l.DiscoverDraft(ctx, "ann", with); err != nil || o.account.Password != "hunter2" ||
		o.provider.VSphere.URL != "vc.example.org" || o.provider.VSphere.Thumbprint == "" {
		t.Errorf("%v: opened %+v as %+v", err, o.provider.VSphere, o.account)
	}
	if o.closed != 2 {
		t.Errorf("%d back ends were closed", o.closed)
	}
	_, err = l.db.Document(ctx, model.Ref{Kind: model.KindProvider, Name: "new"})
	wantKind(t, err, director.KindNotFound)
	list, err := l.ListCredentials(ctx)
	if err != nil || len(list) != 0 {
		t.Errorf("stored %+v, %v", list, err)
	}
	trail, err := l.db.AuditPage(ctx, 0, 100, 10)
	if got := fmt.Sprintf("%+v", trail); err != nil || !strings.Contains(got, "discover at vc.example.org") ||
		!strings.Contains(got, "discover at qemu+ssh://root@h/system") || strings.Contains(got, "hunter2") {
		t.Errorf("the trail is %s, %v", got, err)
	}
}

// What is wrong with the address or the account is said before anything is asked; what else is wrong is not.
func TestDiscoverWrongDraft(t *testing.T) {
	t.Parallel()
	l, _ := openDrafts(t)
	l.Open = func(string, model.Provider, Accounts) (hypervisor.Backend, error) {
		t.Error("it was opened")
		return nil, director.Errorf(director.KindInternal, "test", "no")
	}
	account := func(d Draft, user string, password director.Secret) Draft {
		d.User, d.Password = user, password
		return d
	}
	for want, d := range map[string]Draft{
		"holds no document":                {},
		"the document is not one Provider": {Text: []byte(project)},
		"spec.libvirt.hosts":               draftOf("{type: libvirt}"),
		"spec.libvirt.hosts[0].uri":        hostAt("qemu+ext:///system?command=/bin/sh"),
		"spec.vsphere.url": draftOf(
			"{type: vsphere, vsphere: {url: 'https://root:x@vc', credentials: vc}}"),
		"holds an account":       account(draftOf("{type: vsphere, vsphere: {url: 'https://a:x@vc'}}"), "u", "p"),
		"belong together":        account(draftOf(fmt.Sprintf(center, "")), "u", ""),
		"is for a vCenter alone": account(hostAt("qemu:///system"), "u", "p"),
		"spec.vsphere":           draftOf("{type: vsphere, vsphere: {url: vc.example.org}}"),
	} {
		_, err := l.DiscoverDraft(t.Context(), "ann", d)
		if director.KindOf(err) != director.KindInvalid || !strings.Contains(fmt.Sprintf("%+v", err), want) {
			t.Errorf("%s: %+v, want %s", d.Text, err, want)
		}
	}
}

// Sealed credentials are sent to the place that they were set for, and to any as long as they were set for none.
func TestCredentialsOfDrafts(t *testing.T) {
	t.Parallel()
	l, o := openDrafts(t)
	ctx := t.Context()
	draft := draftOf(fmt.Sprintf(center, ""))
	_, err := l.DiscoverDraft(ctx, "ann", draft)
	wantKind(t, err, director.KindNotFound, "directorctl provider credentials set vcenter")
	set := func() {
		t.Helper()
		if _, err := l.SetCredentials(ctx, "ann", "vcenter", "kaas", "hunter2"); err != nil {
			t.Fatal(err)
		}
	}
	set()
	if _, err := l.DiscoverDraft(ctx, "ann", draft); err != nil || o.account.Password != "hunter2" {
		t.Errorf("as %+v: %v", o.account, err)
	}
	spec := fmt.Sprintf(center, "datacenter: d, cluster: c, datastores: [s]")
	l.put(t, "kind: Provider\nmetadata: {name: vc}\nspec: "+spec+"\n")
	set() // for the provider's address
	if _, err := l.DiscoverDraft(ctx, "ann", draft); err != nil {
		t.Error(err)
	}
	o.account = director.Credentials{}
	evil := draftOf("{type: vsphere, vsphere: {url: evil.example.org, credentials: vcenter}}")
	_, err = l.DiscoverDraft(ctx, "ann", evil)
	wantKind(t, err, director.KindConflict, "were not set for the address")
	if o.account.Password != "" {
		t.Error("they were sent")
	}
}

// A draft that hangs holds up its person's next one, and nobody else.
func TestDraftsHang(t *testing.T) {
	t.Parallel()
	l, _ := openDrafts(t)
	l.Patience = 50 * time.Millisecond
	began, hang := make(chan struct{}), make(chan struct{})
	inner := l.Open
	l.Open = func(name string, p model.Provider, a Accounts) (hypervisor.Backend, error) {
		if p.Libvirt.Hosts[0].Name == "slow" {
			close(began)
			<-hang
		}
		return inner(name, p, a)
	}
	draft := func(name string) Draft {
		return draftOf("{type: libvirt, libvirt: {hosts: [{name: " + name + ", uri: 'qemu:///system'}]}}")
	}
	ended := make(chan error)
	go func() {
		_, err := l.DiscoverDraft(context.WithoutCancel(t.Context()), "ann", draft("slow"))
		ended <- err
	}()
	<-began
	_, err := l.DiscoverDraft(t.Context(), "ann", draft("quick"))
	wantKind(t, err, director.KindUnavailable, "does not answer within 50ms")
	for err != nil { // on a busy machine it may take longer than 50 ms by itself
		_, err = l.DiscoverDraft(t.Context(), "bob", draft("quick"))
	}
	close(hang)
	// An answer that comes late is one all the same.
	if err := <-ended; err != nil && director.KindOf(err) != director.KindUnavailable {
		t.Errorf("the slow one: %v", err)
	}
}
