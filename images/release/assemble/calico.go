package main

import (
	"bytes"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as it was decoded.
type object = map[string]any

// header goes before the manifest.
const header = `# Calico %s for the Kubernetes datastore, with VXLAN and without BGP, made from the manifest of the
# project itself.
# Replace before use: @REGISTRY@ (host and prefix of the images), @POD_CIDR@, @VXLAN_PORT@, @MTU@ (0: found out).
`

// calicoManifest makes the manifest of the bundle from the project's own VXLAN manifest: our images and placeholders,
// one container for the node agent (it writes the CNI configuration itself), and probes over HTTP, which cost a slow
// node far less than starting the agent's program every few seconds.
func calicoManifest(upstream []byte, version string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, header, version)
	changed := map[string]bool{}
	for _, text := range strings.Split("\n"+string(upstream), "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			return nil, err
		}
		if len(o) == 0 {
			continue
		}
		kind, _ := o["kind"].(string)
		name, _ := at(o, "metadata")["name"].(string)
		var err error
		switch kind + "/" + name {
		case "ConfigMap/calico-config":
			at(o, "data")["veth_mtu"] = "@MTU@"
		case "DaemonSet/calico-node":
			err = nodeAgent(o, version)
		case "Deployment/calico-kube-controllers":
			err = controllers(o, version)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind, name, err)
		}
		changed[kind] = true
		document, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	for _, kind := range []string{"ConfigMap", "DaemonSet", "Deployment", "CustomResourceDefinition", "ClusterRole"} {
		if !changed[kind] {
			return nil, fmt.Errorf("there is no %s in it", kind)
		}
	}
	if rest := bytes.Index(out.Bytes(), []byte("docker.io/")); rest >= 0 {
		return nil, fmt.Errorf("an image of another registry is left in it: %.60q", out.Bytes()[rest:])
	}
	return out.Bytes(), nil
}

// at walks down objects; it returns an empty object where there is none.
func at(o object, path ...string) object {
	for _, p := range path {
		next, ok := o[p].(object)
		if !ok {
			return object{}
		}
		o = next
	}
	return o
}

// container returns the only container of a pod template.
func container(o object, name string) (object, error) {
	all, _ := at(o, "spec", "template", "spec")["containers"].([]any)
	if len(all) != 1 {
		return nil, fmt.Errorf("has %d containers, not 1", len(all))
	}
	c, ok := all[0].(object)
	if !ok || c["name"] != name {
		return nil, fmt.Errorf("has no container %s", name)
	}
	return c, nil
}

func value(name, v string) object { return object{"name": name, "value": v} }

func fromConfig(name, key string) object {
	return object{"name": name, "valueFrom": object{"configMapKeyRef": object{"name": "calico-config", "key": key}}}
}

func fromField(name, path string) object {
	return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
}

