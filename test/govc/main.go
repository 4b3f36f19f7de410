// Command govc is VMware's own command line for vCenter, with those of its commands that look. Tests see with it what
// the director has made: it shares no code with the back end but the types of the API. It is a module of its own, so
// that nothing of it becomes part of the director.
package main

import (
	"os"

	"github.com/vmware/govmomi/cli"
	_ "github.com/vmware/govmomi/cli/about"
	_ "github.com/vmware/govmomi/cli/cluster/rule"
	_ "github.com/vmware/govmomi/cli/datastore"
	_ "github.com/vmware/govmomi/cli/device"
	_ "github.com/vmware/govmomi/cli/object"
	_ "github.com/vmware/govmomi/cli/session"
	_ "github.com/vmware/govmomi/cli/vm"
	_ "github.com/vmware/govmomi/cli/vm/snapshot"
)

func main() { os.Exit(cli.Run(os.Args[1:])) }
