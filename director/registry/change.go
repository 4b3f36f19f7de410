package registry

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	v2 "github.com/distribution/distribution/v3/registry/api/v2"
	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director"
)

// kept is an answer that is not sent yet: a change is only reported once it is known to hold.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

// Write implements http.ResponseWriter.
func (k *kept) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(b)
}

func (k *kept) done() bool { return k.status >= 200 && k.status < 300 }

func (k *kept) send(w http.ResponseWriter) {
	for name, values := range k.header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(k.status, http.StatusOK))
	_, _ = w.Write(k.body.Bytes())
}

func keep(next http.Handler, req *http.Request) *kept {
	k := &kept{header: http.Header{}}
	next.ServeHTTP(k, req)
	return k
}

// sure answers a push only if all that it needs is still there: the collector may have removed a blob, which nothing
// needed before, at the same moment. The client then sends it again.
func (r *Registry) sure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p, ok := placeIn(req)
		if !ok || reads(req) || req.Method == http.MethodPatch || req.Method == http.MethodDelete {
			next.ServeHTTP(w, req)
			return
		}
		k := keep(next, req)
		if k.status == http.StatusCreated {
			whole, err := r.whole(req.Context(), p, digest.Digest(k.header.Get("Docker-Content-Digest")))
			if err != nil || !whole {
				busy(w, "a part of the image has just been removed; push it again")
				return
			}
		}
		k.send(w)
	})
}

// whole reports whether a blob or a manifest that was just written is there with all that it names.
func (r *Registry) whole(ctx context.Context, p place, d digest.Digest) (bool, error) {
	if d.Validate() != nil {
		return false, nil
	}
	needed := []digest.Digest{d}
	isManifest := p.route == v2.RouteNameManifest
	if isManifest {
		refs, there, err := r.references(ctx, p.repository, d)
		if err != nil || !there {
			return false, err
		}
		needed = append(needed, refs...)
	}
	for i, d := range needed {
		paths := []string{blobPath(d), linkPath(p.repository, layersDir, d)}
		if isManifest {
			paths[1] = linkPath(p.repository, revisionsDir, d)
		}
		_, data, err := r.exists(ctx, paths[0])
		if err != nil || !data {
			return false, err
		}
		_, link, err := r.exists(ctx, paths[1])
		if err == nil && !link && isManifest && i > 0 { // a layer, and not a manifest that an index names
			_, link, err = r.exists(ctx, linkPath(p.repository, layersDir, d))
		}
		if err != nil || !link {
			return false, err
		}
	}
	return true, nil
}

// change serves what a person changes in a project, who may.
func (r *Registry) change(next http.Handler, person string, p place, w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	project, err := r.cfg.People.Project(ctx, p.project)
	if err == nil {
		err = r.claim(ctx, p.project, project.UID)
	}
	if err == nil {
		err = r.count(ctx, p.project)
	}
	if err != nil {
		r.cfg.Logger.WarnContext(ctx, "a push cannot begin", "project", p.project, "err", err)
		busy(w, "the registry cannot take this now; try again")
		return
	}
	// distribution would look for parameters in a form as well; it is to see those of the path that were checked.
	if p.upload() {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	u := arrival{person: person, project: p.project, repository: p.repository, limit: project.Images}
	switch {
	case p.route == v2.RouteNameBlobUpload && req.Method == http.MethodPost:
		r.startUpload(next, u, w, req)
	case p.route == v2.RouteNameBlobUploadChunk:
		r.continueUpload(next, u, p, w, req)
	case p.route == v2.RouteNameManifest && req.Method == http.MethodPut:
		r.putManifest(next, u, p, w, req)
	case p.route == v2.RouteNameManifest && req.Method == http.MethodDelete:
		r.deleteManifest(next, u, p, w, req)
	default:
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED",
			"delete images; parts of images that nothing needs go by themselves")
	}
}

