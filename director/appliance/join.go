package appliance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

const opJoin = "appliance.join"

// handover is a file of the data disk that a member gets.
type handover struct {
	Path string      `json:"path"` // below the data disk
	Mode fs.FileMode `json:"mode"` // permissions alone
	Own  bool        `json:"own"`  // the director's, and not root's
	Text []byte      `json:"text"`
}

// identityFiles make a director the same as others; all else of its state directory is its own.
var identityFiles = []string{"director/sealing.key", "director/tls/ca.crt", "director/tls/ca.key"}

// Bounds of what is handed over.
const (
	mostFiles = 1000
	mostText  = 8 << 20
)

// collect returns what another member needs: the identity, and the administrator's own settings and keys.
func (p groupFiles) collect() ([]handover, error) {
	var all []handover
	total := 0
	add := func(path string) error {
		f, err := p.read(path)
		if err != nil {
			return err
		}
		all, total = append(all, f), total+len(f.Text)
		if len(all) > mostFiles || total > mostText {
			return director.Errorf(
				director.KindExhausted, opJoin, "%s has more than %d files or %d bytes", p.data("etc"), mostFiles,
				mostText,
			).WithHint("keep nothing there but settings, keys and certificates")
		}
		return nil
	}
	for _, path := range identityFiles {
		if err := add(path); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(p.data("etc"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasPrefix(e.Name(), whole.Temporary) {
			return err
		}
		rel, err := filepath.Rel(p.Data, path)
		if err != nil {
			return err
		}
		return add(rel)
	})
	if err != nil && director.KindOf(err) == director.KindInternal {
		err = director.Errorf(director.KindInternal, opJoin, "what members share cannot be read: %w", err)
	}
	return all, err
}

func (p groupFiles) read(path string) (handover, error) {
	f, err := os.OpenFile(p.data(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return handover{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return handover{}, err
	}
	if info.Size() > mostText {
		return handover{}, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil && info.Size() > 0 {
		return handover{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return handover{
		Path: path, Mode: info.Mode().Perm(), Own: ok && p.User > 0 && int(stat.Uid) == p.User, Text: text,
	}, nil
}

// accepted returns an error if a file is none that a member may be given.
func accepted(f handover) error {
	if slices.Contains(identityFiles, f.Path) ||
		strings.HasPrefix(f.Path, "etc/") && filepath.IsLocal(f.Path) && filepath.Clean(f.Path) == f.Path {
		if f.Mode&^0o777 == 0 {
			return nil
		}
	}
	return director.Errorf(
		director.KindInvalid, opJoin, "the file %q is none that members share", printable(f.Path),
	).WithHint("compare the versions of both appliances")
}

// Join makes this appliance a member of the group of the one at the address from, which runs Share with the code. What
// its own director had is moved aside, and stop is called before that. It may be killed at any point and called again.
// Errors: conflict for a director that has run plans; invalid for a setup without a static address.
func (p Place) Join(
	ctx context.Context, from netip.Addr, code director.Secret, schema string, stop func(context.Context) error,
) (g Group, aside string, err error) {
	s, err := p.Load()
	if err != nil {
		return g, "", err
	}
	if _, err := os.Stat(p.data(groupFile)); errors.Is(err, fs.ErrNotExist) {
		if err := p.group().unused(); err != nil {
			return g, "", err
		}
	}
	target := net.JoinHostPort(from.String(), strconv.Itoa(SharePort))
	// The other end expects the question from the member's own address.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: s.Address.Addr().AsSlice()}}
	a, err := askToJoin(ctx, dialer, target, code, question{Own: s.Address.Addr(), Schema: schema})
	if err != nil {
		return g, "", err
	}
	if g, err = NewGroup(a.Group.request(), s); err != nil {
		return g, "", err
	}
	for _, f := range a.Files {
		if err := accepted(f); err != nil {
			return g, "", err
		}
	}
	if err := stop(ctx); err != nil {
		return g, "", err
	}
	if aside, err = p.group().become(a.Files, time.Now()); err != nil {
		return g, "", err
	}
	return g, aside, p.SaveGroup(g)
}

// unused returns conflict if the director of this appliance has run plans: its clusters would have no director.
func (p groupFiles) unused() error {
	entries, err := os.ReadDir(p.data("director/runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return director.Errorf(director.KindInternal, opJoin, "%w", err)
	}
	if len(entries) > 0 {
		return director.Errorf(director.KindConflict, opJoin, "the director of this appliance has run plans").
			WithHint("join with a new appliance; the clusters of this one would lose their director")
	}
	return nil
}

// joining is the state directory while it is made.
const joining = "director.joining"

// become gives this appliance the identity and the settings of the group. It returns where the former state directory
// is, if there was one with another identity.
func (p groupFiles) become(files []handover, now time.Time) (aside string, err error) {
	fail := func(err error) (string, error) {
		return "", director.Errorf(director.KindInternal, opJoin, "what members share cannot be written: %w", err)
	}
	if err := os.RemoveAll(p.data(joining)); err != nil {
		return fail(err)
	}
	for _, f := range files {
		path := f.Path
		if rest, ok := strings.CutPrefix(path, "director/"); ok {
			path = filepath.Join(joining, rest)
		}
		if err := writeFile(p.data(path), f.Text, f.Mode); err != nil {
			return fail(err)
		}
		if f.Own {
			err = p.owned(path)
		}
		if err != nil {
			return fail(err)
		}
	}
	if p.isAlready(files) {
		return "", os.RemoveAll(p.data(joining))
	}
	for _, dir := range []string{joining, joining + "/tls"} {
		if err := errors.Join(os.Chmod(p.data(dir), 0o700), p.owned(dir)); err != nil {
			return fail(err)
		}
	}
	aside = p.data("director.before-" + now.UTC().Format("20060102-150405"))
	if err := os.Rename(p.data("director"), aside); errors.Is(err, fs.ErrNotExist) {
		aside = ""
	} else if err != nil {
		return fail(err)
	}
	if err := os.Rename(p.data(joining), p.data("director")); err != nil {
		return fail(err)
	}
	return aside, nil
}

// isAlready reports whether the state directory has the identity already.
func (p groupFiles) isAlready(files []handover) bool {
	for _, f := range files {
		if !slices.Contains(identityFiles, f.Path) {
			continue
		}
		if text, err := os.ReadFile(p.data(f.Path)); err != nil || string(text) != string(f.Text) {
			return false
		}
	}
	return true
}
