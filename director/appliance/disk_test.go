package appliance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	const big = 100 << 30
	system, seed := Disk{"/dev/vda", 1 << 30, System, ""}, Disk{"/dev/sr0", 1 << 20, Seeds, ""}
	blank, data := Disk{"/dev/vdb", big, Blank, ""}, Disk{"/dev/vdb", big, Data, ""}
	foreign := Disk{"/dev/vdc", big, Foreign, "a file system xfs"}
	for name, tt := range map[string]struct {
		disks  []Disk
		want   Disk
		format bool
		says   []string
	}{
		"blank":          {[]Disk{system, seed, blank}, blank, true, nil},
		"begun":          {[]Disk{system, {"/dev/vdb", big, Begun, ""}}, Disk{"/dev/vdb", big, Begun, ""}, true, nil},
		"data":           {[]Disk{system, data}, data, false, nil},
		"data and blank": {[]Disk{system, data, {"/dev/vdc", big, Blank, ""}}, data, false, nil},
		"data, foreign":  {[]Disk{system, foreign, data}, data, false, nil},
		"blank, foreign": {[]Disk{system, foreign, blank}, blank, true, nil},
		"none":           {[]Disk{system, seed}, Disk{}, false, []string{"no second disk", "100 GiB"}},
		"two of data": {
			[]Disk{data, {"/dev/vdc", big, Data, ""}},
			Disk{},
			false,
			[]string{"/dev/vdb", "/dev/vdc", "detach"},
		},
		"two blank": {
			[]Disk{blank, {"/dev/vdc", big, Blank, ""}},
			Disk{},
			false,
			[]string{"/dev/vdb", "/dev/vdc", "detach"},
		},
		"foreign": {
			[]Disk{system, foreign},
			Disk{},
			false,
			[]string{"/dev/vdc", "file system xfs", "nothing was changed"},
		},
		"too small": {
			[]Disk{system, {"/dev/vdb", 1 << 30, Blank, ""}},
			Disk{},
			false,
			[]string{"too small", "8 GiB"},
		},
		"a former system": {[]Disk{system, {"/dev/vdb", big, System, ""}}, Disk{}, false, []string{"no second disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, format, err := Choose(tt.disks)
			if diff := cmp.Diff(tt.want, got); diff != "" || format != tt.format || (err == nil) != (tt.says == nil) {
				t.Fatalf("format %v, %v (-want +got):\n%s", format, err, diff)
			}
			for _, word := range tt.says {
				if !strings.Contains(Explain(err), word) {
					t.Errorf("%q does not say %q", Explain(err), word)
				}
			}
		})
	}
}

