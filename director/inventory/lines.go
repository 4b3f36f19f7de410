package inventory

import (
	"bytes"
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"
)

// lines returns "name: value" of each variable as YAML, in the order of the names. All of them go through one encoder:
// making one costs more than a value does.
func lines(values map[string]any, names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	list := make([]any, len(names))
	for i, name := range names {
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("the template names %s, which is no variable", name)
		}
		list[i] = value
	}
	var encoded yaml.Node
	if err := encoded.Encode(list); err != nil {
		return "", err
	}
	mapping := yaml.Node{Kind: yaml.MappingNode}
	for i, value := range encoded.Content {
		mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: names[i]}, value)
	}
	literal(&mapping)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(&mapping)
	return out.String(), errors.Join(err, encoder.Close())
}

// literal marks the strings below n that Ansible would take for templates.
func literal(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && jinja.MatchString(n.Value) {
		n.Tag = "!unsafe"
		n.Style = yaml.DoubleQuotedStyle | yaml.TaggedStyle
	}
	for _, child := range n.Content {
		literal(child)
	}
}
