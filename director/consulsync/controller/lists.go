package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director/consulsync"
)

// lists reads long lists of Consul one element at a time. Consul's own client first holds the whole answer in memory,
// and then all of its elements with fields that the sync does not look at.
type lists struct {
	http       *http.Client
	base       string // scheme and host
	datacenter string // empty for that of the agent
}

// mostRefusal bounds what is read of an answer that is an error.
const mostRefusal = 4 << 10

// entry is what is read of a service on the cluster's node.
type entry struct {
	ID, Service, Address string
	Port                 int
	Tags                 []string
	Meta                 map[string]string
	ModifyIndex          uint64
}

// node is what is read of the cluster's node.
type node struct {
	Address string
	Meta    map[string]string
}

// check is what is read of a check on the cluster's node.
type check struct{ CheckID, ServiceID, Status string }

// nodes calls each with the name of every node of the cluster with that uid, as the leader knows them. The nodes of
// agents are among them.
func (l *lists) nodes(ctx context.Context, uid string, each func(string)) (*api.QueryMeta, error) {
	query := url.Values{"node-meta": {consulsync.MetaCluster + ":" + uid}}
	return l.get(ctx, "/v1/catalog/nodes", query, func(d *json.Decoder) error {
		return elements(d, func(n struct{ Node string }) { each(n.Node) })
	})
}

// services calls each for every service on the node, as the leader knows them. It returns nil for a node that is not
// there, or not for the token. A list that is cut off is an error.
func (l *lists) services(ctx context.Context, name string, each func(entry)) (*node, *api.QueryMeta, error) {
	var has *node
	meta, err := l.get(ctx, "/v1/catalog/node-services/"+url.PathEscape(name), nil, func(d *json.Decoder) error {
		open, err := d.Token()
		if err != nil || open == nil { // null: there is no such node
			return err
		}
		if open != json.Delim('{') {
			return fmt.Errorf("consul answered with %v where a node is expected", open)
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			switch key {
			case "Node":
				err = d.Decode(&has)
			case "Services":
				err = elements(d, each)
			default:
				err = d.Decode(&json.RawMessage{})
			}
			if err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	})
	return has, meta, err
}

// checks calls each for every check on the node, as the leader knows them. A list that is cut off is an error.
func (l *lists) checks(ctx context.Context, name string, each func(check)) (*api.QueryMeta, error) {
	return l.get(ctx, "/v1/health/node/"+url.PathEscape(name), nil, func(d *json.Decoder) error {
		return elements(d, each)
	})
}

// elements reads an array to its end.
func elements[T any](d *json.Decoder, each func(T)) error {
	open, err := d.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('[') {
		return fmt.Errorf("consul answered with %v where a list is expected", open)
	}
	for d.More() {
		var e T
		if err := d.Decode(&e); err != nil {
			return err
		}
		each(e)
	}
	_, err = d.Token()
	return err
}

// get asks the leader, as consistent does, and has the answer read.
func (l *lists) get(
	ctx context.Context, path string, more url.Values, read func(*json.Decoder) error,
) (*api.QueryMeta, error) {
	query := url.Values{"consistent": {""}}
	maps.Copy(query, more)
	if l.datacenter != "" {
		query.Set("dc", l.datacenter)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
		return nil, errors.Join(api.StatusError{Code: resp.StatusCode, Body: string(text)}, err)
	}
	return &api.QueryMeta{
		KnownLeader:           resp.Header.Get("X-Consul-KnownLeader") == "true",
		ResultsFilteredByACLs: resp.Header.Get("X-Consul-Results-Filtered-By-ACLs") == "true",
	}, read(json.NewDecoder(resp.Body))
}
