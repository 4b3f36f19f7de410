package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/test/rig"
)

// start starts a director with the settings and applies the documents: the provider lab, networks by name, and whatever
// else.
func (b *bench) start(
	ctx context.Context, name, settings, lab string, networks map[string]string, documents ...string,
) (*rig.Rig, *client.Client, error) {
	dir, err := b.room(name)
	if err != nil {
		return nil, nil, err
	}
	r, err := rig.New(b.bin, dir, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Start(); err != nil {
		return nil, nil, err
	}
	c, err := b.fill(ctx, r, lab, networks, documents)
	if err != nil {
		return nil, nil, errors.Join(err, r.Stop())
	}
	return r, c, nil
}

func (*bench) fill(
	ctx context.Context, r *rig.Rig, lab string, networks map[string]string, documents []string,
) (*client.Client, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := r.Ready(waiting); err != nil {
		return nil, err
	}
	c, err := r.Client(ctx)
	if err != nil {
		return nil, err
	}
	base, err := r.Base(ctx, lab, networks)
	if err != nil {
		return nil, err
	}
	_, err = c.Apply(ctx, []byte(base+strings.Join(documents, "")), "documents", false)
	return c, err
}

// provider is the settings of a pretended hypervisor with large hosts.
func provider(hosts int, ensure, boot string) string {
	names := make([]string, hosts)
	for i := range names {
		names[i] = fmt.Sprintf("{name: h%d, cpus: 4096, memory: 64TiB, disk: 1024TiB}", i+1)
	}
	return fmt.Sprintf(
		"{hosts: [%s], boot: %s, bootJitter: %s, verbs: [{verb: ensure, latency: %s}]}", strings.Join(names, ", "),
		boot, boot, ensure,
	)
}

// cluster renders a cluster of one master and some workers, in pools of at most a thousand.
func cluster(name, provider, network string, workers int) string {
	var pools []string
	for n := 0; workers > 0; n++ {
		count := min(workers, 1000)
		workers -= count
		pools = append(pools, fmt.Sprintf("{name: w%d, count: %d, memory: 2GiB, disk: 10GiB}", n, count))
	}
	return fmt.Sprintf("---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: %s}\nspec:\n  release: k8s\n  "+
		"provider: %s\n  image: node\n  network: %s\n"+
		"  pods: {cidr: 10.128.0.0/9}\n  services: {cidr: 10.112.0.0/16}\n"+
		"  masters: {memory: 2GiB, disk: 10GiB}\n  workers: [%s]\n", name, provider, network, strings.Join(pools, ", "))
}