// nodeAgent rewrites the DaemonSet.
func nodeAgent(o object, version string) error {
	pod := at(o, "spec", "template", "spec")
	c, err := container(o, "calico-node")
	if err != nil {
		return err
	}
	// The node image holds the CNI programs, the agent writes their configuration, and the eBPF data plane is not used.
	delete(pod, "initContainers")
	c["image"] = "@REGISTRY@/calico-node:" + version
	c["command"] = []any{"calico-run"}
	c["env"] = []any{
		value("DATASTORE_TYPE", "kubernetes"),
		value("WAIT_FOR_DATASTORE", "true"),
		fromField("NODENAME", "spec.nodeName"),
		fromField("KUBERNETES_NODE_NAME", "spec.nodeName"),
		value("CLUSTER_TYPE", "k8s"),
		fromConfig("CALICO_NETWORKING_BACKEND", "calico_backend"),
		value("IP", "autodetect"),
		value("IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),
		value("CALICO_IPV4POOL_CIDR", "@POD_CIDR@"),
		value("CALICO_IPV4POOL_IPIP", "Never"),
		value("CALICO_IPV4POOL_VXLAN", "Always"),
		value("CALICO_IPV4POOL_NAT_OUTGOING", "true"),
		value("CNI_CONF_NAME", "10-calico.conflist"),
		fromConfig("CNI_NETWORK_CONFIG", "cni_network_config"),
		fromConfig("CNI_MTU", "veth_mtu"),
		fromConfig("FELIX_VXLANMTU", "veth_mtu"),
		value("FELIX_VXLANPORT", "@VXLAN_PORT@"),
		value("FELIX_IPTABLESBACKEND", "NFT"),
		value("FELIX_IPV6SUPPORT", "false"),
		value("FELIX_DEFAULTENDPOINTTOHOSTACTION", "ACCEPT"),
		value("FELIX_USAGEREPORTINGENABLED", "false"),
		value("FELIX_HEALTHENABLED", "true"),
		value("FELIX_HEALTHHOST", "127.0.0.1"),
		value("FELIX_HEALTHPORT", "9099"),
	}
	c["resources"] = object{"requests": object{"cpu": "100m", "memory": "100Mi"}}
	probe := func(path string, period, failures int) object {
		return object{
			"httpGet":             object{"host": "127.0.0.1", "path": path, "port": 9099},
			"initialDelaySeconds": 0, "periodSeconds": period, "timeoutSeconds": 10, "failureThreshold": failures,
		}
	}
	// A slow node needs a minute or two to the first answer; the start-up probe waits that long, the others are strict
	// after it.
	c["startupProbe"] = probe("/liveness", 2, 150)
	c["livenessProbe"] = probe("/liveness", 10, 6)
	c["readinessProbe"] = probe("/readiness", 10, 3)
	// The agent's own shutdown step marks the node as without a network; it is part of the upstream manifest and stays.
	keep := map[string]string{
		"cni-net-dir": "/host/etc/cni/net.d", "lib-modules": "/lib/modules", "xtables-lock": "/run/xtables.lock",
		"var-run-calico": "/var/run/calico", "var-lib-calico": "/var/lib/calico",
	}
	if c["volumeMounts"], err = filter(c["volumeMounts"], keep); err != nil {
		return err
	}
	pod["volumes"], err = filter(pod["volumes"], keep)
	return err
}

// filter returns the entries of a list whose names are in keep; all of them must be there.
func filter(list any, keep map[string]string) ([]any, error) {
	var kept []any
	entries, _ := list.([]any)
	for _, e := range entries {
		o, _ := e.(object)
		name, _ := o["name"].(string)
		if _, ok := keep[name]; ok {
			kept = append(kept, e)
		}
	}
	if len(kept) != len(keep) {
		return nil, fmt.Errorf("has %d of the %d volumes that are needed", len(kept), len(keep))
	}
	return kept, nil
}

// controllers rewrites the Deployment.
func controllers(o object, version string) error {
	c, err := container(o, "calico-kube-controllers")
	if err != nil {
		return err
	}
	c["image"] = "@REGISTRY@/calico-kube-controllers:" + version
	// Each of these probes starts a process in the container, which is dear on a slow node.
	// Readiness has the period of Calico's own manifest: the creation of a cluster waits for the next answer after one
	// that came too early.
	for name, times := range map[string][2]int{"livenessProbe": {60, 60}, "readinessProbe": {0, 10}} {
		probe, ok := c[name].(object)
		if !ok {
			return fmt.Errorf("has no %s", name)
		}
		probe["initialDelaySeconds"], probe["periodSeconds"], probe["timeoutSeconds"] = times[0], times[1], 20
	}
	// Until it has started it is asked often. The kubelet asks for readiness as soon as this has succeeded, but never
	// within the initial delay of that probe: it would ask again a whole period later.
	ready, _ := c["readinessProbe"].(object)
	c["startupProbe"] = object{
		"exec": ready["exec"], "periodSeconds": 3, "timeoutSeconds": 20, "failureThreshold": 200,
	}
	return nil
}
