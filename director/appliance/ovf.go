package appliance

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// environment is the part of an OVF environment (DMTF DSP0243, section 11) that is read.
type environment struct {
	XMLName    xml.Name `xml:"Environment"`
	Properties []struct {
		Key   string `xml:"key,attr"`
		Value string `xml:"value,attr"`
	} `xml:"PropertySection>Property"`
}

// prefix is the class of the appliance's properties in an OVF descriptor.
const prefix = "director."

// ParseOVF returns the properties in an OVF environment. Those without a value are left out; those of other products
// are too. Errors: invalid.
func ParseOVF(text []byte) (map[string]string, error) {
	fail := func(err error) (map[string]string, error) {
		return nil, director.Errorf(
			director.KindInvalid, "appliance.ovf", "the OVF environment cannot be read: %w", err,
		).WithHint("deploy the appliance again from its OVA, and set the properties there")
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errors.New("it is not UTF-8") }
	var e environment
	if err := d.Decode(&e); err != nil {
		return fail(err)
	}
	given := map[string]string{}
	for _, p := range e.Properties {
		key, ours := strings.CutPrefix(p.Key, prefix)
		if !ours || p.Value == "" {
			continue
		}
		if _, twice := given[key]; twice {
			return fail(errors.New(printable(p.Key) + " is in it twice"))
		}
		given[key] = p.Value
	}
	return given, nil
}