// startUpload begins to take a blob. One that the same project has already need not be sent again.
func (r *Registry) startUpload(next http.Handler, u arrival, w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	if from := q.Get("from"); !strings.HasPrefix(from, ProjectsPrefix+u.project+"/") {
		q.Del("from")
		q.Del("mount")
	}
	req.URL.RawQuery = q.Encode()
	for id, repository := range r.quotas.abandoned() {
		r.discard(req.Context(), repository, id)
	}
	err := r.room()
	if err == nil {
		_, err = r.quotas.take(&u, 1, r.largest) // one byte more has to fit
		r.quotas.end("", &u, "")
	}
	if err != nil {
		r.full(w, req, u, "", err)
		return
	}
	k := keep(next, req)
	if id := k.header.Get("Docker-Upload-UUID"); k.status == http.StatusAccepted {
		if _, err := r.quotas.begin(id, u); err != nil {
			r.discard(req.Context(), u.repository, id)
			r.full(w, req, u, "", err)
			return
		}
	}
	k.send(w)
}

// continueUpload takes a part of a blob, of who began to send it.
func (r *Registry) continueUpload(next http.Handler, who arrival, p place, w http.ResponseWriter, req *http.Request) {
	u, ok := r.quotas.find(p.image, who.person, p.repository)
	if !ok {
		refuse(w, http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "you have not begun to send this, or it was given up")
		return
	}
	m := &metered{ReadCloser: req.Body, registry: r, upload: u}
	req.Body = m
	k := keep(next, req)
	ctx := req.Context()
	switch {
	case m.over != nil:
		r.quotas.end(p.image, u, "")
		r.discard(ctx, p.repository, p.image)
		r.full(w, req, who, "", m.over)
		return
	case k.status == http.StatusCreated:
		r.quotas.end(p.image, u, digest.Digest(k.header.Get("Docker-Content-Digest")))
	default:
		_, there, err := r.exists(ctx, repositoryDir(p.repository, "_uploads", p.image, "startedat"))
		if err == nil && !there {
			r.quotas.end(p.image, u, "")
		}
	}
	k.send(w)
}

// discard removes what was sent of a blob.
func (r *Registry) discard(ctx context.Context, repository, id string) {
	if err := r.remove(ctx, repositoryDir(repository, "_uploads", id)); err != nil {
		r.cfg.Logger.WarnContext(ctx, "an upload that was refused cannot be removed yet", "id", id, "err", err)
	}
}

// full refuses what there is no room for.
func (r *Registry) full(w http.ResponseWriter, req *http.Request, u arrival, image string, err error) {
	r.record(req.Context(), Deed{Person: u.person, Push: true, Repository: u.repository, Image: image, Err: err})
	msg := err.Error()
	if e, ok := errors.AsType[*director.Error](err); ok {
		msg = e.Msg
	}
	refuse(w, http.StatusForbidden, "DENIED", msg)
}

func (r *Registry) putManifest(next http.Handler, u arrival, p place, w http.ResponseWriter, req *http.Request) {
	m := &metered{ReadCloser: req.Body, registry: r, upload: &u}
	req.Body = m
	k := keep(next, req)
	is := digest.Digest(k.header.Get("Docker-Content-Digest"))
	if !k.done() {
		is = ""
	}
	r.quotas.end("", &u, is)
	switch {
	case m.over != nil:
		r.full(w, req, u, p.image, m.over)
	case k.done() && !r.record(req.Context(), Deed{
		Person: u.person, Push: true, Repository: p.repository, Image: p.image, Digest: is.String(),
	}):
		busy(w, "the image is there, but the push cannot be recorded in the audit trail; push it again")
	default:
		k.send(w)
	}
}

func (r *Registry) deleteManifest(next http.Handler, u arrival, p place, w http.ResponseWriter, req *http.Request) {
	ctx := req.Context()
	var refs []digest.Digest
	if d := digest.Digest(p.image); d.Validate() == nil {
		var err error
		if refs, _, err = r.references(ctx, p.repository, d); err != nil {
			r.cfg.Logger.WarnContext(ctx, "an image that is deleted cannot be read", "image", p.image, "err", err)
		}
	}
	k := keep(next, req)
	if k.done() {
		if err := (collector{r}).unlink(ctx, p.repository, refs, r.now()); err != nil { // a later collection does it
			r.cfg.Logger.WarnContext(ctx, "parts of a deleted image stay for now", "image", p.image, "err", err)
		}
		r.quotas.forget(p.project)
		if !r.record(ctx, Deed{Person: u.person, Repository: p.repository, Image: p.image}) {
			busy(w, "the image is deleted, but that cannot be recorded in the audit trail")
			return
		}
	}
	k.send(w)
}
