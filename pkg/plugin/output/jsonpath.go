package output

import (
	"encoding/json"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

func parseJSONPath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, Usagef("--output is jsonpath=%s: %w", template, err)
	}
	return path, nil
}

// printJSONPath executes a template as kubectl does: a list is in .items.
func printJSONPath(w io.Writer, rows any, template string) error {
	path, err := parseJSONPath(template)
	if err != nil {
		return err
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(body, &data); err != nil {
		return err
	}
	if list, ok := data.([]any); ok {
		data = map[string]any{"items": list}
	}
	return path.Execute(w, data)
}
