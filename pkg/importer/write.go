package importer

import (
	"bytes"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteYAML writes the pools as kubectl applies them. Comments name the source of
// each, and its remarks. About is the comment at the top.
func (r *Result) WriteYAML(w io.Writer, about string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", oneLine(about))
	for _, m := range r.Remarks {
		if m.Pool == "" {
			fmt.Fprintf(&b, "# %s\n", m)
		}
	}
	for i, p := range r.Pools {
		if i > 0 {
			fmt.Fprintln(&b, "---")
		}
		fmt.Fprintf(&b, "# From %s.\n", p.From)
		for _, m := range r.Remarks {
			if m.Pool == p.Object.Name {
				fmt.Fprintf(&b, "# %s\n", m.comment())
			}
		}
		body, err := yaml.Marshal(&p.Object)
		if err != nil {
			return err
		}
		b.Write(body)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// comment returns the remark for a place that already names the object.
func (m Remark) comment() string {
	if m.Lost {
		return oneLine("Not carried over: " + m.what())
	}
	return oneLine("Note: " + m.what())
}
