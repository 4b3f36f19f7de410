package api

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director/wire"
)

// The description has no word for the parts of a stream. These stand next to the schema of its text.
const (
	extMessages = "x-messages" // of an event stream: the schema of the data of each type of message
	extLines    = "x-lines"    // of lines of JSON: the schema of a line
)

// sends says what the messages of the operation's event stream are, by their types.
func sends(op huma.Operation, messages map[string]*huma.Schema) huma.Operation {
	op.Responses["200"].Content[typeEvents].Schema.Extensions = map[string]any{extMessages: messages}
	return op
}

// linesResponse is an answer of lines of JSON that each fit one of the schemas.
func linesResponse(of ...*huma.Schema) map[string]*huma.Response {
	line := of[0]
	if len(of) > 1 {
		line = &huma.Schema{OneOf: of}
	}
	out := textResponse(typeLines, "Lines of JSON.")
	out["200"].Content[typeLines].Schema.Extensions = map[string]any{extLines: line}
	return out
}

// describeRecords says what the record of a line of a log is: it has the fields of its type besides.
func describeRecords(api huma.API) {
	record, line := schemaOf[wire.LogRecord](api), schemaOf[wire.LogLine](api)
	all := api.OpenAPI().Components.Schemas
	all.SchemaFromRef(record.Ref).AdditionalProperties = true
	field := all.SchemaFromRef(line.Ref).Properties["record"]
	field.Ref = record.Ref
}
