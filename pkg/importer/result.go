package importer

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// WithholdLabel is the label that the nodeSelector of a pool requires where its nodes or
// pods could not be carried over; its value is the pool's name. Until a user labels
// nodes, such a pool serves none.
const WithholdLabel = "cilium-pool.io/import"

// Result is the result of an import.
type Result struct {
	// Pools are valid, and have unique names.
	Pools   []Pool
	Remarks []Remark
	// wholeBlocks: agents will be assigned whole blocks.
	wholeBlocks bool
}

// Pool is a PodIPPool and the objects that it was converted from.
type Pool struct {
	Object v1alpha1.PodIPPool
	From   string
}

// Remark reports the fate of a field.
type Remark struct {
	// Lost: it could not be carried over. Otherwise it was, and the remark is a note.
	Lost bool
	// Object is where the field is, and Source where the object comes from.
	Object, Source string
	// Field is the path within the object, with its value if that helps.
	Field string
	// Reason is the cause, Fix the remedy.
	Reason, Fix string
	// Pool is the pool concerned; empty: none, or all.
	Pool string
}

func (r Remark) String() string {
	kind := "note"
	if r.Lost {
		kind = "not carried over"
	}
	subject := r.Object
	if r.Source != "" {
		subject += " (" + r.Source + ")"
	}
	return oneLine(fmt.Sprintf("%s: %s: %s", kind, subject, r.what()))
}

// what returns the remark without the object.
func (r Remark) what() string {
	s := r.Reason
	if r.Field != "" {
		s = r.Field + ": " + s
	}
	if r.Fix != "" {
		s += ". " + r.Fix
	}
	return s
}

// CountLost counts the settings that could not be carried over.
func (r *Result) CountLost() int {
	n := 0
	for _, m := range r.Remarks {
		if m.Lost {
			n++
		}
	}
	return n
}

// draft is a pool under construction, and where remarks on it go.
type draft struct {
	result *Result
	source Object
	pool   v1alpha1.PodIPPool
	also   []string // other objects that it is made from
}

// newDraft begins a pool with the name of o, or a similar valid one.
func newDraft(result *Result, o Object, name string) *draft {
	d := &draft{result: result, source: o}
	d.pool.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodIPPool"}
	d.pool.Name = result.poolName(name)
	if d.pool.Name != name {
		d.note("metadata.name: "+name, "a PodIPPool of that name cannot be, or is there already: it is called "+d.pool.Name, "")
	}
	return d
}

func (d *draft) lost(field, reason, fix string) { d.remark(true, field, reason, fix) }
func (d *draft) note(field, reason, fix string) { d.remark(false, field, reason, fix) }

func (d *draft) remark(lost bool, field, reason, fix string) {
	d.result.Remarks = append(d.result.Remarks, Remark{
		Lost: lost, Object: d.source.String(), Source: d.source.Source, Field: field, Reason: reason, Fix: fix, Pool: d.pool.Name,
	})
}

// unknown remarks on unknown fields.
func (d *draft) unknown(prefix string, names []string) {
	for _, n := range names {
		d.lost(prefix+n, "this field is not known here", "See what it does, and whether you need it")
	}
}

// withhold makes the pool serve no node until nodes are labelled.
func (d *draft) withhold(field, reason string) {
	if d.pool.Spec.NodeSelector == nil {
		d.pool.Spec.NodeSelector = &metav1.LabelSelector{}
	}
	s := d.pool.Spec.NodeSelector
	if s.MatchLabels == nil {
		s.MatchLabels = map[string]string{}
	}
	s.MatchLabels[WithholdLabel] = d.pool.Name
	d.lost(field, reason, fmt.Sprintf("The pool serves no node: label those that are to have it %s=%s, or write its nodeSelector yourself", WithholdLabel, d.pool.Name))
}

// done adds the pool to the result.
func (d *draft) done() {
	if crd.HasSingleAddresses(&d.pool.Spec) && d.pool.Spec.CiliumPoolName == "" {
		d.pool.Spec.CiliumPoolName = crd.DefaultCiliumPool
		d.note("its block size", "each address becomes a block with a route of its own, which spec.ciliumPoolName allows", "")
	}
	source := d.source.String()
	if d.source.APIVersion != "" {
		source += " (" + d.source.APIVersion + ")"
	}
	if d.source.Source != "" {
		source += " of " + d.source.Source
	}
	source = strings.Join(append([]string{source}, d.also...), ", ")
	d.result.Pools = append(d.result.Pools, Pool{Object: d.pool, From: oneLine(source)})
}

