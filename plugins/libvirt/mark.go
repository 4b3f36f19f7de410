package libvirt

import (
	"encoding/xml"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// namespace is of our elements in libvirt's metadata.
const namespace = "urn:director-kaas:libvirt:1"

// mark is our element in the metadata of a domain or network.
type mark struct {
	XMLName  xml.Name
	Director string `xml:"director,attr"`
	ID       string `xml:"id,attr"`
	Made     string `xml:"made,attr,omitempty"`     // domains: yes when all disks are complete
	Settings string `xml:"settings,attr,omitempty"` // networks: what they were made from
}

func (m mark) stamp() director.Stamp { return director.Stamp{Director: m.Director, Machine: m.ID} }

// element returns the mark as XML; with its namespace for a whole document, without for libvirt's SetMetadata, which
// adds it.
func (m mark) element(kind string, whole bool) string {
	m.XMLName = xml.Name{Local: kind}
	if whole {
		m.XMLName.Space = namespace
	}
	text, err := xml.Marshal(m)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(text)
}

// parseMark finds our element of the kind in the inner XML of a metadata element.
func parseMark(kind, inner string) (mark, bool) {
	d := xml.NewDecoder(strings.NewReader("<metadata>" + inner + "</metadata>"))
	for {
		token, err := d.Token()
		if err != nil {
			return mark{}, false
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != kind || e.Name.Space != namespace && e.Name.Space != "" {
			continue
		}
		var m mark
		if err := d.DecodeElement(&m, &e); err != nil {
			return mark{}, false
		}
		return m, true
	}
}
