package vsphere

import (
	"context"
	"errors"
	"net"
	"net/url"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

func interrupted(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return director.Errorf(director.KindUnavailable, op, "interrupted: %w", context.Cause(ctx))
}

// faultOf returns vCenter's fault in err's chain, as a value of its type, and vCenter's own sentence; nil if there is
// none.
func faultOf(err error) (any, string) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch {
		case soap.IsSoapFault(e):
			f := soap.ToSoapFault(e)
			return plain(f.VimFault()), f.String
		case soap.IsVimFault(e):
			return plain(soap.ToVimFault(e)), e.Error()
		}
	}
	if t, ok := errors.AsType[task.Error](err); ok {
		return plain(t.Fault()), t.LocalizedMessage
	}
	if t, ok := errors.AsType[*task.Error](err); ok {
		return plain(t.Fault()), t.LocalizedMessage
	}
	return nil, ""
}

// The hints that several faults share.
const (
	noRoom = "no host of the cluster has room: free some, choose smaller VMs, or look at the pool's limits and at " +
		"admission control"
	refused = "vCenter refuses the settings; check the provider's document, and the versions of vCenter and hosts " +
		"(7.0 or later)"
)

func pointerTo(fault any) any {
	p := reflect.New(reflect.TypeOf(fault))
	p.Elem().Set(reflect.ValueOf(fault))
	return p.Interface()
}

func plain(fault any) any {
	v := reflect.ValueOf(fault)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return v.Elem().Interface()
	}
	return fault
}

// hasFault tells whether err is vCenter's fault of type T.
func hasFault[T any](err error) bool {
	f, _ := faultOf(err)
	_, ok := f.(T)
	return ok
}

// translate turns vCenter's errors into ours. what names the thing that the call was about; ours pass.
func (b *center) translate(ctx context.Context, op, what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return interrupted(ctx, op)
	}
	fault, text := faultOf(err)
	if fault == nil {
		return b.conn.dialError(ctx, op, err)
	}
	if text == "" {
		text = reflect.TypeOf(fault).Name()
	}
	if f, ok := fault.(types.NoPermission); ok {
		return b.forbidden(op, what, f, err)
	}
	m := meaningOf(fault, text)
	return &director.Error{Kind: m.kind, Op: op, Msg: what + ": " + m.msg, Hint: m.hint, Err: err}
}

// meaning is what a fault means to the one who asked.
type meaning struct {
	kind      director.Kind
	msg, hint string
}

// meaningOf finds what a fault means: by itself, or else by its family. text is what vCenter says of it.
func meaningOf(fault any, text string) meaning {
	switch f := fault.(type) {
	case types.RestrictedVersion:
		return meaning{
			director.KindForbidden, "the licence of vCenter or of the host does not allow this call",
			"the free ESXi licence cannot be written to; assign another licence",
		}
	case types.NotAuthenticated:
		return meaning{
			director.KindUnavailable, "vCenter ended the session",
			"try again; a second director with the same account may have ended it",
		}
	case types.NoDiskSpace:
		return meaning{
			director.KindExhausted, "the datastore " + f.Datastore + " is full",
			"free space in it, or name another one in spec.vsphere.datastores",
		}
	case types.InsufficientStorageSpace, types.FileTooLarge:
		return meaning{
			director.KindExhausted, text, "free space in the datastore, or name another one in spec.vsphere.datastores",
		}
	case types.NoCompatibleHost, types.NoActiveHostInCluster:
		return meaning{director.KindExhausted, text, noRoom}
	case types.DuplicateName:
		return meaning{
			director.KindConflict, "the name " + f.Name + " is taken in its folder",
			"choose another name, or remove what has it by hand",
		}
	case types.AlreadyExists, types.FileAlreadyExists:
		return meaning{director.KindConflict, text, ""}
	case types.InaccessibleDatastore, types.DatastoreNotWritableOnHost, types.InvalidDatastore:
		return meaning{
			director.KindUnavailable, text,
			"the datastore cannot be reached from the host; look at its state in vCenter",
		}
	case types.InvalidHostState:
		return meaning{
			director.KindUnavailable, text,
			"the host is in maintenance or not connected: take it out of maintenance, or leave it out of " +
				"spec.vsphere.hosts",
		}
	case types.TaskInProgress, types.ConcurrentAccess, types.ResourceInUse, types.FileLocked, types.Timedout,
		types.RequestCanceled:
		return meaning{director.KindUnavailable, text, "something else works on it; try again"}
	case types.ManagedObjectNotFound:
		return meaning{director.KindNotFound, "it is gone from vCenter", ""}
	case types.FileNotFound, types.NotFound:
		return meaning{director.KindNotFound, text, ""}
	case types.ToolsUnavailable:
		return meaning{
			director.KindUnavailable, "the guest runs no VMware tools",
			"install open-vm-tools in the image; without them cloud-init reads no settings from vCenter",
		}
	case types.NotSupported, types.InvalidArgument, types.InvalidRequest:
		return meaning{director.KindInvalid, text, refused}
	}
	return familyOf(fault, text)
}

