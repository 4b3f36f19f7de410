package cloudinit

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// FirstBootDir is where a node keeps its first-boot scripts, with what they said and how they ended.
const FirstBootDir = "/var/lib/kaas/first-boot"

// HealthFile is the node's health check.
const HealthFile = "/var/lib/kaas/health"

// Script is run once as root, after everything else. One that fails does not stop the next.
type Script struct {
	Name    string
	Content string        // for /bin/sh, unless its first line begins with #!
	Timeout time.Duration // after which it is ended; DefaultScriptTimeout if 0
}

// DefaultScriptTimeout is how long a script may take of which nothing is said.
const DefaultScriptTimeout = 10 * time.Minute

// Share is a directory that lives on an NFS server.
type Share struct {
	Path   string // on the node
	Server string // name or address
	Export string // path on the server
	// directory below the export, made at the first time with what Path held; empty mounts the export itself
	Sub     string
	Options string // of the mount
}

// sharesScript is the name of the script that mounts the shares. Names of other scripts have no dot.
const sharesScript = "nfs.shares"

var (
	scriptName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
	mountOptions = regexp.MustCompile(`^[A-Za-z0-9=,._-]+$`)
	shareSub     = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
)

// firstBootProblems returns every place of the scripts and shares that is wrong.
func (g *Guest) firstBootProblems() []director.Field {
	var fields []director.Field
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	names := map[string]bool{}
	for i, s := range g.Scripts {
		at := fmt.Sprintf("scripts[%d]", i)
		want(scriptName.MatchString(s.Name), at+".name", "%q is not 1 to 40 letters a-z, digits and dashes", s.Name)
		want(!names[s.Name], at+".name", "%q is the name of another one too", s.Name)
		want(strings.TrimSpace(s.Content) != "", at+".content", "is empty")
		want(s.Timeout >= 0, at+".timeout", "is less than nothing")
		names[s.Name] = true
	}
	clean := func(p string) bool { return safePath.MatchString(p) && path.Clean(p) == p }
	for i, s := range g.Shares {
		at := fmt.Sprintf("shares[%d]", i)
		want(clean(s.Path), at+".path", "%q is not a plain absolute path", s.Path)
		_, err := netip.ParseAddr(s.Server)
		want(err == nil || hostname.MatchString(s.Server), at+".server", "%q is not a host", s.Server)
		want(clean(s.Export) || s.Export == "/", at+".export", "%q is not a plain absolute path", s.Export)
		want(
			s.Sub == "" || shareSub.MatchString(s.Sub) && path.Clean(s.Sub) == s.Sub && !strings.HasPrefix(s.Sub, ".."),
			at+".sub", "%q is not a path below the export", s.Sub,
		)
		want(mountOptions.MatchString(s.Options), at+".options", "%q are not options of a mount", s.Options)
		for j, o := range g.Shares[:i] {
			want(
				!within(s.Path, o.Path) && !within(o.Path, s.Path), at+".path",
				"%q and shares[%d] %q lie in each other", s.Path, j, o.Path,
			)
		}
		if d := g.DataDisk; d != nil {
			for j, p := range append([]string{d.Mount}, d.Persist...) {
				want(
					!within(s.Path, p) && !within(p, s.Path), at+".path",
					"%q and %q (%d) of the data disk lie in each other", s.Path, p, j,
				)
			}
		}
	}
	return fields
}

// stage is a script with its file name and limit.
type stage struct {
	file    string
	content string
	seconds int
}

// stages are the scripts in their order: the shares come first, since the others may want to write there.
func (g *Guest) stages() []stage {
	var out []stage
	add := func(name, content string, limit time.Duration) {
		if limit == 0 {
			limit = DefaultScriptTimeout
		}
		out = append(out, stage{fmt.Sprintf("%02d-%s", len(out), name), content, max(1, int(limit.Seconds()))})
	}
	if len(g.Shares) > 0 {
		add(sharesScript, g.sharesContent(), 5*time.Minute)
	}
	for _, s := range g.Scripts {
		add(s.Name, s.Content, s.Timeout)
	}
	return out
}

// firstBoot returns the files of the scripts, and the command that runs them.
func (g *Guest) firstBoot() (files []file, command []string) {
	stages := g.stages()
	if len(stages) == 0 {
		return nil, nil
	}
	var list strings.Builder
	for _, s := range stages {
		files = append(files, newFile(FirstBootDir+"/"+s.file, "0700", "root:root", []byte(s.content)))
		fmt.Fprintf(&list, "%s %d\n", s.file, s.seconds)
	}
	run := FirstBootDir + "/run"
	return append(files, newFile(run, "0700", "root:root", []byte(runner(list.String())))), []string{run}
}

// runner is the program that runs the scripts which have not succeeded yet, and tells how they went. It ends well
// however they end: their fate is the director's to judge, and cloud-init's verdict is about cloud-init.
func runner(list string) string {
	return `#!/bin/sh
# Without an argument: runs the scripts that have not succeeded yet, in order, and keeps what they say in NAME.log
# and how they ended in NAME.status.
# report: says how they ended, with the last lines of those that failed.
cd "$(dirname "$0")" || exit 1
scripts() { cat <<'SCRIPTS'
` + list + `SCRIPTS
}
if [ "${1:-}" = report ]; then
  flock -n lock true || echo busy
  scripts | while read -r name limit; do
    code=none
    [ ! -s "$name.status" ] || code=$(cat "$name.status")
    last=
    [ "$code" = 0 ] || [ ! -f "$name.log" ] || last=$(tail -c 4000 "$name.log" | tail -n 20 | base64 | tr -d '\n')
    echo "$name $code $limit $last"
  done
  exit 0
fi
exec 9>lock
flock 9
scripts | while read -r name limit; do
  [ "$(cat "$name.status" 2>/dev/null)" != 0 ] || continue
  echo running >"$name.status"
  case $(head -c 2 "$name") in
    '#!') set -- "./$name" ;;
    *) set -- /bin/sh "./$name" ;;
  esac
  timeout -k 10 "$limit" "$@" >"$name.log" 2>&1 </dev/null 9>&-
  echo $? >"$name.status"
done
exit 0
`
}

