package appliance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
)

const opShared = "appliance.shared"

// sharedAt is where the NFS of a group is mounted on the data disk.
const sharedAt = "shared"

// sharedDirs are the directories of the data disk that members of a group have on its NFS. The director's stores there
// can be used by several processes. Logs of runs are not among them: members ask each other for those.
var sharedDirs = []string{
	"director/registry", "director/artifacts", "director/images", "director/releases", "director/playbooks", "images",
	"bundles", "backups",
}

// mountOptions let a question to a server that is away end with an error after 40 seconds, where it would otherwise
// hang the director. What is written there is complete or not there, so an error loses nothing. A file that another
// member has just written is seen at once.
const mountOptions = "vers=4,proto=tcp,soft,timeo=100,retrans=3,nosuid,nodev,noexec,noatime,lookupcache=positive"

// sharedEvery is how often a mount is tried.
const sharedEvery = 10 * time.Second

// MountShared mounts the NFS of the group, and tries until that works or the context ends. It does nothing without a
// group that has one. It is idempotent.
func (p Place) MountShared(ctx context.Context) error {
	g, err := p.LoadGroup()
	if director.KindOf(err) == director.KindNotFound || err == nil && g.Files == "" {
		return nil
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(sharedEvery)
	defer tick.Stop()
	for {
		if err = p.group().mountShared(ctx, g.Files); err == nil {
			return nil
		}
		slog.ErrorContext(ctx, "the files of the group cannot be mounted; trying again", "files", g.Files, "err", err)
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

func (p groupFiles) mountShared(ctx context.Context, files string) error {
	if err := p.mountFiles(ctx, files); err != nil {
		return err
	}
	for _, name := range sharedDirs {
		if err := p.bindShared(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p groupFiles) mountFiles(ctx context.Context, files string) error {
	at := p.data(sharedAt)
	if mounted, err := isMount(at); err != nil || mounted {
		return err
	}
	_, err := command(ctx, nil, "mount", "-t", "nfs", "-o", mountOptions, "--", files, at)
	return err
}

// bindShared mounts the directory of the NFS over the one on the data disk.
func (p groupFiles) bindShared(ctx context.Context, name string) error {
	from, at := p.onShare(name), p.data(name)
	if err := p.makeShared(ctx, name); err != nil {
		return err
	}
	if mounted, err := isMount(at); err != nil || mounted {
		return err
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return director.Errorf(director.KindInternal, opShared, "%s cannot be mounted: %w", at, err)
	}
	return nil
}

// makeShared makes a directory of the NFS, with the mode of that on the data disk, which is made if it is missing.
func (p groupFiles) makeShared(ctx context.Context, name string) error {
	if _, err := p.asDirector(ctx, "mkdir", "--parents", "--", p.data(name)); err != nil {
		return err
	}
	info, err := os.Stat(p.data(name))
	if err != nil {
		return director.Errorf(director.KindInternal, opShared, "%w", err)
	}
	// The server need not trust root.
	_, err = p.asDirector(
		ctx, "mkdir", "--parents", "--mode", strconv.FormatUint(uint64(info.Mode().Perm()), 8), "--",
		p.onShare(name),
	)
	if err != nil {
		return director.Errorf(
			director.KindUnavailable, opShared, "the director cannot make directories on the NFS: %w", err,
		).WithHint("give the exported directory to user %d and group %d", p.User, p.User)
	}
	return nil
}

// onShare is where a directory of the data disk is on the NFS. All are side by side: a server that takes root for a
// stranger lets it mount a directory that is closed to others, and nothing below one.
func (p groupFiles) onShare(name string) string {
	return filepath.Join(p.data(sharedAt), strings.ReplaceAll(name, "/", "-"))
}

// asDirector runs a program as the director's user.
func (p groupFiles) asDirector(ctx context.Context, args ...string) ([]byte, error) {
	id := strconv.Itoa(p.User)
	return command(ctx, nil, "setpriv", append([]string{
		"--reuid", id, "--regid", id, "--clear-groups", "--no-new-privs",
	}, args...)...)
}

// MoveFiles copies what this appliance has of the files that members share to the NFS, and mounts it. What is there
// already stays as it is. The director must not run. It may be killed at any point and called again.
func (p Place) MoveFiles(ctx context.Context, g Group) error {
	if g.Files == "" {
		return nil
	}
	if err := p.directories(); err != nil {
		return err
	}
	if err := p.group().mountFiles(ctx, g.Files); err != nil {
		return director.Errorf(director.KindUnavailable, opShared, "%s cannot be mounted: %w", g.Files, err).
			WithHint("export it over NFS version 4 to all members; check the exports of the server")
	}
	for _, name := range sharedDirs {
		if mounted, err := isMount(p.data(name)); err != nil {
			return err
		} else if mounted {
			continue
		}
		if err := p.group().makeShared(ctx, name); err != nil {
			return err
		}
		entries, err := os.ReadDir(p.data(name))
		if err != nil {
			return director.Errorf(director.KindInternal, opShared, "%w", err)
		}
		if len(entries) == 0 {
			continue
		}
		if _, err := p.group().asDirector(
			ctx, "cp", "--recursive", "--no-clobber", "--preserve=mode,timestamps", "--", p.data(name)+"/.",
			p.group().onShare(name),
		); err != nil {
			return err
		}
	}
	return p.group().mountShared(ctx, g.Files)
}
