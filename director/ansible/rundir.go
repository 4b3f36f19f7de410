package ansible

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// runPrefix starts the names of run directories; everything else in the state directory is left alone.
const runPrefix = "play-"

// maxControl is how long the directory of ssh's control sockets may be: a unix socket's path has 107 bytes at most, of
// which ansible-core takes 11 for the name and ssh, while it creates the socket, 17 for a suffix.
const maxControl = 107 - 11 - 17

// runDir is the private directory of one run.
type runDir struct {
	path    string
	control string // within path, or elsewhere if path is too long for sockets
	owner   owner
}

// owner is the content of owner.json, which is there before anything runs.
type owner struct {
	ID       string    `json:"id"`
	Director identity  `json:"director"`
	Control  string    `json:"control"`
	Since    time.Time `json:"since"`
}

const (
	ownerFile     = "owner.json"
	processFile   = "process.json" // the identity of the process group's leader
	inventoryDir  = "inventory"
	extraVarsFile = "extra-vars.json"
	keyFile       = "ssh-key"
	certFile      = keyFile + "-cert.pub" // where ssh looks for the certificate of the key
	oldKeyFile    = "ssh-key-old"
	knownFile     = "known_hosts"
	eventsFile    = "events.jsonl"
	configFile    = "ansible.cfg" // empty, for a tree that has none
	tempDir       = "tmp"
)

