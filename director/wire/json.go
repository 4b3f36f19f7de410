package wire

import (
	"io"

	json "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "github.com/go-json-experiment/json/v1"
)

// asJSON is how values of the API are written: as encoding/json does, but a list without items is [], never null, and
// an object without members {}, never null, so that readers need not look twice.
var asJSON = json.JoinOptions(v1.DefaultOptionsV1(), json.FormatNilSliceAsNull(false), json.FormatNilMapAsNull(false))

// Marshal returns a value of the API as JSON. A list without items is [], an object without members {}.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, asJSON) }

// MarshalIndent is Marshal for people: indented by two spaces.
func MarshalIndent(v any) ([]byte, error) { return json.Marshal(v, asJSON, jsontext.WithIndent("  ")) }

// MarshalWrite writes what Marshal returns, and a line break.
func MarshalWrite(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, asJSON); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
