package inventory

func aliases(list []Alias) []map[string]any {
	out := make([]map[string]any, 0, len(list))
	for _, a := range list {
		out = append(out, map[string]any{"address": a.Address, "names": a.Names})
	}
	return out
}

func networks(list []Network) []map[string]any {
	out := make([]map[string]any, 0, len(list))
	for _, n := range list {
		out = append(out, map[string]any{"role": n.Role, "name": n.Name, "cidr": n.CIDR, "gateway": n.Gateway})
	}
	return out
}

func interfaces(list []Interface) []map[string]any {
	out := make([]map[string]any, 0, len(list))
	for _, i := range list {
		out = append(out, map[string]any{
			"role": i.Role, "device": i.Device, "network": i.Network, "address": i.Address, "mac": i.MAC,
		})
	}
	return out
}

func consulServices(list []Service) []map[string]any {
	out := make([]map[string]any, 0, len(list))
	for _, s := range list {
		out = append(out, map[string]any{
			"id": s.ID, "name": s.Name, "address": s.Address, "port": s.Port, "tags": s.Tags,
			"scheme": s.Check.Scheme, "check_port": s.Check.Port, "path": s.Check.Path, "interval": s.Check.Interval,
		})
	}
	return out
}

func taints(list []string) any {
	if list == nil {
		return nil
	}
	out := make([]map[string]any, 0, len(list))
	for _, t := range list {
		m := taintRE.FindStringSubmatch(t)
		out = append(out, map[string]any{"key": m[1], "value": m[2], "effect": m[3]})
	}
	return out
}
