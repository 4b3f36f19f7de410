package appliance

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestParseGuestinfo(t *testing.T) {
	t.Parallel()
	const (
		user    = "#cloud-config\nhostname: d1\ndirector: {ntp: [192.0.2.1]}\n"
		network = "version: 2\nethernets:\n  nics: {addresses: [192.0.2.9/24]}\n"
	)
	everything := map[string]string{"hostname": "d1", "ntp": "192.0.2.1", "address": "192.0.2.9/24"}
	for name, tt := range map[string]struct {
		given map[string]string
		want  map[string]string
		wrong string
	}{
		"nothing": {},
		"packed, with the network as a text": {
			given: map[string]string{
				"userdata": packed(t, user), "userdata.encoding": "gzip+base64",
				"metadata": packed(
					t, "instance-id: m1\nnetwork: "+packed(t, network)+"\nnetwork.encoding: gzip+base64\n",
				),
				"metadata.encoding": "gz+b64",
			},
			want: everything,
		},
		"plain, with the network as a mapping": {
			given: map[string]string{
				"userdata": user,
				"metadata": "network:\n  version: 2\n  ethernets: {nics: {addresses: [192.0.2.9/24]}}\n",
			},
			want: everything,
		},
		"removed after it was read": {given: map[string]string{"userdata": "---", "metadata": "instance-id: m1"}},
		"no encoding that is known": {
			given: map[string]string{"userdata": user, "userdata.encoding": "rot13"}, wrong: "its encoding is rot13",
		},
		"no base64": {
			given: map[string]string{"userdata": "§", "userdata.encoding": "base64"}, wrong: "user-data of the seed",
		},
		"no gzip": {
			given: map[string]string{"userdata": "YWJj", "userdata.encoding": "gzip+base64"}, wrong: "user-data",
		},
		"a bomb": {
			given: map[string]string{
				"metadata": packed(t, strings.Repeat(" ", 64<<20)), "metadata.encoding": "gzip+base64",
			},
			wrong: "has more than",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseGuestinfo(func(key string) string {
				return tt.given[strings.TrimPrefix(key, "guestinfo.")]
			})
			if tt.wrong != "" {
				if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("got %v, want %q", err, tt.wrong)
				}
				return
			}
			if err != nil || len(got) != len(tt.want) || len(got) > 0 && !cmp.Equal(got, tt.want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
