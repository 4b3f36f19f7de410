package registry

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director"
)

// The limits of what people send.
const (
	largestBlob  = 20 << 30
	mostUploads  = 200         // of one project that are not finished
	usageFor     = time.Minute // how long it is not seen what other directors have taken
	uploadIdle   = time.Hour   // after which an upload to which nothing comes is given up
	roomEvery    = 16 << 20    // bytes after which the disk is looked at again
	manifestMost = 4 << 20     // distribution takes no larger manifest
)

// quotas counts what the images of each project have, and what is being sent. What several repositories of a project
// share counts once. Safe for concurrent use.
type quotas struct {
	mu       sync.Mutex
	projects map[string]*used
	uploads  map[string]*arrival // by their ids
}

// used is what the images of a project have.
type used struct {
	at       time.Time // when it was counted
	sizes    map[digest.Digest]int64
	total    int64
	incoming int64 // what uploads that are not finished have
	open     int
}

// arrival is something that a person sends.
type arrival struct {
	person, project, repository string
	bytes, limit, looked        int64
	last                        time.Time // when something came
}

func newQuotas() *quotas {
	return &quotas{projects: map[string]*used{}, uploads: map[string]*arrival{}}
}

func (q *quotas) of(project string) *used {
	u := q.projects[project]
	if u == nil {
		u = &used{}
		q.projects[project] = u
	}
	return u
}

func (q *quotas) forget(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.projects[project]; u != nil {
		u.at = time.Time{}
	}
}

// known returns what was counted, and whether that is recent.
func (q *quotas) known(project string) (sizes map[digest.Digest]int64, recent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(project)
	return u.sizes, time.Since(u.at) < usageFor
}

func (q *quotas) counted(project string, sizes map[digest.Digest]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.of(project)
	u.at, u.sizes, u.total = time.Now(), sizes, 0
	for _, size := range sizes {
		u.total += size
	}
}

func (q *quotas) total(project string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.of(project).total
}

// begin returns an upload that may be continued as id; without an id it cannot. Errors: exhausted.
func (q *quotas) begin(id string, u arrival) (*arrival, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.of(u.project)
	if id != "" && p.open >= mostUploads {
		return nil, director.Errorf(
			director.KindExhausted, "registry.quota", "the project %s has %d uploads that are not finished", u.project,
			p.open,
		)
	}
	u.last = time.Now()
	if id != "" {
		q.uploads[id] = &u
		p.open++
	}
	return &u, nil
}

// abandoned forgets the uploads to which nothing came for long, and returns the repository of each by its id.
func (q *quotas) abandoned() map[string]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]string{}
	for id, u := range q.uploads {
		if time.Since(u.last) > uploadIdle {
			out[id] = u.repository
			q.drop(id, u)
		}
	}
	return out
}

// find returns the upload of the id, if the person sends it to the repository.
func (q *quotas) find(id, person, repository string) (*arrival, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.uploads[id]
	return u, u != nil && u.person == person && u.repository == repository
}

// take counts bytes of an upload, and reports whether it is time to look at the disk. Errors: exhausted, with a
// sentence for who sends them.
func (q *quotas) take(u *arrival, n, most int64) (look bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.of(u.project)
	switch {
	case u.bytes+n > most:
		return false, director.Errorf(
			director.KindExhausted, "registry.quota", "a layer of an image may have %s and no more", inGiB(most),
		)
	case u.limit > 0 && p.total+p.incoming+n > u.limit:
		return false, director.Errorf(
			director.KindExhausted, "registry.quota",
			"the images of the project %s have %s, %s are being sent, and they may have %s: delete some, or ask an "+
				"administrator for more", u.project, inGiB(p.total), inGiB(p.incoming), inGiB(u.limit),
		)
	}
	u.last = time.Now()
	u.bytes += n
	p.incoming += n
	if u.looked += n; u.looked >= roomEvery {
		u.looked, look = 0, true
	}
	return look, nil
}

// end forgets an upload. With a digest, it has become a blob of the project.
func (q *quotas) end(id string, u *arrival, is digest.Digest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, size := q.of(u.project), u.bytes
	q.drop(id, u)
	if is == "" || p.sizes == nil {
		return
	}
	if _, there := p.sizes[is]; !there {
		p.sizes[is] = size
		p.total += size
	}
}

func (q *quotas) drop(id string, u *arrival) {
	p := q.of(u.project)
	p.incoming -= u.bytes
	u.bytes = 0
	if _, open := q.uploads[id]; open {
		delete(q.uploads, id)
		p.open--
	}
}

func inGiB(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// count finds out what the images of a project have, unless that is known.
func (r *Registry) count(ctx context.Context, project string) error {
	if _, recent := r.quotas.known(project); recent {
		return nil
	}
	r.counting.Lock()
	defer r.counting.Unlock()
	before, recent := r.quotas.known(project) // another push may have counted meanwhile
	if recent {
		return nil
	}
	links, err := r.links(ctx, ProjectsPrefix+project)
	if err != nil {
		return err
	}
	sizes := make(map[digest.Digest]int64, len(links))
	for d := range links {
		size, ok := before[d]
		if !ok {
			info, err := r.content.Stat(ctx, blobPath(d))
			if isGone(err) {
				continue
			}
			if err != nil {
				return err
			}
			size = info.Size()
		}
		sizes[d] = size
	}
	r.quotas.counted(project, sizes)
	return nil
}

// Usage returns how many bytes the images of a project have, as its quota counts them, and how many they may have; 0
// for no limit. What is being sent does not count. Errors: not_found; unavailable while the images cannot be counted.
func (r *Registry) Usage(ctx context.Context, project string) (used, most int64, err error) {
	is, err := r.cfg.People.Project(ctx, project)
	if err != nil {
		return 0, 0, err
	}
	if err := r.Content(); err != nil {
		return 0, 0, err
	}
	own, err := r.belongs(ctx, project, is.UID)
	if err == nil && own {
		err = r.count(ctx, project)
	}
	if err != nil {
		return 0, 0, director.Errorf(
			director.KindUnavailable, "registry.usage", "the images of the project %s cannot be counted: %w", project,
			err,
		).WithHint("try again; see the log of the director")
	}
	if own {
		used = r.quotas.total(project)
	}
	return used, is.Images, nil
}

// metered is a body that ends when there is no more room for it.
type metered struct {
	io.ReadCloser
	registry *Registry
	upload   *arrival
	over     error // why it ended
}

func (m *metered) Read(p []byte) (int, error) {
	if m.over != nil {
		return 0, m.over
	}
	n, err := m.ReadCloser.Read(p)
	if m.over = m.registry.take(m.upload, int64(n)); m.over != nil {
		return 0, m.over
	}
	return n, err
}

// take counts bytes that arrived, and now and then looks whether the disk has room for more.
func (r *Registry) take(u *arrival, n int64) error {
	look, err := r.quotas.take(u, n, r.largest)
	if err != nil || !look {
		return err
	}
	return r.room()
}

// room returns exhausted while the disk is nearly full.
func (r *Registry) room() error {
	if r.cfg.Room == nil {
		return nil
	}
	return r.cfg.Room()
}
