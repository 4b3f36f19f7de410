package vsphere

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"

	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// The keys of extraConfig that cloud-init's VMware data source reads through the guest's tools.
const (
	guestMeta = "guestinfo.metadata"
	guestUser = "guestinfo.userdata"
	packing   = "gzip+base64"
)

// guestinfo is the seed as cloud-init reads it. The data source takes the network's document as a member of the
// metadata.
func guestinfo(op string, s hypervisor.Seed) ([]types.BaseOptionValue, error) {
	meta := map[string]any{}
	if err := yaml.Unmarshal(s.MetaData, &meta); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "the seed's metadata is no YAML mapping")
	}
	if len(s.NetworkConfig) > 0 {
		network, err := pack(s.NetworkConfig)
		if err != nil {
			return nil, err
		}
		meta["network"], meta["network.encoding"] = network, packing
	}
	// The guest takes the rest out when it has read it: a host key and scripts are not for those who may look at the
	// VM's settings.
	meta["cleanup-guestinfo"] = []string{"userdata"}
	text, err := yaml.Marshal(meta)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the seed's metadata cannot be encoded: %w", err)
	}
	var out []types.BaseOptionValue
	for _, d := range []struct {
		key  string
		text []byte
	}{{guestMeta, text}, {guestUser, s.UserData}} {
		packed, err := pack(d.text)
		if err != nil {
			return nil, err
		}
		out = append(out, option(d.key, packed), option(d.key+".encoding", packing))
	}
	return out, nil
}

func pack(text []byte) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		return "", fmt.Errorf("packing the seed: %w", err)
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("packing the seed: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func option(key, value string) *types.OptionValue { return &types.OptionValue{Key: key, Value: value} }