// lost and note add remarks that concern no pool.
func (r *Result) lost(o Object, field, reason, fix string) {
	(&draft{result: r, source: o}).lost(field, reason, fix)
}

func (r *Result) note(o Object, field, reason, fix string) {
	(&draft{result: r, source: o}).note(field, reason, fix)
}

// poolName returns a valid and unused name for a PodIPPool: name if possible.
func (r *Result) poolName(name string) string {
	const most = 63
	base := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, strings.ToLower(name))
	base = strings.Trim(base[:min(len(base), most)], "-.")
	if len(validation.IsDNS1123Subdomain(base)) > 0 {
		base = "imported"
	}
	unique := base
	for n := 2; r.named(unique); n++ {
		end := fmt.Sprintf("-%d", n)
		unique = strings.TrimRight(base[:min(len(base), most-len(end))], "-.") + end
	}
	return unique
}

func (r *Result) named(name string) bool {
	return slices.ContainsFunc(r.Pools, func(p Pool) bool { return p.Object.Name == name })
}

// oneLine keeps text from files from breaking out of comments and lists.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// WriteYAML writes the pools as kubectl applies them. Comments name the source of each, and its
// remarks. The header is at the top, with the remarks on no pool, or on one that is left out.
func (r *Result) WriteYAML(w io.Writer, header string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", oneLine(header))
	for _, m := range r.Remarks {
		if !r.named(m.Pool) {
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
func (r Remark) comment() string {
	if r.Lost {
		return oneLine("Not carried over: " + r.what())
	}
	return oneLine("Note: " + r.what())
}

// usualBits returns the prefix length of blocks of 256 addresses, which replace blocks larger
// than a CiliumNode can list.
func usualBits(f ipalloc.Family) int { return f.Bits() - 8 }

// cidrs parses the CIDRs of one field, and remarks on invalid ones.
func (d *draft) cidrs(field string, texts []string) []netip.Prefix {
	var read []netip.Prefix
	for _, s := range texts {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil {
			d.lost(fmt.Sprintf("%s: %s", field, s), "is not a CIDR", "Add what was meant to the pool")
			continue
		}
		if p.Masked() != p {
			d.note(fmt.Sprintf("%s: %s", field, s), "has host bits set: taken for "+p.Masked().String(), "")
		}
		read = append(read, p.Masked())
	}
	return read
}

// add adds ranges of a family to the pool, cut into blocks of length bits.
func (d *draft) add(f ipalloc.Family, cidrs []netip.Prefix, bits int, edges v1alpha1.EdgeIPs) {
	var list []v1alpha1.PoolCIDR
	for _, c := range cidrs {
		list = append(list, v1alpha1.PoolCIDR{CIDR: c.String()})
	}
	if f == ipalloc.IPv4 {
		d.pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: list, BlockSize: int32(bits), EdgeIPs: edges}
	} else {
		d.pool.Spec.IPv6 = &v1alpha1.IPv6Ranges{CIDRs: list, BlockSize: int32(bits), EdgeIPs: edges}
	}
}

// blockBits returns bits, or the nearest length that a PodIPPool can have in the mode of the agents.
func (d *draft) blockBits(field string, f ipalloc.Family, bits int) int {
	shortest, longest := crd.BlockSizes(f, d.result.wholeBlocks)
	can := fmt.Sprintf("blockSize of a PodIPPool is from %d to %d in %s", shortest, longest, f)
	if !d.result.wholeBlocks {
		can += " and crd mode"
	}
	fix := "Change it before you apply if you want another: it is fixed while nodes hold blocks"
	field = fmt.Sprintf("%s: a /%d", field, bits)
	if bits < shortest {
		d.lost(field, fmt.Sprintf("%s: it is %d (%s), and nodes get more blocks as they need them", can, usualBits(f), f.SizeText(usualBits(f))), fix)
		return usualBits(f)
	}
	if bits > longest {
		d.lost(field, fmt.Sprintf("%s: it is %d (%s)", can, longest, f.SizeText(longest)), fix)
		return longest
	}
	return bits
}

// splitList splits a list that ConfigMaps and flags write as one string.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(", \t\n", c) })
}
