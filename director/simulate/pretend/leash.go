package pretend

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watchLeash ends the process when the director is gone or silent, as the callback plugin does.
func watchLeash() {
	number, silence, _ := strings.Cut(os.Getenv("KAAS_LEASH"), ":")
	fd, err := strconv.Atoi(number)
	if err != nil || syscall.SetNonblock(fd, true) != nil {
		return
	}
	seconds, _ := strconv.ParseFloat(silence, 64)
	pipe := os.NewFile(uintptr(fd), "leash")
	go func() {
		var signs [64]byte
		for {
			if seconds > 0 {
				_ = pipe.SetReadDeadline(time.Now().Add(time.Duration(seconds * float64(time.Second))))
			}
			if n, err := pipe.Read(signs[:]); n == 0 && err != nil {
				_, _ = fmt.Fprintf(os.Stderr, "The director is gone or silent (%v): the run ends itself.\n", err)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}()
}
