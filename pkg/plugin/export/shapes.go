package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

func shapes() map[string]shape {
	return map[string]shape{
		"json":   func(w io.Writer, rows []prefixRow) error { return output.WriteJSON(w, rows) },
		"csv":    writeCSV,
		"bird":   writeBIRD,
		"frr":    writeFRR,
		"netbox": writeNetBox,
	}
}

func writeCSV(w io.Writer, rows []prefixRow) error {
	c := csv.NewWriter(w)
	// Error returns any write error at the end.
	_ = c.Write([]string{"prefix", "node", "next_hop", "pool", "phase"})
	for _, r := range rows {
		_ = c.Write([]string{r.Prefix, r.Node, r.NextHop, r.Pool, r.Phase})
	}
	c.Flush()
	return c.Error()
}

// writeBIRD writes static protocols for BIRD 2 and 3. A prefix without a next hop becomes a
// comment.
func writeBIRD(w io.Writer, rows []prefixRow) error {
	var s strings.Builder
	for _, family := range []struct{ channel, sign string }{{"ipv4", "."}, {"ipv6", ":"}} {
		fmt.Fprintf(&s, "protocol static cilium_pool_%s {\n  %s;\n", family.channel, family.channel)
		for _, r := range rows {
			switch {
			case !strings.Contains(r.Prefix, family.sign):
			case r.NextHop == "":
				fmt.Fprintf(&s, "  # %s: node %s has no address of this family\n", r.Prefix, r.Node)
			default:
				fmt.Fprintf(&s, "  route %s via %s; # %s\n", r.Prefix, r.NextHop, r.Node)
			}
		}
		s.WriteString("}\n")
	}
	_, err := io.WriteString(w, s.String())
	return err
}

func writeFRR(w io.Writer, rows []prefixRow) error {
	var s strings.Builder
	for _, r := range rows {
		command := "ip route"
		if strings.Contains(r.Prefix, ":") {
			command = "ipv6 route"
		}
		if r.NextHop == "" {
			fmt.Fprintf(&s, "! %s: node %s has no address of this family\n", r.Prefix, r.Node)
			continue
		}
		fmt.Fprintf(&s, "! node %s\n%s %s %s\n", r.Node, command, r.Prefix, r.NextHop)
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// netBoxPrefix is the form that NetBox 4 accepts at /api/ipam/prefixes/.
type netBoxPrefix struct {
	Prefix      string `json:"prefix"`
	Status      string `json:"status"`
	Description string `json:"description"`
	IsPool      bool   `json:"is_pool"`
}

func writeNetBox(w io.Writer, rows []prefixRow) error {
	out := []netBoxPrefix{}
	for _, r := range rows {
		p := netBoxPrefix{Prefix: r.Prefix, Status: "active", Description: fmt.Sprintf("pods of node %s, pool %s", r.Node, r.Pool), IsPool: true}
		if r.Phase != ipalloc.InService.String() {
			p.Status = "deprecated"
		}
		out = append(out, p)
	}
	return output.WriteJSON(w, out)
}
