// Command chartdocs writes the table of a chart's values into its README.md, from the comments in
// values.yaml. The content of a
// value of an open shape (a map without properties in values.schema.json) is not taken apart.
//
//	chartdocs charts/cilium-pool-operator
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The table stands between these lines of the README.
const begin, end = "<!-- values: begin -->\n", "<!-- values: end -->\n"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chartdocs CHART")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chartdocs:", err)
		os.Exit(1)
	}
}

func run(chart string) error {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	schema, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return err
	}
	rows, err := table(values, schema)
	if err != nil {
		return err
	}
	path := filepath.Join(chart, "README.md")
	readme, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	written, err := insert(string(readme), rows)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(written), 0o644)
}

func insert(readme, rows string) (string, error) {
	before, rest, ok := strings.Cut(readme, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("no lines %q and %q to write between", begin, end)
	}
	return before + begin + rows + end + after, nil
}

// property holds the needed fields of a JSON schema.
type property struct {
	Properties map[string]*property
}

// table is one row for each value that has a default of its own, and for each
// group of values that has a comment.
func table(values, schema []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return "", err
	}
	if len(doc.Content) == 0 {
		return "", errors.New("no values")
	}
	root := &property{}
	if err := json.Unmarshal(schema, root); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	if err := rows(&b, "", doc.Content[0], root); err != nil {
		return "", err
	}
	return b.String(), nil
}

func rows(b *strings.Builder, parent string, values *yaml.Node, schema *property) error {
	var missing []error
	for i := 0; i < len(values.Content); i += 2 {
		key, value := values.Content[i], values.Content[i+1]
		path := strings.TrimPrefix(parent+"."+key.Value, ".")
		known := schema.Properties[key.Value]
		if known == nil {
			return fmt.Errorf("values.schema.json does not know %s", path)
		}
		meaning := comment(key)
		if value.Kind != yaml.MappingNode || len(known.Properties) == 0 || len(value.Content) == 0 {
			if meaning == "" {
				meaning = said[key.Value]
			}
			if meaning == "" {
				missing = append(missing, fmt.Errorf("values.yaml: no comment says what %s is", path))
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, preset(value), meaning)
			continue
		}
		if meaning != "" {
			fmt.Fprintf(b, "| **%s** | | %s |\n", path, meaning)
		}
		missing = append(missing, rows(b, path, value, known))
	}
	return errors.Join(missing...)
}

// said are words for values that need no comment in values.yaml.
var said = map[string]string{
	"enabled": "Make it.", "create": "Make it.", "labels": "Its labels.", "annotations": "Its annotations.",
}

// comment is the text above a key, in one line.
func comment(key *yaml.Node) string {
	text := key.HeadComment
	// A paragraph before an empty line is about all of the following values.
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	var words []string
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "#")
		if strings.TrimSpace(line) == "" {
			break // the rest is an example
		}
		words = append(words, strings.Fields(line)...)
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// preset is how a default is shown.
func preset(value *yaml.Node) string {
	switch {
	case value.Kind == yaml.ScalarNode && value.Value == "":
		return "`\"\"`"
	case value.Kind == yaml.ScalarNode:
		return "`" + value.Value + "`"
	case len(value.Content) == 0 && value.Kind == yaml.SequenceNode:
		return "`[]`"
	case len(value.Content) == 0:
		return "`{}`"
	}
	return "see values.yaml"
}
