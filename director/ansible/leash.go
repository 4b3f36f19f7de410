package ansible

import (
	"fmt"
	"os"
	osexec "os/exec"
	"time"
)

// leash is a pipe between the director and a play, which the play's callback plugin watches: a play ends itself when
// the director is gone and, where other directors may take its step over, when the director was silent for too long. So
// a play does not run at the same time as its successor on another director.
type leash struct {
	silence   time.Duration // that the play bears; it waits for ever if zero
	ours, its *os.File
}

// tie adds the play's end of the pipe to the command, which is not started yet. Errors: there is no file descriptor
// left.
func (l *leash) tie(cmd *osexec.Cmd) (err error) {
	if l.its, l.ours, err = os.Pipe(); err != nil {
		return err
	}
	fd := 3 + len(cmd.ExtraFiles)
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.its)
	cmd.Env = append(cmd.Env, fmt.Sprintf("KAAS_LEASH=%d:%g", fd, l.silence.Seconds()))
	return nil
}

// handedOver closes the play's end on our side, which would keep the pipe open.
func (l *leash) handedOver() {
	if l.its != nil {
		_ = l.its.Close()
	}
}

func (l *leash) close() {
	if l.ours != nil {
		_ = l.ours.Close()
	}
}

// hold gives signs of life, five within the silence that the play bears, until the play is done.
func (l *leash) hold(done <-chan struct{}) {
	defer l.close()
	if l.silence <= 0 {
		<-done
		return
	}
	t := time.NewTicker(l.silence / 5)
	defer t.Stop()
	for {
		_ = l.ours.SetWriteDeadline(time.Now().Add(l.silence / 5)) // a program that does not read fills the pipe
		_, _ = l.ours.Write([]byte{'.'})
		select {
		case <-done:
			return
		case <-t.C:
		}
	}
}
