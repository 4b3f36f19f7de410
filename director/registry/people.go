package registry

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"

	v2 "github.com/distribution/distribution/v3/registry/api/v2"
	"github.com/gorilla/mux"

	"github.com/director-kaas/kaas/director"
)

// ProjectsPrefix is what the names of all repositories of people begin with; the name of their project follows.
const ProjectsPrefix = "projects/"

// Person is who shows a name and a secret of their own.
type Person struct {
	Name     string
	Releases bool // may pull the images of releases
	// May says what the person may do with the images of a project. To who may do nothing, it does not exist.
	May func(ctx context.Context, project string) (Rights, error)
}

// Rights are what a person may do with the images of a project.
type Rights struct{ Pull, Push bool }

// Project is a project as far as its images are concerned.
type Project struct {
	UID    string // of this incarnation: one that was deleted and made again has another
	Images int64  // how many bytes they may have; 0 for no limit
}

// Deed is a push or a deletion that was done, or was refused.
type Deed struct {
	Person     string
	Push       bool   // and otherwise a deletion
	Repository string // with the project
	Image      string // tag or digest
	Digest     string // of what was pushed
	Err        error  // nil if it was done
}

// People are who may push and pull images of projects. All methods are safe for concurrent use.
type People interface {
	// Enter returns the person. Errors: unauthenticated; exhausted for who has to wait; unavailable.
	Enter(ctx context.Context, name string, password director.Secret) (Person, error)
	// Project returns not_found for a project that there is not.
	Project(ctx context.Context, name string) (Project, error)
	// Projects returns all projects by their names.
	Projects(ctx context.Context) (map[string]Project, error)
	// ProjectOf returns the project of the cluster whose nodes show this user; empty for none.
	ProjectOf(ctx context.Context, user string) (string, error)
	// Record writes a deed into the audit trail.
	Record(ctx context.Context, d Deed) error
}

// caller is who sends a request: the director itself, a person, or a reader, such as a node.
type caller struct {
	director bool
	person   *Person
	reader   string // user of a node; empty also for who shows nothing
}

// place is what a request is about.
type place struct {
	route      string
	repository string
	project    string // of the repository; empty for an image of a release
	image      string // tag, digest, or id of an upload
}

// placeIn reads the path as distribution does, with its own router, so that no name means one thing here and another
// there. Paths that could be written in another way are no places.
func placeIn(req *http.Request) (place, bool) {
	clean := req.URL.Path
	if clean != "/" {
		clean = strings.TrimSuffix(clean, "/")
	}
	var m mux.RouteMatch
	if req.URL.RawPath != "" || path.Clean(clean) != clean || !v2.Router().Match(req, &m) || m.Route == nil {
		return place{}, false
	}
	p := place{route: m.Route.GetName(), repository: m.Vars["name"]}
	for _, name := range []string{"reference", "digest", "uuid"} {
		if v := m.Vars[name]; v != "" {
			p.image = v
		}
	}
	if rest, ok := strings.CutPrefix(p.repository+"/", ProjectsPrefix); ok {
		project, name, _ := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
		if p.project = project; project == "" || name == "" {
			return place{}, false
		}
	}
	return p, true
}

// upload reports whether the place is a blob that is being sent. Looking at one is for who may send it.
func (p place) upload() bool {
	return p.route == v2.RouteNameBlobUpload || p.route == v2.RouteNameBlobUploadChunk
}

func reads(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// admit lets a caller do what the caller may.
func (r *Registry) admit(next http.Handler, who caller, w http.ResponseWriter, req *http.Request) {
	if who.director {
		next.ServeHTTP(w, req)
		return
	}
	p, ok := placeIn(req)
	switch {
	case strings.HasPrefix(req.URL.Path, ArtifactsPath) && reads(req) && (who.person == nil || who.person.Releases):
		next.ServeHTTP(w, req)
	case !ok:
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "there is nothing of that name that you may see")
	case p.route == v2.RouteNameBase && reads(req):
		next.ServeHTTP(w, req)
	case p.route == v2.RouteNameCatalog && reads(req):
		r.catalog(who, w, req)
	default:
		r.use(next, who, p, w, req)
	}
}

// use serves a request about a repository.
func (r *Registry) use(next http.Handler, who caller, p place, w http.ResponseWriter, req *http.Request) {
	rights, err := r.rights(req.Context(), who, p)
	switch {
	case err != nil:
		r.cfg.Logger.WarnContext(req.Context(), "what someone may do in the registry cannot be found out", "err", err)
		busy(w, "the director cannot find out what you may do now; try again")
	case !rights.Pull && (!rights.Push || reads(req) && !p.upload()):
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", "there is nothing of that name that you may see")
	case reads(req) && !p.upload():
		next.ServeHTTP(w, req)
	case !rights.Push:
		msg := "your role in the project " + p.project + " does not let you push and delete images"
		if p.project == "" {
			msg = "the director alone pushes images of releases; yours belong below " + ProjectsPrefix + "PROJECT/"
		}
		r.refused(w, req, who, p, msg)
	default:
		r.change(next, who.person.Name, p, w, req)
	}
}

