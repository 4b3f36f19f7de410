package bundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/director-kaas/kaas/director"
)

// PushOptions say how a registry is reached.
type PushOptions struct {
	RootCAs   *x509.CertPool  // trusted instead of the system's; nil for the system's
	Username  string          // for basic authentication; empty for none
	Password  director.Secret // of Username
	PlainHTTP bool            // no TLS at all
	Jobs      int             // blobs copied at once for one image; 0 means 2
	Progress  func(PushEvent) // called before and after each image, from the calling goroutine; may be nil
}

// PushEvent is one step of a Push.
type PushEvent struct {
	Image   Image
	Done    bool // false before the image, true after it
	Skipped bool // the registry had it already
	Index   int  // from 0
	Total   int  // how many images the bundle has
}

// PushResult says what a Push did.
type PushResult struct {
	Pushed  int
	Skipped int
}

// Push copies every image of the bundle to registryHost as <registryHost>/<prefix>/<name>:<tag>. It is idempotent: an
// image whose tag has the right digest already is skipped, and of the others only the missing blobs are sent, so a
// second call continues where the first one stopped. Errors: unauthenticated or forbidden if the registry refuses,
// unavailable if it cannot be reached or fails, invalid for a bad host or prefix; images that were pushed before stay.
// Safe for concurrent use.
func (b *Bundle) Push(ctx context.Context, registryHost, prefix string, opts PushOptions) (PushResult, error) {
	web, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return PushResult{}, &director.Error{
			Kind: director.KindInternal, Op: opPush, Msg: "the default HTTP transport was replaced",
		}
	}
	web = web.Clone()
	defer web.CloseIdleConnections()
	web.TLSClientConfig = &tls.Config{RootCAs: opts.RootCAs, MinVersion: tls.VersionTLS12}
	to, err := newPushTarget(ctx, registryHost, prefix, opts, web)
	if err != nil {
		return PushResult{}, err
	}
	report := opts.Progress
	if report == nil {
		report = func(PushEvent) {}
	}
	var result PushResult
	for n, i := range b.release.Images {
		event := PushEvent{Image: i, Index: n, Total: len(b.release.Images)}
		report(event)
		event.Skipped, err = b.pushImage(ctx, to, i)
		if err != nil {
			return result, err
		}
		if event.Skipped {
			result.Skipped++
		} else {
			result.Pushed++
		}
		event.Done = true
		report(event)
	}
	return result, nil
}

const opPush = "bundle.push"

// pushTarget is the registry, and the prefix in it, that images are pushed to.
type pushTarget struct {
	host, prefix string
	registry     name.Registry
	naming       []name.Option
	puller       *remote.Puller
	pusher       *remote.Pusher
}

func newPushTarget(
	ctx context.Context, host, prefix string, opts PushOptions, web http.RoundTripper,
) (pushTarget, error) {
	to := pushTarget{host: host, prefix: prefix, naming: []name.Option{name.StrictValidation}}
	if opts.PlainHTTP {
		to.naming = append(to.naming, name.Insecure)
	}
	var err error
	if to.registry, err = name.NewRegistry(host, to.naming...); err != nil {
		return to, &director.Error{
			Kind: director.KindInvalid, Op: opPush, Msg: fmt.Sprintf("%q is not a registry", host), Err: err,
		}
	}
	auth := authn.Anonymous
	if opts.Username != "" {
		auth = &authn.Basic{Username: opts.Username, Password: opts.Password.Reveal()}
	}
	jobs := opts.Jobs
	if jobs <= 0 {
		jobs = 2
	}
	remotely := []remote.Option{
		remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(web), remote.WithJobs(jobs),
	}
	if to.puller, err = remote.NewPuller(remotely...); err == nil {
		to.pusher, err = remote.NewPusher(remotely...)
	}
	if err != nil {
		return to, &director.Error{
			Kind: director.KindInternal, Op: opPush, Msg: "cannot set up the registry client", Err: err,
		}
	}
	return to, nil
}

// tag is where an image goes.
func (to pushTarget) tag(i Image) (name.Tag, error) {
	repository := i.Name
	if to.prefix != "" {
		repository = to.prefix + "/" + i.Name
	}
	tag, err := name.NewTag(to.registry.Name()+"/"+repository+":"+i.Tag, to.naming...)
	if err != nil {
		return tag, &director.Error{
			Kind: director.KindInvalid, Op: opPush, Msg: fmt.Sprintf("%q is not a prefix of image names", to.prefix),
			Err: err,
		}
	}
	return tag, nil
}

// pushImage pushes one image, or skips it if the registry has it already.
func (b *Bundle) pushImage(ctx context.Context, to pushTarget, i Image) (skipped bool, err error) {
	tag, err := to.tag(i)
	if err != nil {
		return false, err
	}
	there, err := to.puller.Head(ctx, tag)
	switch {
	case err == nil && there.Digest == i.Digest:
		return true, nil
	case err != nil && statusOf(err) != http.StatusNotFound:
		return false, refused(opPush, "ask "+to.host+" for "+i.Ref(), err)
	}
	image, err := b.image(i)
	if err != nil {
		return false, &director.Error{
			Kind: director.KindInvalid, Op: opPush,
			Msg: fmt.Sprintf("image %s of release %s cannot be read", i.Ref(), b.release.Name), Err: err,
			Hint: "verify the bundle",
		}
	}
	if err := to.pusher.Push(ctx, tag, image); err != nil {
		return false, refused(opPush, "push "+i.Ref()+" to "+to.host, err)
	}
	return false, nil
}

// image returns the image whose manifest is the listed one. The manifest stays in memory, and the registry compares
// everything that the manifest lists.
func (b *Bundle) image(i Image) (v1.Image, error) {
	image, err := b.layout.Image(i.Digest)
	if err != nil {
		return nil, err
	}
	got, err := image.Digest()
	if err == nil && got != i.Digest {
		err = fmt.Errorf("its manifest has the digest %s, and release.yaml says %s", got, i.Digest)
	}
	return image, err
}

// statusOf returns the HTTP status that a registry answered with, or 0.
func statusOf(err error) int {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// refused classifies an error of the registry client.
func refused(op, what string, err error) error {
	e := &director.Error{
		Kind: director.KindUnavailable, Op: op, Msg: "cannot " + what, Err: err,
		Hint: "check that the registry runs and can be reached",
	}
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch status := statusOf(err); {
	case errors.As(err, &authority), errors.As(err, &host):
		e.Hint = "the certificate of the registry is not trusted: give the CA that signed it"
	case status == http.StatusUnauthorized:
		e.Kind, e.Hint = director.KindUnauthenticated, "check user name and password of the registry"
	case status == http.StatusForbidden:
		e.Kind, e.Hint = director.KindForbidden, "the registry does not allow this user to write"
	case status == http.StatusInsufficientStorage:
		e.Kind, e.Hint = director.KindExhausted, "make room on the registry's disk"
	}
	return e
}
