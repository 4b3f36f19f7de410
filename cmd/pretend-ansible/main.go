// Command pretend-ansible is the small form of the substitute for ansible-playbook that a simulated director runs. If
// this program is not in the director's directory, the director runs itself as the substitute, which takes twenty times
// as long to start.
package main

import (
	"os"

	"github.com/director-kaas/kaas/director/simulate/pretend"
)

func main() { os.Exit(pretend.Main(os.Args, os.Stderr)) }
