package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"gopkg.in/yaml.v3"
)

var errNoValue = errors.New("a value is missing")

// jsonNode reads one JSON value into the nodes that the parser of YAML makes of it, in a tenth of its time. It returns
// false for what is no JSON.
func jsonNode(text []byte) (*yaml.Node, bool) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	n, err := nodeOf(dec)
	if err != nil {
		return nil, false
	}
	_, err = dec.Token()
	return n, errors.Is(err, io.EOF)
}

func nodeOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Line: 1}
	}
	switch v := token.(type) {
	case nil:
		return scalar("!!null", "null"), nil
	case string:
		n := scalar("!!str", v)
		n.Style = yaml.DoubleQuotedStyle
		return n, nil
	case json.Number:
		_, signed := strconv.ParseInt(v.String(), 10, 64)
		_, unsigned := strconv.ParseUint(v.String(), 10, 64)
		if signed != nil && unsigned != nil { // also a whole number that is too large
			return scalar("!!float", v.String()), nil
		}
		return scalar("!!int", v.String()), nil
	case bool:
		if v {
			return scalar("!!bool", "true"), nil
		}
		return scalar("!!bool", "false"), nil
	case json.Delim:
		return branchOf(dec, v)
	}
	return nil, errNoValue
}

// branchOf reads a list or a mapping that has begun.
func branchOf(dec *json.Decoder, begin json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle, Line: 1}
	if begin == '[' {
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	}
	for dec.More() {
		child, err := nodeOf(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err := dec.Token() // its end
	return n, err
}