// newRunDir makes the directory and says in it whose it is.
func newRunDir(state, id string) (_ *runDir, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(state, runPrefix)
	if err != nil {
		return nil, err
	}
	d := &runDir{path: path, control: filepath.Join(path, "c")}
	defer func() {
		if err != nil {
			d.remove()
		}
	}()
	if len(d.control) > maxControl {
		if d.control, err = os.MkdirTemp("", "kaas-"); err != nil {
			return nil, err
		}
	}
	d.owner = owner{ID: id, Control: d.control, Since: time.Now().UTC()}
	if d.owner.Director, err = identify(os.Getpid()); err != nil {
		return nil, err
	}
	if err := d.writeJSON(ownerFile, d.owner); err != nil {
		return nil, err
	}
	for _, dir := range []string{d.control, d.file(tempDir), d.file(inventoryDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// openRunDir opens a directory that an earlier process may have left.
func openRunDir(path string) (*runDir, error) {
	d := &runDir{path: path}
	raw, err := os.ReadFile(d.file(ownerFile))
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(raw, &d.owner); err != nil {
		return d, err
	}
	d.control = d.owner.Control
	return d, nil
}

func (d *runDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *runDir) write(name string, data []byte) error {
	return os.WriteFile(d.file(name), data, 0o600)
}

func (d *runDir) writeJSON(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.write(name, raw)
}

// leader returns who leads the process group, and the zero value if that was not written.
func (d *runDir) leader() identity {
	var i identity
	if raw, err := os.ReadFile(d.file(processFile)); err != nil || json.Unmarshal(raw, &i) != nil {
		return identity{}
	}
	return i
}

// belonging selects the processes of this run.
func (d *runDir) belonging(leader identity) belonging {
	return belonging{marker: d.marker(), control: d.control, leader: leader}
}

// marker is the entry of the environment by which descendants are known.
func (d *runDir) marker() string { return "KAAS_RUN=" + d.path }

// remove removes the directory and the control sockets. Whatever cannot be removed is left to the next start.
func (d *runDir) remove() {
	if d.control != "" && !strings.HasPrefix(d.control, d.path+"/") &&
		strings.HasPrefix(filepath.Base(d.control), "kaas-") {
		_ = os.RemoveAll(d.control)
	}
	_ = os.RemoveAll(d.path)
}

// fill writes what the run needs and returns the path of the inventory.
func (d *runDir) fill(p Play) (inventory string, err error) {
	names := make([]string, 0, len(p.Inventory))
	for name := range p.Inventory {
		names = append(names, name)
	}
	sort.Strings(names)
	main, err := mainInventory(names)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		to := filepath.Join(inventoryDir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(d.file(to)), 0o700); err != nil {
			return "", err
		}
		if err := d.write(to, p.Inventory[name]); err != nil {
			return "", err
		}
	}
	files := map[string][]byte{
		keyFile: withNewline(p.SSHKey), knownFile: withNewline(p.KnownHosts), eventsFile: nil, configFile: nil,
	}
	if len(p.ExtraVars) > 0 {
		files[extraVarsFile] = p.ExtraVars
	}
	if len(p.SSHCertificate) > 0 {
		files[certFile] = withNewline(p.SSHCertificate)
	}
	if len(p.OldSSHKey) > 0 {
		files[oldKeyFile] = withNewline(p.OldSSHKey)
	}
	for name, data := range files {
		if err := d.write(name, data); err != nil {
			return "", err
		}
	}
	return d.file(filepath.Join(inventoryDir, main)), nil
}

// withNewline ends data with a newline: ssh does not read a key without one.
func withNewline(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] != '\n' {
		return append(data[:n:n], '\n')
	}
	return data
}

// mainInventory returns which of the files lists the hosts; the others, such as group_vars, are in the same directory.
// Ansible cannot be given the directory: it would skip files that end in .ini.
func mainInventory(names []string) (string, error) {
	var top []string
	for _, name := range names {
		if !filepath.IsLocal(name) {
			return "", fmt.Errorf("the inventory file %q is not below the inventory", name)
		}
		if !strings.Contains(name, "/") {
			top = append(top, name)
		}
	}
	for _, want := range []string{"hosts.ini", "hosts.yml", "hosts.yaml", "hosts"} {
		for _, name := range top {
			if name == want {
				return name, nil
			}
		}
	}
	if len(top) == 1 {
		return top[0], nil
	}
	return "", fmt.Errorf("the inventory has no hosts.ini")
}

// plain is what a path must consist of to pass through ssh's and ansible-core's own quoting and lists unharmed.
var plain = regexp.MustCompile(`^[A-Za-z0-9/._@+=,-]+$`)

// environ is the whole environment of the run: nothing of ours, and no secrets.
func (d *runDir) environ(p Play, path string) []string {
	env := []string{
		d.marker(),
		"KAAS_EVENTS=" + d.file(eventsFile),
		"PATH=" + path,
		"HOME=" + d.path,
		"TMPDIR=" + d.file(tempDir),
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"PYTHONDONTWRITEBYTECODE=1",
		"ANSIBLE_HOME=" + d.file(".ansible"),
		"ANSIBLE_LOCAL_TEMP=" + d.file(tempDir),
		"ANSIBLE_CALLBACK_PLUGINS=" + filepath.Join(p.Tree, "callback_plugins"),
		"ANSIBLE_STDOUT_CALLBACK=director_events",
		"ANSIBLE_ROLES_PATH=" + filepath.Join(p.Tree, "roles"),
		"ANSIBLE_NOCOLOR=1",
		"ANSIBLE_NOCOWS=1",
		"ANSIBLE_RETRY_FILES_ENABLED=False",
		"ANSIBLE_DEPRECATION_WARNINGS=False",
		"ANSIBLE_INVENTORY_ENABLED=ini,yaml",
		"ANSIBLE_INVENTORY_UNPARSED_FAILED=True",
		"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=True",
		"ANSIBLE_PIPELINING=True",
		"ANSIBLE_HOST_KEY_CHECKING=True",
		"ANSIBLE_SSH_CONTROL_PATH_DIR=" + d.control,
		"ANSIBLE_SSH_ARGS=" + strings.Join(d.sshArgs(len(p.OldSSHKey) > 0), " "),
	}
	config := filepath.Join(p.Tree, "ansible.cfg")
	if _, err := os.Stat(config); err != nil {
		config = d.file(configFile)
	}
	return append(env, "ANSIBLE_CONFIG="+config)
}

// sshArgs keeps ssh away from what the director's own user has configured, from agents and from passwords.
func (d *runDir) sshArgs(oldKey bool) []string {
	args := []string{"-F", "/dev/null"}
	for _, o := range []string{
		"ControlMaster=auto", "ControlPersist=300",
		"StrictHostKeyChecking=yes", "UserKnownHostsFile=" + d.file(knownFile), "GlobalKnownHostsFile=/dev/null",
		"UpdateHostKeys=no", "CheckHostIP=no",
		"IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey",
		"ServerAliveInterval=15", "ServerAliveCountMax=20",
	} {
		args = append(args, "-o", o)
	}
	if oldKey {
		args = append(args, "-o", "IdentityFile="+d.file(oldKeyFile))
	}
	return args
}