// refused tells someone who sees a repository that it is not theirs to change.
func (r *Registry) refused(w http.ResponseWriter, req *http.Request, who caller, p place, msg string) {
	if who.person != nil && !reads(req) {
		r.record(req.Context(), Deed{
			Person: who.person.Name, Push: req.Method != http.MethodDelete, Repository: p.repository, Image: p.image,
			Err: director.Errorf(director.KindForbidden, "registry.use", "%s", msg),
		})
	}
	refuse(w, http.StatusForbidden, "DENIED", msg)
}

func (r *Registry) record(ctx context.Context, d Deed) bool {
	err := r.cfg.People.Record(ctx, d)
	if err != nil {
		r.cfg.Logger.ErrorContext(
			ctx, "what was done in the registry cannot be recorded in the audit trail", "person", d.Person,
			"repository", d.Repository, "image", d.Image, "err", err,
		)
	}
	return err == nil
}

// rights are what the caller may do with the repository.
func (r *Registry) rights(ctx context.Context, who caller, p place) (Rights, error) {
	if p.project == "" {
		return Rights{Pull: who.person == nil || who.person.Releases}, nil
	}
	if r.cfg.People == nil {
		return Rights{}, nil
	}
	var out Rights
	var err error
	switch {
	case who.person != nil:
		out, err = who.person.May(ctx, p.project)
	case who.reader != "":
		var own string
		own, err = r.cfg.People.ProjectOf(ctx, who.reader)
		out.Pull = own == p.project
	}
	if err != nil || !out.Pull {
		return Rights{}, err
	}
	project, err := r.cfg.People.Project(ctx, p.project)
	if director.KindOf(err) == director.KindNotFound {
		return Rights{}, nil
	}
	if err == nil {
		out.Pull, err = r.belongs(ctx, p.project, project.UID)
	}
	return out, err
}

const (
	mostListed    = 1000
	usuallyListed = 100
)

// catalog lists the repositories that the caller may pull from.
func (r *Registry) catalog(who caller, w http.ResponseWriter, req *http.Request) {
	n, err := strconv.Atoi(req.URL.Query().Get("n"))
	if err != nil || n < 1 {
		n = usuallyListed
	}
	n = min(n, mostListed)
	ctx, last := req.Context(), req.URL.Query().Get("last")
	found, more := []string{}, false
	seen := map[string]bool{}
	for name, err := range r.repositories(ctx, "") {
		if err != nil {
			r.cfg.Logger.WarnContext(ctx, "the repositories of the registry cannot be listed", "err", err)
			busy(w, "the registry cannot list its repositories now; try again")
			return
		}
		if order(name) <= order(last) {
			continue
		}
		p := place{repository: name}
		if rest, ok := strings.CutPrefix(name, ProjectsPrefix); ok {
			p.project, _, _ = strings.Cut(rest, "/")
		}
		visible, known := seen[p.project]
		if !known {
			rights, err := r.rights(ctx, who, p)
			if err != nil {
				busy(w, "the director cannot find out what you may see now; try again")
				return
			}
			visible = rights.Pull
			seen[p.project] = visible
		}
		if !visible {
			continue
		}
		if more = len(found) == n; more {
			break
		}
		found = append(found, name)
	}
	if more {
		next := *req.URL
		q := next.Query()
		q.Set("n", strconv.Itoa(n))
		q.Set("last", found[len(found)-1])
		next.RawQuery = q.Encode()
		w.Header().Set("Link", "<"+next.RequestURI()+`>; rel="next"`)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string][]string{"repositories": found})
}

// order compares names of repositories in the order in which they are found.
func order(name string) string { return strings.ReplaceAll(name, "/", "\x00") }

// refuse answers with an error as clients of registries know them.
func refuse(w http.ResponseWriter, status int, code, message string) {
	text, _ := json.Marshal(map[string]any{ // strings always can
		"errors": []map[string]string{{"code": code, "message": message}},
	})
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	h.Set("Docker-Distribution-API-Version", "registry/2.0")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// busy tells a client to try again.
func busy(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", "10")
	refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE", message)
}

// enter returns the person who shows these credentials, or answers.
func (r *Registry) enter(w http.ResponseWriter, req *http.Request, name, password string) (*Person, bool) {
	who, err := r.cfg.People.Enter(req.Context(), name, director.Secret(password))
	switch director.KindOf(err) {
	case director.KindUnauthenticated:
		return nil, true
	case director.KindExhausted:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "too many failed logins; "+director.HintOf(err))
		return nil, false
	default:
		if err != nil {
			r.cfg.Logger.LogAttrs(
				req.Context(), slog.LevelWarn, "someone cannot be let into the registry", slog.Any("err", err),
			)
			busy(w, "the director cannot check your credentials now; try again")
			return nil, false
		}
	}
	return &who, true
}
