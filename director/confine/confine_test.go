package confine

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirs(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	in, out := filepath.Join(top, "in"), filepath.Join(top, "in-not")
	write := func(name string) {
		t.Helper()
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("text"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(in, "deep/file"))
	write(filepath.Join(out, "file"))
	if err := errors.Join(
		os.Symlink(
			filepath.Join(in, "deep/file"), filepath.Join(in, "link"),
		), os.Symlink(filepath.Join(out, "file"), filepath.Join(in, "escape")),
		os.Symlink(out, filepath.Join(in, "door")), syscall.Mkfifo(filepath.Join(in, "fifo"), 0o600),
		os.Symlink(in, filepath.Join(top, "alias")),
		os.Symlink("/dev/zero", filepath.Join(in, "zero")),
	); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dirs Dirs
		path string
		want error
	}{
		"file":            {Dirs{in}, "in/deep/file", nil},
		"second of two":   {Dirs{out, in}, "in/deep/file", nil},
		"link inside":     {Dirs{in}, "in/link", nil},
		"directory alias": {Dirs{filepath.Join(top, "alias")}, "alias/deep/file", nil},
		"between two":     {Dirs{in, out}, "in/escape", nil},
		"everything":      {Dirs{"/"}, "in/deep/file", nil},
		"missing":         {Dirs{in}, "in/nothing", fs.ErrNotExist},
		"outside":         {Dirs{in}, "in-not/file", ErrOutside},
		"outside, none":   {Dirs{in}, "in-not/nothing", ErrOutside},
		"the directory":   {Dirs{in}, "in", ErrOutside},
		"dots":            {Dirs{in}, "in/../in-not/file", ErrOutside},
		"link outside":    {Dirs{in}, "in/escape", ErrOutside},
		"through a door":  {Dirs{in}, "in/door/file", ErrOutside},
		"nothing allowed": {nil, "in/deep/file", ErrOutside},
		"fifo":            {Dirs{in}, "in/fifo", ErrNotRegular},
		"folder":          {Dirs{in}, "in/deep", ErrNotRegular},
		"device":          {Dirs{"/"}, "in/zero", ErrNotRegular},
	} {
		f, err := tt.dirs.Open(top + "/" + tt.path)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if err := (Dirs{in}).Check("relative"); !errors.Is(err, ErrOutside) {
		t.Errorf("relative: %v", err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(file, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(file, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Errorf("a file that is too long: %v", err)
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	all := Networks{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	loop := Networks{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, tt := range map[string]struct {
		networks Networks
		yes, no  string
	}{
		"private": {
			Private(), "10.1.2.3 100.64.0.1 172.31.0.1 192.168.1.1 fd00::1 ::ffff:10.0.0.1",
			"127.0.0.1 ::1 169.254.169.254 fe80::1 8.8.8.8 0.0.0.0 ::ffff:127.0.0.1 2001:db8::1 172.32.0.1 " +
				"100.128.0.1 64:ff9b::a00:1",
		},
		"all": {
			all, "8.8.8.8 2001:db8::1",
			"127.0.0.1 ::1 0.0.0.0 :: 169.254.169.254 fe80::1 224.0.0.1 ff02::1 ::ffff:127.0.0.1 255.255.255.255 " +
				"64:ff9b::7f00:1",
		},
		"loop": {loop, "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1", "10.0.0.1 0.0.0.0"},
		"none": {nil, "", "10.0.0.1 127.0.0.1"},
	} {
		for a := range strings.FieldsSeq(tt.yes) {
			if err := tt.networks.Check(netip.MustParseAddr(a)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for a := range strings.FieldsSeq(tt.no) {
			if err := tt.networks.Check(netip.MustParseAddr(a)); !errors.Is(err, ErrAddress) {
				t.Errorf("%s: %s is allowed", name, a)
			}
		}
	}
}

// The dialer looks at what a name leads to, whatever the name is.
func TestDialer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		c, err := Private().Dialer().DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	c, err := Networks{netip.MustParsePrefix("127.0.0.0/8")}.Dialer().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	if _, err := Private().Resolve(t.Context(), "localhost"); !errors.Is(err, ErrAddress) {
		t.Errorf("localhost: %v", err)
	}
	got, err := Networks{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}.Resolve(
		t.Context(), "127.0.0.1",
	)
	if diff := cmp.Diff("[127.0.0.1]", stringOf(got)); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func stringOf(all []netip.Addr) string {
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return "[" + strings.Join(out, " ") + "]"
}
