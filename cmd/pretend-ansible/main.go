// Command pretend-ansible is the small form of the stand-in for ansible-playbook that a simulating director runs. The
// director plays it itself where this program does not lie beside it, which takes twenty times as long to start.
package main

import (
	"os"

	"github.com/director-kaas/kaas/director/simulate/pretend"
)

func main() { os.Exit(pretend.Main(os.Args, os.Stderr)) }
