package appliance

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// ParseGuestinfo returns the properties in VMware's guest information, as cloud-init's data source for VMware has them:
// user-data, and meta-data with the network's settings as a member, each packed as its encoding says. get returns the
// value of a key, and nothing if there is none. Errors: invalid.
func ParseGuestinfo(get func(key string) string) (map[string]string, error) {
	user, err := unpacked("user-data", get("guestinfo.userdata"), get("guestinfo.userdata.encoding"))
	if err != nil {
		return nil, err
	}
	meta, err := unpacked("meta-data", get("guestinfo.metadata"), get("guestinfo.metadata.encoding"))
	if err != nil {
		return nil, err
	}
	var in struct {
		Network  yaml.Node `yaml:"network"`
		Encoding string    `yaml:"network.encoding"`
	}
	if err := decode("meta-data", meta, &in); err != nil {
		return nil, err
	}
	var network []byte
	switch in.Network.Kind {
	case 0:
	case yaml.ScalarNode:
		network, err = unpacked("meta-data: network", in.Network.Value, in.Encoding)
	default:
		network, err = yaml.Marshal(&in.Network)
	}
	if err != nil {
		return nil, err
	}
	return ParseSeed(Seed{UserData: user, MetaData: meta, NetworkConfig: network})
}

// removed is what cloud-init writes over what it has read.
const removed = "---"

// unpacked undoes the encoding of a value.
func unpacked(what, value, encoding string) ([]byte, error) {
	value, encoding = strings.TrimSpace(value), strings.TrimSpace(encoding)
	if value == "" || value == removed {
		return nil, nil
	}
	out := []byte(value)
	switch encoding {
	case "", "text/plain":
	case "base64", "b64", "gzip+base64", "gz+b64":
		var err error
		if out, err = base64.StdEncoding.DecodeString(value); err != nil {
			return nil, seedError(what, err)
		}
		if strings.HasPrefix(encoding, "gz") {
			if out, err = unzip(out); err != nil {
				return nil, seedError(what, err)
			}
		}
	default:
		return nil, seedError(what, fmt.Errorf("its encoding is %s, not gzip+base64 or base64", encoding))
	}
	if len(out) > mostSeed {
		return nil, seedError(what, fmt.Errorf("it has more than %d bytes", mostSeed))
	}
	return out, nil
}

// unzip reads one byte more than a seed may have, so that its caller sees what is too large.
func unzip(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, mostSeed+1))
	return out, errors.Join(err, z.Close())
}
