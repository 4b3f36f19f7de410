package archives

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// archive is one that is being written.
type archive struct {
	dir     string
	tar     *tar.Writer
	secrets *ansible.Redactor
	at      time.Time
	missing []string // what could not be had, and why
}

// Archive returns a function that writes all that is known of the plan as a tar.gz: the plan, its events, the logs of
// all attempts that are here, the inventory, versions and the director's configuration. None of it should hold a
// secret; all of it is searched for those of the cluster and of the director all the same. The request itself is in the
// audit trail.
func (s *Service) Archive(ctx context.Context, actor, id string) (func(io.Writer) error, error) {
	if _, archived, err := s.Store.PlanArchived(ctx, id); err != nil {
		return nil, err
	} else if archived {
		return s.archivedFile(ctx, actor, id)
	}
	v, err := s.Plans.Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	about := s.support(ctx)
	facts, ferr := step.DecodeFacts(v.Plan.Content)
	secrets, err := s.secretsOf(ctx, facts, about.Private)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.Now(), actor, "archive", "Plan/"+id)
	}); err != nil {
		return nil, err
	}
	return func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		a := &archive{dir: "plan-" + id, tar: tar.NewWriter(zip), secrets: secrets, at: s.Now().UTC()}
		err := s.fill(ctx, a, v, about, facts, ferr)
		if err != nil {
			return err // without the ends of tar and gzip, so that it cannot pass for a whole one
		}
		return errors.Join(a.tar.Close(), zip.Close())
	}, nil
}

func (s *Service) support(ctx context.Context) Support {
	if s.Support == nil {
		return Support{}
	}
	return s.Support(ctx)
}

// archivedFile is Archive of a plan that has left the database: its file as it is.
func (s *Service) archivedFile(ctx context.Context, actor, id string) (func(io.Writer) error, error) {
	text, _, err := s.Files.open(ctx, id)
	if err == nil {
		err = s.Store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(s.Now(), actor, "archive", "Plan/"+id) })
	}
	return func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}, err
}

// secretsOf returns what replaces the secrets of the cluster and of the director.
func (s *Service) secretsOf(ctx context.Context, f step.Facts, private []director.Secret) (*ansible.Redactor, error) {
	var vars []byte
	if f.UID != "" {
		var err error
		vars, err = s.Keys.SecretVars(ctx, f)
		if err != nil && director.KindOf(err) != director.KindNotFound { // before its plan has made any
			return nil, err
		}
	}
	keys, err := s.Keys.SSH().PrivateKeys(ctx, f.UID)
	if err != nil {
		return nil, err
	}
	var texts [][]byte
	for _, k := range keys {
		texts = append(texts, []byte(k.Reveal()))
	}
	for _, p := range private {
		texts = append(texts, []byte(p.Reveal()))
	}
	for _, m := range f.Nodes {
		key, err := s.Keys.KnownHostKey(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		texts = append(texts, []byte(key.Private.Reveal()))
	}
	return ansible.NewRedactor(vars, texts...)
}

func (s *Service) fill(
	ctx context.Context, a *archive, v plan.View, about Support, facts step.Facts, ferr error,
) error {
	if about.Versions == nil {
		about.Versions = map[string]string{}
	}
	about.Versions["plan_playbooks"] = v.Plan.Playbooks
	for _, f := range []struct {
		name  string
		value any
	}{{"versions.json", about.Versions}, {"plan.json", s.Form.Plan(v)}, {"content.json", v.Plan.Content}} {
		text, err := json.MarshalIndent(f.value, "", "  ")
		if err == nil {
			err = a.add(f.name, append(text, '\n'))
		}
		if err != nil {
			return err
		}
	}
	if err := a.add("config.yaml", about.Config); err != nil {
		return err
	}
	if err := s.archiveEvents(ctx, a, v.Plan.ID); err != nil {
		return err
	}
	for _, st := range v.State.Steps {
		for n := 1; n <= st.Attempt; n++ {
			if err := a.addLog(s.LogPath(v.Plan.ID, st.ID, n)); err != nil {
				return err
			}
		}
	}
	files := map[string][]byte{}
	err := ferr
	if err == nil {
		files, err = s.Keys.ShowInventory(ctx, facts)
	}
	if err != nil {
		a.missing = append(a.missing, "inventory: "+err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := a.add("inventory/"+name, files[name]); err != nil {
			return err
		}
	}
	if len(a.missing) == 0 {
		return nil
	}
	return a.add("missing.txt", []byte(strings.Join(a.missing, "\n")+"\n"))
}

// archiveEvents adds the plan's journal, page by page.
func (s *Service) archiveEvents(ctx context.Context, a *archive, id string) error {
	const page = 1000
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	for after := int64(0); ; {
		events, err := s.Store.Events(ctx, id, after, page)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := enc.Encode(s.Form.Event(e)); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(events) < page {
			return a.add("events.jsonl", text.Bytes())
		}
	}
}

// add writes a file.
func (a *archive) add(name string, text []byte) error {
	clean := []byte(a.secrets.Redact(string(text)))
	if err := a.tar.WriteHeader(a.header(name, int64(len(clean)))); err != nil {
		return err
	}
	_, err := a.tar.Write(clean)
	return err
}

func (a *archive) header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: a.dir + "/" + name, Size: size, Mode: 0o600, ModTime: a.at}
}

// addLog writes a log as it is now. It goes through a file, line by line: how long it is without its secrets has to be
// known before, and it may be longer than the memory. A log that is not here is on another director, was pruned, or
// never was: most steps write none.
func (a *archive) addLog(path string) error {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		a.missing = append(a.missing, "logs/"+filepath.Base(path)+": "+err.Error())
		return nil
	}
	defer in.Close()
	clean, err := os.CreateTemp("", "archive-log-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(clean.Close(), os.Remove(clean.Name())) }() // of no use any more
	out := bufio.NewWriter(clean)
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		if _, werr := out.WriteString(a.secrets.Redact(line)); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	size, err := clean.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = clean.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = a.tar.WriteHeader(a.header("logs/"+filepath.Base(path), size))
	}
	if err == nil {
		_, err = io.Copy(a.tar, clean)
	}
	return err
}
