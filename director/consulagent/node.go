package consulagent

import (
	"io/fs"
	"path"

	"github.com/google/uuid"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/playbooks"
)

// What playbooks/vars/cluster.yml and the role consul_agent give every node. TestNodesHaveTheirFilesAtBoot compares.
const (
	nodeConfig = "/etc/consul.d"
	nodeData   = "/var/lib/consul"
	nodeUnit   = "/etc/systemd/system/kaas-consul.service"
	nodeCheck  = "as the node itself sees it"
	nodeHTTP   = 8500
	nodeDNS    = 8600
	nodeGossip = 8301
)

// idsOfNodes is the name space of Ansible's filter to_uuid.
var idsOfNodes = uuid.MustParse("361e6d51-faec-444a-9079-341386da8e2e")

// File is one of the files of an agent.
type File struct {
	Path string
	Text []byte
}

// OnNode returns the files without secrets of the agent on a node and its unit, as the role consul_agent writes them,
// so that the node can have them before its first login; nil for a cluster without agents. The unit does not start
// before there is another file, with the token and the gossip key, which the role alone writes.
func OnNode(f step.Facts, m plan.MachineSpec) ([]File, error) {
	told := f.Agents
	if told == nil {
		return nil, nil
	}
	unit, err := fs.ReadFile(playbooks.FS(), "roles/consul_agent/files/"+path.Base(nodeUnit))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "consulagent.node", "the unit of agents: %w", err)
	}
	meta := map[string]string{director.ConsulMetaOwner: told.Owner, director.ConsulMetaNode: m.Name}
	var services []Service
	for _, s := range f.Services(m) {
		services = append(services, Service{
			ID: s.ID, Name: s.Name, Address: s.Address, Port: s.Port, Tags: s.Tags, Meta: meta,
			Check: Check{
				Name: nodeCheck, Scheme: s.Check.Scheme, Address: s.Address, Port: s.Check.Port, Path: s.Check.Path,
				Interval: s.Check.Interval,
			},
		})
	}
	ca := path.Join(nodeConfig, "director-ca.pem")
	agent := Agent{
		Name: director.ConsulNode(m.Name), ID: uuid.NewSHA1(idsOfNodes, []byte(f.UID+"/"+m.Name)).String(),
		Address: m.Address, Datacenter: told.Datacenter, Domain: told.Domain, Join: told.Join,
		Meta: map[string]string{
			director.ConsulMetaOwner: told.Owner, director.ConsulMetaCluster: f.UID, director.ConsulMetaNode: m.Name,
		},
		AutoEncrypt: told.AutoEncrypt, CAFile: ca, DataDir: nodeData, Gossip: nodeGossip, HTTP: nodeHTTP, DNS: nodeDNS,
	}
	return []File{
		{ca, []byte(told.CA)},
		{path.Join(nodeConfig, "director-agent.json"), agent.Config()},
		{path.Join(nodeConfig, "director-services.json"), Services(services)},
		{nodeUnit, unit},
	}, nil
}