// image makes a sparse file that is a disk to blkid and mkfs.
func image(t *testing.T) block {
	t.Helper()
	for _, program := range []string{"blkid", "mkfs.ext4", "sfdisk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	b := block{Path: filepath.Join(t.TempDir(), "disk"), Type: "disk", Size: 64 << 20}
	f, err := os.Create(b.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(b.Size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func run(t *testing.T, in, name string, args ...string) {
	t.Helper()
	if _, err := command(t.Context(), []byte(in), name, args...); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, b block, at int64, text string) {
	t.Helper()
	f, err := os.OpenFile(b.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

func TestWhatDisksHold(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make func(t *testing.T, b block)
		want Content
	}{
		"zeros":             {func(*testing.T, block) {}, Blank},
		"data":              {func(t *testing.T, b block) { format(t, b) }, Data},
		"ext4":              {func(t *testing.T, b block) { run(t, "", "mkfs.ext4", "-q", "-F", b.Path) }, Foreign},
		"XFS of that label": {func(t *testing.T, b block) { put(t, b, 0, "XFSB") }, Foreign},
		"partitions": {
			func(t *testing.T, b block) { run(t, "label: gpt\n,\n", "sfdisk", "-q", b.Path) },
			Foreign,
		},
		"empty GPT": {
			func(t *testing.T, b block) { run(t, "label: gpt\n", "sfdisk", "-q", b.Path) },
			Foreign,
		},
		"a byte at its start": {func(t *testing.T, b block) { put(t, b, 100, "x") }, Foreign},
		"a byte at its end":   {func(t *testing.T, b block) { put(t, b, b.Size-1, "x") }, Foreign},
		"a byte in between":   {func(t *testing.T, b block) { put(t, b, b.Size/2+5, "x") }, Foreign},
		"begun": {func(t *testing.T, b block) {
			put(t, b, b.Size-reservedEnd, string(intent))
			put(t, b, 9<<20, "half of an inode table")
		}, Begun},
		"intent alone": {func(t *testing.T, b block) { put(t, b, b.Size-reservedEnd, string(intent)) }, Begun},
		"intent on a foreign file system": {func(t *testing.T, b block) {
			run(t, "", "mkfs.ext4", "-q", "-F", "-L", "others", b.Path, "60000k")
			put(t, b, b.Size-reservedEnd, string(intent))
		}, Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := image(t)
			tt.make(t, b)
			got, err := look(t.Context(), b)
			if err != nil || got.Content != tt.want {
				t.Errorf("%+v, %v; want %s", got, err, tt.want)
			}
			if got.Content == Foreign && got.Holds == "" {
				t.Error("it does not say what is on the disk")
			}
		})
	}
	b := image(t)
	b.ReadOnly = true
	if got, err := look(t.Context(), b); err != nil || got.Content != Seeds {
		t.Errorf("a disk that cannot be written: %+v, %v", got, err)
	}
}

func format(t *testing.T, b block) {
	t.Helper()
	if err := Format(t.Context(), Disk{Path: b.Path, Size: b.Size}); err != nil {
		t.Fatal(err)
	}
}

// A formatting that was killed begins again, and a formatted disk is data from then on.
func TestFormatAgain(t *testing.T) {
	t.Parallel()
	b := image(t)
	put(t, b, b.Size-reservedEnd, string(intent))
	put(t, b, 1<<20, "half of it")
	for range 2 {
		format(t, b)
		got, err := look(t.Context(), b)
		if err != nil || got.Content != Data {
			t.Fatalf("%+v, %v", got, err)
		}
		run(t, "", "e2fsck", "-f", "-n", b.Path)
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		host  string
		says  string
	}{
		"empty":              {nil, "", ""},
		"only lost+found":    {map[string]string{"lost+found/x": ""}, "d1", ""},
		"killed before":      {map[string]string{whole.Temporary + "1": ""}, "d1", ""},
		"others' files":      {map[string]string{"photos": ""}, "", "photos"},
		"its own":            {map[string]string{markFile: `{"format":1,"name":"d1"}`, "x": ""}, "d1", ""},
		"without properties": {map[string]string{markFile: `{"format":1,"name":"d1"}`}, "", ""},
		"not set up":         {map[string]string{markFile: `{"format":1,"name":""}`}, "d2", ""},
		"another director's": {map[string]string{markFile: `{"format":1,"name":"d1"}`}, "d2", "d1"},
		"newer":              {map[string]string{markFile: `{"format":2,"name":"d1"}`}, "d1", "newer"},
		"damaged":            {map[string]string{markFile: `{"for`}, "d1", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range tt.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Accept(dir, tt.host)
			if tt.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err = Accept(dir, tt.host); err != nil {
					t.Errorf("again: %v", err)
				}
				return
			}
			if director.KindOf(err) != director.KindConflict || !strings.Contains(Explain(err), tt.says) ||
				director.HintOf(err) == "" {
				t.Errorf("%v; want it to say %q", err, tt.says)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	got, err := parseBlocks([]byte(`{"blockdevices": [{"path":"/dev/sda","type":"disk","size":10,"ro":false,
		"children":[{"path":"/dev/sda1","type":"part","size":5,"ro":false}]},{"path":"/dev/sr0","type":"rom",` +
		`"size":3,"ro":true}]}`))
	want := []block{
		{Path: "/dev/sda", Type: "disk", Size: 10, Children: []block{{Path: "/dev/sda1", Type: "part", Size: 5}}},
		{Path: "/dev/sr0", Type: "rom", Size: 3, ReadOnly: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := parseBlocks([]byte("lsblk: failed")); err == nil {
		t.Error("nonsense was read")
	}
}
