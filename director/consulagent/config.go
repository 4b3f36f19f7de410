// Package consulagent writes what agents of Consul are told, and runs the one next to a director. Nodes get their files
// without secrets at their first boot; the role consul_agent writes the same ones, and adds those with secrets.
package consulagent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
)

const loopback = "127.0.0.1"

// Agent is what an agent is told that is no secret.
type Agent struct {
	Name, ID    string // of its node in Consul; the id is a UUID
	Address     string // at which it takes gossip
	Datacenter  string
	Domain      string
	Join        []string // where servers take gossip, each with its port
	Meta        map[string]string
	AutoEncrypt bool   // whether the servers give it a certificate
	CAFile      string // what the servers' certificates are from
	DataDir     string
	Gossip      int // the port at which it takes gossip
	HTTP, DNS   int // the ports of its API on 127.0.0.1 and of its DNS; 0 for an agent that serves no program
}

// Config returns the agent's file without secrets.
func (a Agent) Config() []byte {
	c := map[string]any{
		"server": false, "datacenter": a.Datacenter, "domain": a.Domain, "node_name": a.Name, "node_id": a.ID,
		"node_meta": a.Meta, "data_dir": a.DataDir, "bind_addr": a.Address, "client_addr": loopback,
		"ports":      map[string]int{"http": port(a.HTTP), "dns": port(a.DNS), "serf_lan": a.Gossip},
		"retry_join": a.Join, "retry_interval": "15s",
		"rejoin_after_leave": true,
		// A machine that is stopped stays in the catalog, as one that fails. One that is removed leaves by SIGINT.
		"leave_on_terminate": false, "skip_leave_on_interrupt": false,
		"disable_keyring_file": true, "disable_remote_exec": true, "disable_update_check": true,
		"enable_script_checks": false, "enable_local_script_checks": false,
		"tls": map[string]any{
			"defaults":     map[string]any{"ca_file": a.CAFile, "verify_outgoing": true},
			"internal_rpc": map[string]bool{"verify_server_hostname": true},
		},
	}
	if a.AutoEncrypt {
		c["auto_encrypt"] = map[string]bool{"tls": true}
	}
	if a.DNS != 0 {
		c["addresses"] = map[string]string{"dns": strings.Join(slices.Compact([]string{a.Address, loopback}), " ")}
		c["dns_config"] = map[string]bool{"only_passing": true}
	}
	return text(c)
}

// port is how the file says that an agent does not listen.
func port(p int) int {
	if p == 0 {
		return -1
	}
	return p
}

// Secrets returns the agent's file with the token and the gossip key; either may be empty.
func Secrets(token, gossip director.Secret) []byte {
	c := map[string]any{}
	if gossip != "" {
		c["encrypt"] = gossip.Reveal()
	}
	if token != "" {
		c["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]string{"agent": token.Reveal(), "default": token.Reveal()},
		}
	}
	return text(c)
}

// Service is what an agent registers, with one check.
type Service struct {
	ID, Name string
	Address  string
	Port     int
	Tags     []string
	Meta     map[string]string
	Check    Check
}

// Check is how an agent finds out whether a service is well. Certificates are not looked at, and no redirect is
// followed.
type Check struct {
	Name     string
	Scheme   string // http, https or tcp
	Address  string // at which it is asked
	Port     int
	Path     string // empty with tcp
	Interval int    // seconds
}

// Services returns the agent's file with what it registers.
func Services(list []Service) []byte {
	all := make([]map[string]any, len(list))
	for i, s := range list {
		at := net.JoinHostPort(s.Check.Address, strconv.Itoa(s.Check.Port))
		check := map[string]any{
			"id": s.ID + "-check", "name": s.Check.Name, "interval": fmt.Sprintf("%ds", s.Check.Interval),
			"timeout": "5s",
		}
		if s.Check.Scheme == "tcp" {
			check["tcp"] = at
		} else {
			check["http"], check["method"] = s.Check.Scheme+"://"+at+s.Check.Path, "GET"
			check["tls_skip_verify"] = s.Check.Scheme == "https"
			check["disable_redirects"], check["output_max_size"] = true, 500
		}
		all[i] = map[string]any{
			"id": s.ID, "name": s.Name, "address": s.Address, "port": s.Port, "tags": append([]string{}, s.Tags...),
			"meta": s.Meta, "checks": []any{check},
		}
	}
	return text(map[string]any{"services": all})
}

// text is JSON with sorted keys, so that the same content has the same bytes.
func text(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	_ = e.Encode(v) // maps of strings, numbers and lists alone
	return b.Bytes()
}