// familyOf finds what a fault means by the family that it belongs to.
func familyOf(fault any, text string) meaning {
	switch pointerTo(fault).(type) {
	case types.BaseInsufficientResourcesFault:
		return meaning{director.KindExhausted, text, noRoom}
	case types.BaseCannotAccessNetwork:
		return meaning{
			director.KindNotFound, text,
			"the port group is missing on the host; add it there, or leave the host out of spec.vsphere.hosts",
		}
	case types.BaseHostCommunication:
		return meaning{director.KindUnavailable, text, "vCenter does not reach the host; look at its state in vCenter"}
	case types.BaseInvalidState:
		return meaning{
			director.KindUnavailable, text, "something else works on it, or its host is in maintenance; try again",
		}
	case types.BaseNotEnoughLicenses:
		return meaning{director.KindForbidden, text, "assign a valid licence in vCenter"}
	case types.BaseVmConfigFault:
		return meaning{director.KindInvalid, text, refused}
	}
	return meaning{
		director.KindInternal, text + " (" + reflect.TypeOf(fault).Name() + ")",
		"look at the task in vCenter, Monitor > Tasks",
	}
}

// forbidden names the privilege that is missing.
func (b *center) forbidden(op, what string, f types.NoPermission, cause error) error {
	missing := f.PrivilegeId
	for _, e := range f.MissingPrivileges {
		if len(e.PrivilegeIds) > 0 {
			missing = strings.Join(e.PrivilegeIds, ", ")
		}
	}
	if missing == "" {
		missing = "a privilege that vCenter does not name"
	}
	object := ""
	if f.Object != nil {
		object = " on " + f.Object.Type + " " + f.Object.Value
	}
	return &director.Error{
		Kind: director.KindForbidden, Op: op, Msg: what + ": the account lacks " + missing + object, Err: cause,
		Hint: "add it to the account's role; docs/operate/vsphere.md has the whole role, and the pre-check of a " +
			"plan names all that is missing at once",
	}
}

// loginError says why vCenter did not let us in. The password is in none of it.
func (c *conn) loginError(ctx context.Context, op, user string, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, op)
	}
	switch fault, text := faultOf(err); fault.(type) {
	case nil:
		return c.dialError(ctx, op, err)
	case types.InvalidLogin:
		return &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: c.url.Host + " does not take the password of " + user, Err: err,
			Hint: "correct the account or its password; it is not tried again for a minute, since vCenter locks " +
				"accounts after a few failures",
		}
	case types.NoPermission, types.PasswordExpired:
		return &director.Error{
			Kind: director.KindForbidden, Op: op, Msg: c.url.Host + " does not let " + user + " log in: " + text,
			Err:  err,
			Hint: "give the account a role in vCenter; docs/operate/vsphere.md has the one that it needs",
		}
	default:
		return &director.Error{
			Kind: director.KindUnavailable, Op: op, Msg: c.url.Host + " does not let " + user + " log in: " + text,
			Err: err, Hint: "check the health of vCenter",
		}
	}
}

// dialError says why vCenter does not answer.
func (c *conn) dialError(ctx context.Context, op string, err error) error {
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return interrupted(ctx, op)
	}
	e := &director.Error{Kind: director.KindUnavailable, Op: op, Err: err}
	_, unknownName := errors.AsType[*net.DNSError](err)
	switch text := reason(err); {
	case errors.Is(err, confine.ErrAddress):
		e.Kind, e.Msg, e.Hint = director.KindInvalid, "the director may not connect to "+c.url.Host+": "+text,
			confine.NetworksHint
	case strings.Contains(text, "thumbprint does not match"):
		e.Kind, e.Msg = director.KindInvalid, c.url.Host+" shows another certificate than the pinned one"
		e.Hint = "another machine may be in between; if the certificate was renewed, pin the new one: thumbprint: " +
			c.fingerprint(ctx)
	case soap.IsCertificateUntrusted(err) || strings.Contains(text, "x509:") || strings.Contains(text, "certificate"):
		e.Kind, e.Msg = director.KindInvalid, "the certificate of "+c.url.Host+" is not trusted"
		e.Hint = "compare its SHA-256 with the one that vCenter's own console shows, and pin it in " +
			"spec.vsphere.thumbprint: " + c.fingerprint(ctx) +
			"; or name the file of the authority's certificate in spec.vsphere.caFile"
	case unknownName:
		e.Msg, e.Hint = "there is no host named "+c.url.Hostname(),
			"correct spec.vsphere.url, or the director's name servers"
	case strings.Contains(text, "404 Not Found") || strings.Contains(text, "405 Method") ||
		strings.Contains(text, "XML syntax error"):
		e.Kind, e.Msg = director.KindInvalid, "what answers at "+c.url.Redacted()+" is no vCenter"
		e.Hint = "spec.vsphere.url is the name of the vCenter, such as https://vcenter.example.org/sdk"
	default:
		e.Msg, e.Hint = "vCenter does not answer at "+c.url.Host+": "+text,
			"check that it is up and that the director reaches its port 443"
	}
	return e
}

// reason is the innermost sentence of a network's error: the outer ones repeat the address.
func reason(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}