// sharesContent mounts the shares, and has them mounted at every boot.
func (g *Guest) sharesContent() string {
	var b strings.Builder
	b.WriteString(`set -eu
command -v mount.nfs >/dev/null || {
  echo "the image has no NFS client: add nfs-common to packages, or to the image" >&2
  exit 1
}
remember() { grep -qxF "$1" /etc/fstab || echo "$1" >>/etc/fstab; }
share() {
  mkdir -p "$1"
  if ! mountpoint -q "$1"; then
    if [ -n "$4" ]; then
      top=/run/kaas-share
      mkdir -p "$top"
      mountpoint -q "$top" || mount -t nfs -o "$3" "$2" "$top"
      if [ ! -d "$top/$4" ]; then
        mkdir -p "$(dirname "$top/$4")"
        rm -rf "$top/$4.new"
        cp -a "$1" "$top/$4.new"
        mv "$top/$4.new" "$top/$4"
      fi
      umount "$top"
    fi
    mount -t nfs -o "$3" "${2%/}${4:+/$4}" "$1"
  fi
  remember "${2%/}${4:+/$4} $1 nfs $3,_netdev,x-systemd.mount-timeout=90s 0 0"
}
`)
	for _, s := range g.Shares {
		server := s.Server
		if strings.Contains(server, ":") {
			server = "[" + server + "]"
		}
		fmt.Fprintf(&b, "share %s %s:%s %s '%s'\n", s.Path, server, s.Export, s.Options, s.Sub)
	}
	return b.String()
}

// ReportCommand has a node tell how its first-boot scripts went, as root. A node without scripts says nothing.
const ReportCommand = "test ! -x " + FirstBootDir + "/run || " + FirstBootDir + "/run report"

// AgainCommand starts the scripts that have not succeeded, as root, and does not wait for them.
const AgainCommand = "test ! -x " + FirstBootDir + "/run || setsid -f " + FirstBootDir +
	"/run >/dev/null 2>&1 </dev/null"

// Report is how the first-boot scripts of a node went.
type Report struct {
	Busy    bool // they run just now
	Scripts []ScriptResult
}

// ScriptResult is how one script ended.
type ScriptResult struct {
	Name  string
	Log   string // path on the node
	Ran   bool   // it was begun
	Ended bool   // it has come to an end, so that Code is its own
	Code  int
	Limit time.Duration
	Tail  string // the last lines that it said; empty if it succeeded
}

// timeoutCode is what timeout(1) ends with when it had to end the program.
const timeoutCode = 124

// Failed tells whether the script did not succeed.
func (r ScriptResult) Failed() bool { return !r.Ended || r.Code != 0 }

// String says how it ended in a few words.
func (r ScriptResult) String() string {
	switch {
	case !r.Ran:
		return "was not run"
	case !r.Ended:
		return "was cut off, by a reboot or a crash of the node"
	case r.Code == timeoutCode:
		return "was ended after " + r.Limit.String()
	}
	return "ended with exit code " + strconv.Itoa(r.Code)
}

// ParseReport reads what ReportCommand prints. The node is not trusted: names that could not be of a script of ours and
// numbers out of range make the whole report an error.
func ParseReport(text string) (Report, error) {
	var r Report
	for line := range strings.Lines(strings.TrimSpace(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case len(f) == 1 && f[0] == "busy":
			r.Busy = true
		default:
			s, ok := parseResult(f)
			if !ok {
				return r, fmt.Errorf("cloudinit: %q is no line of a report", line)
			}
			r.Scripts = append(r.Scripts, s)
		}
	}
	return r, nil
}

// reported is what a script's file is called: its number and its name.
var reported = regexp.MustCompile(`^[0-9]{1,4}-[A-Za-z0-9._-]{1,128}$`)

// longest is more than a document may give a script.
const longest = 7 * 24 * 3600

func parseResult(f []string) (s ScriptResult, ok bool) {
	if len(f) < 3 || !reported.MatchString(f[0]) {
		return s, false
	}
	s.Log = FirstBootDir + "/" + f[0] + ".log"
	_, s.Name, _ = strings.Cut(f[0], "-")
	seconds, err := strconv.Atoi(f[2])
	if err != nil || seconds < 0 || seconds > longest {
		return s, false
	}
	s.Limit = time.Duration(seconds) * time.Second
	if s.Ran = f[1] != "none"; s.Ran && f[1] != "running" {
		if s.Code, err = strconv.Atoi(f[1]); err != nil {
			return s, false
		}
		s.Ended = true
	}
	if len(f) > 3 {
		said, err := base64.StdEncoding.DecodeString(f[3])
		if err != nil {
			return s, false
		}
		s.Tail = strings.TrimSpace(string(said))
	}
	return s, true
}
