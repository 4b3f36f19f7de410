package ansible_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/ansible"
)

// Whatever is in the events file, its reader continues with the next line.
func TestEventsThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.Play(t.Context(), b.play(t, start+`
		echo 'no json' >>"$KAAS_EVENTS"; echo >>"$KAAS_EVENTS"; echo '{"n":"x"}' >>"$KAAS_EVENTS"; echo '{"n":3}' `+
		`>>"$KAAS_EVENTS"
		head -c 2000000 /dev/zero | tr '\0' x >>"$KAAS_EVENTS"; echo >>"$KAAS_EVENTS"
		n=7; emit '{"type":"retry","msg":"after a gap"}'
		emit '{"type":"of_the_future","msg":"unknown"}'
		printf '{"n":10,"type":"ret' >>"$KAAS_EVENTS"; printf 'ry","msg":"in two parts"}\n' >>"$KAAS_EVENTS"
		head -c 100000 /dev/zero | tr '\0' y; echo
		n=10; ok; printf '{"n":12,"type":"retry","msg":"torn' >>"$KAAS_EVENTS"`))
	if err != nil || res.Lost != 5 {
		t.Errorf("lost %d, error %v", res.Lost, err)
	}
	for _, want := range []string{"after a gap", "unknown", "in two parts", "yyyy"} {
		if !slices.ContainsFunc(b.events, said(want)) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, e := range b.logged(t) {
		if len(e.Msg) > 4096 {
			t.Errorf("a message of %d bytes", len(e.Msg))
		}
	}
}

// A full disk may swallow the last events; the run has succeeded nevertheless.
func TestLastEventsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if res, err := b.Play(t.Context(), b.play(t, start)); err != nil || res.Lost != 1 {
		t.Errorf("lost %d, error %v", res.Lost, err)
	}
}

// A listener that hangs does not keep ansible-playbook from writing.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	b := setup(t)
	done := fifo(t)
	p := b.play(t, start+`yes 'a line' | head -n 100000; yes 'a line' | head -n 100000 >&2
		seq 1000 | sed 's/.*/{"type":"retry","msg":"&"}/' >>"$KAAS_EVENTS"; ok; echo done >`+done)
	var count int
	p.OnEvent = func(e ansible.Event) {
		if e.Type == ansible.PlayStart {
			if _, err := os.ReadFile(done); err != nil { // until the run has written all it has
				t.Error(err)
			}
		}
		count++
	}
	if _, err := b.Play(t.Context(), p); err != nil || count < 2999 {
		t.Errorf("%d events, error %v", count, err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.Play(t.Context(), b.play(t, start+`seq 5000; ok`)); err != nil {
		t.Fatal(err)
	}
	if n := len(b.logged(t)); n > 2010 {
		t.Errorf("%d lines", n)
	}
}

// A log that cannot be written does not fail the run; one that cannot even be opened does, before anything starts.
func TestLogOnFullDisk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.play(t, start+"ok")
	p.LogPath = "/dev/full"
	if _, err := b.Play(t.Context(), p); err != nil {
		t.Error(err)
	}
	p.LogPath = filepath.Join(b.tree, "install", "x.yml", "log")
	if _, err := b.Play(t.Context(), p); err == nil || ansible.Permanent(err) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkEvents measures how many events a second are taken in, logged and handed on.
func BenchmarkEvents(b *testing.B) {
	const events = 50_000
	var text strings.Builder
	for i := range events {
		text.WriteString(`{"n":` + strconv.Itoa(i+2) + `,"type":"host","time":"2026-01-01T00:00:00Z","host":"node-` +
			strconv.Itoa(i%5000) +
			`","status":"changed","changed":true,"task":"Write the ` +
			`configuration","role":"kubelet","action":"ansible.builtin.template",` +
			`"path":"/x/roles/kubelet/tasks/main.yml:10","task_id":"0242ac11-0002-dc4b-9e06-000000000012",` +
			`"seconds":1.234}` + "\n")
	}
	benchmark(b, fakeIn(b, b.TempDir()), map[string]string{
		"events": text.String(),
		"x.yml": `emit '{"type":"play_start","play":"P"}'; cat "${playbook%/*}/events" >>"$KAAS_EVENTS"; n=` +
			strconv.Itoa(events+1) + "; ok\n",
	}, `{"a":"a-secret-of-some-length"}`)
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
