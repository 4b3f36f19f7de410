package steps

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// guest is a machine whose first boot went as its reports say, one after the other.
type guest struct {
	Nodes
	reports []cloudinit.Report
	ill     int // health checks that fail
	again   *int
	ran     *[]string
}

func (guest) CloudInit(context.Context, director.Machine, string) (string, error) {
	return `{"v1": {"errors": []}}`, nil
}

func (g *guest) FirstBoot(_ context.Context, _ director.Machine, _ string, again bool) (cloudinit.Report, error) {
	if again {
		*g.again++
	}
	r := g.reports[0]
	if len(g.reports) > 1 {
		g.reports = g.reports[1:]
	}
	return r, nil
}

func (g *guest) Script(_ context.Context, _ director.Machine, _, script string) error {
	*g.ran = append(*g.ran, script)
	if g.ill--; g.ill >= 0 {
		return director.Errorf(director.KindConflict, "vm.script", "a script failed on w: disk is full")
	}
	return nil
}

func TestFirstBoot(t *testing.T) {
	t.Parallel()
	good := cloudinit.ScriptResult{Name: "good", Ran: true, Ended: true}
	bad := cloudinit.ScriptResult{
		Name: "bad", Log: "/var/lib/kaas/first-boot/01-bad.log", Ran: true, Ended: true, Code: 3,
		Tail: "one\n\x1b[31mtwo",
	}
	loud := cloudinit.ScriptResult{Name: "loud", Ran: true, Ended: true, Code: 1}
	vm := model.VMModel{
		Scripts: []model.Script{{Name: "good"}, {Name: "bad"}, {Name: "loud", IgnoreFailure: true}},
		Health: &model.Health{
			Command: "test 'a' = a", Interval: model.Duration(time.Millisecond),
			Timeout: model.Duration(50 * time.Millisecond),
		},
	}
	for name, tt := range map[string]struct {
		guest   guest
		attempt int
		want    []string // in message and hint; empty for success
		again   int
		notes   string
	}{
		"all is well": {guest: guest{reports: []cloudinit.Report{{Scripts: []cloudinit.ScriptResult{good}}}}},
		"one fails": {
			guest: guest{reports: []cloudinit.Report{{Scripts: []cloudinit.ScriptResult{good, bad}}}},
			want: []string{
				"script bad on w ended with exit code 3; its last lines:\none\ntwo", "01-bad.log", "retry the step",
			},
		},
		"one may fail": {
			guest: guest{reports: []cloudinit.Report{{Scripts: []cloudinit.ScriptResult{loud}}}},
			notes: "script loud on w ended with exit code 1, which its document ignores",
		},
		"they run still": {
			guest: guest{
				reports: []cloudinit.Report{
					{Busy: true, Scripts: []cloudinit.ScriptResult{{Name: "good", Ran: true}}},
					{Scripts: []cloudinit.ScriptResult{good}},
				},
			},
			notes: "first-boot scripts run: good",
		},
		"the second try": {
			guest:   guest{reports: []cloudinit.Report{{Busy: true}, {Scripts: []cloudinit.ScriptResult{good}}}},
			attempt: 2, again: 1, notes: "first-boot scripts run",
		},
		"ill for a moment": {guest: guest{reports: []cloudinit.Report{{}}, ill: 2}, notes: "is not well yet"},
		"ill for too long": {
			guest: guest{reports: []cloudinit.Report{{}}, ill: 1 << 30},
			want: []string{
				"w is not well 50ms after its boot: a script failed on w: disk is full", "/var/lib/kaas/health",
			},
		},
		"a machine of before": {guest: guest{reports: []cloudinit.Report{{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var notes, ran []string
			again := 0
			tt.guest.again, tt.guest.ran = &again, &ran
			env := Env{Machines: Machines{Nodes: &tt.guest}}
			r := plan.Run{
				Attempt: max(tt.attempt, 1), Note: func(_ context.Context, text string) { notes = append(notes, text) },
			}
			p := step.VMParams{Machine: plan.MachineSpec{Name: "w"}, VM: vm}
			err := env.vms().firstBoot(t.Context(), r, p, "", false)
			if len(tt.want) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.want {
				if director.KindOf(err) != director.KindConflict ||
					!strings.Contains(fmt.Sprint(err)+director.HintOf(err), part) {
					t.Errorf("%q is not in %v (%s)", part, err, director.HintOf(err))
				}
			}
			if again != tt.again || !strings.Contains(strings.Join(notes, "\n"), tt.notes) {
				t.Errorf("%d times again, notes %q", again, notes)
			}
			if len(ran) > 0 && ran[0] != `timeout 20 sh -c 'test '\''a'\'' = a'` {
				t.Errorf("the health check is %s", ran[0])
			}
			tt.guest.reports = []cloudinit.Report{{Scripts: []cloudinit.ScriptResult{bad}}}
			tt.guest.ill = 0
			if err := env.vms().firstBoot(t.Context(), r, p, "", true); err != nil {
				t.Errorf("a VM made by others was asked for scripts: %v", err)
			}
		})
	}
}

// sshServer is a node that runs commands in a shell of its own, with dir first in its PATH.
func sshServer(t *testing.T, key cloudinit.HostKey, dir string) (port string) {
	t.Helper()
	signer, err := ssh.ParsePrivateKey([]byte(key.Private.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			return &ssh.Permissions{}, nil
		},
	}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(channel ssh.Channel, requests <-chan *ssh.Request) {
		defer func() { _ = channel.Close() }()
		for r := range requests {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			var command struct{ Text string }
			_ = ssh.Unmarshal(r.Payload, &command)
			cmd := exec.Command("sh", "-c", command.Text)
			cmd.Stdout, cmd.Env = channel, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			status := struct{ Code uint32 }{}
			if err := cmd.Run(); err != nil {
				status.Code = 255
				if e, ok := errors.AsType[*exec.ExitError](err); ok {
					status.Code = uint32(e.ExitCode()) //nolint:gosec // of a process that has ended
				}
			}
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
			return
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, channels, requests, err := ssh.NewServerConn(conn, config)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				for c := range channels {
					if channel, requests, err := c.Accept(); err == nil {
						go serve(channel, requests)
					}
				}
			}()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Over SSH, the node's own runner tells how the scripts went.
func TestFirstBootOverSSH(t *testing.T) {
	t.Parallel()
	key, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// sudo does as it is told; the paths of the node lead below the test's directory.
	sudo := "#!/bin/sh\n[ \"$1 $2 $3\" = '-n sh -c' ] || exit 9\nexec sh -c \"$(printf '%s' \"$4\" | sed 's|" +
		cloudinit.FirstBootDir + "|" + dir + "|g')\"\n"
	tail := base64.StdEncoding.EncodeToString([]byte("it's broken\n"))
	run := "#!/bin/sh\n[ \"$1\" = report ] || exec touch " + dir + "/again\necho '00-good 0 600 '\necho '01-bad 7 60 " +
		tail + "'\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "sudo"), []byte(sudo), 0o755)); err != nil {
		t.Fatal(err)
	}
	login := func(context.Context, director.Machine) ([]ssh.Signer, error) {
		signer, err := ssh.ParsePrivateKey([]byte(key.Private.Reveal()))
		return []ssh.Signer{signer}, err
	}
	nodes := sshNodes{login: login, port: sshServer(t, key, dir)}
	m := director.Machine{Name: "w", Address: netip.MustParseAddr("127.0.0.1").String()}
	if r, err := nodes.FirstBoot(t.Context(), m, key.Public, true); err != nil || len(r.Scripts) > 0 {
		t.Errorf("a node without scripts: %+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte(run), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := nodes.FirstBoot(t.Context(), m, key.Public, false)
	if err != nil || len(r.Scripts) != 2 || r.Scripts[0].Failed() || r.Scripts[1].Code != 7 ||
		r.Scripts[1].Tail != "it's broken" || r.Scripts[1].Limit != time.Minute {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "again")); err == nil {
		t.Error("the scripts were run again unasked")
	}
	if _, err := nodes.FirstBoot(t.Context(), m, key.Public, true); err != nil {
		t.Fatal(err)
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C { // it is not waited for
		if _, err := os.Stat(filepath.Join(dir, "again")); err == nil {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the scripts were not run again")
		}
	}
	if err := nodes.Script(
		t.Context(), m, key.Public, "echo no; exit 4",
	); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "no") {
		t.Errorf("a script that fails: %v", err)
	}
	other, err := cloudinit.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.FirstBoot(t.Context(), m, other.Public, false); director.KindOf(err) != director.KindConflict {
		t.Errorf("another host: %v", err)
	}
}

// What the document says of VMs reaches cloud-init.
func TestDescribe(t *testing.T) {
	t.Parallel()
	p := step.VMParams{
		Machine: plan.MachineSpec{Name: "demo-w-1", Cluster: "demo"},
		VM: model.VMModel{
			SSHKeys: []string{
				"k",
			}, NTP: []string{"t"}, Packages: []string{"htop"},
			HostAliases:  []model.HostAlias{{Address: netip.MustParseAddr("10.0.0.9"), Names: []string{"nfs"}}},
			Repositories: []model.Repository{{Name: "x", Source: "deb x", Key: "y"}},
			Scripts:      []model.Script{{Name: "s", Content: "true", Timeout: model.Duration(time.Minute)}},
			Shares: []model.Share{
				{Path: "/a/b", Server: "nfs", Export: "/x", Options: "o"},
				{Path: "/c", Server: "nfs", Export: "/y", Options: "o", Common: true},
			},
			Health: &model.Health{Command: "true"},
		},
	}
	g := cloudinit.Guest{AuthorizedKeys: []string{"own"}, NTP: []string{"network"}}
	describe(&g, p)
	want := "[own k] [t] [htop] [{10.0.0.9 [nfs]}] [{x deb x y}] [{s true 1m0s}] [{/a/b nfs /x demo/demo-w-1/a/b o} " +
		"{/c nfs /y  o}] true"
	if got := fmt.Sprint(
		g.AuthorizedKeys, g.NTP, g.Packages, g.HostAliases, g.Repositories, g.Scripts, g.Shares, " ", g.Health,
	); strings.ReplaceAll(got, "  true", " true") != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g = cloudinit.Guest{NTP: []string{"network"}}
	describe(&g, step.VMParams{})
	if len(g.NTP) != 1 || g.Scripts != nil || g.Health != "" {
		t.Errorf("nothing became %+v", g)
	}
}
