package selector

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelSelector is the selector of the same Nodes; nil: all of them. The error
// says why there is none.
func (e Expr) LabelSelector() (*metav1.LabelSelector, error) {
	work := budget(maxWork)
	terms, err := work.termsOf(e, false)
	if err != nil {
		return nil, err
	}
	if len(terms) == 0 {
		return nil, errors.New("it selects no node")
	}
	plain, err := work.withoutPatterns(terms)
	if err != nil {
		return nil, err
	}
	whole := hull(plain)
	covered, err := work.covered(whole, plain)
	if err != nil {
		return nil, err
	}
	if !covered {
		return nil, fmt.Errorf("it selects a union of nodes (%s), and a PodIPPool's nodeSelector is one conjunction", describe(plain))
	}
	return whole.selector()
}

// withoutPatterns leaves out terms with patterns if the others select the same nodes anyway.
func (b *budget) withoutPatterns(terms []term) ([]term, error) {
	var plain, patterned []term
	for _, t := range terms {
		if t.patterned() {
			patterned = append(patterned, t)
		} else {
			plain = append(plain, t)
		}
	}
	for _, t := range patterned {
		covered, err := b.covered(t.relaxed(), plain)
		if err != nil {
			return nil, err
		}
		if !covered {
			return nil, errors.New("it looks into values (contains, starts with, ends with), which no label selector does")
		}
	}
	return plain, nil
}

// selector writes t as a label selector, sorted by key.
func (t term) selector() (*metav1.LabelSelector, error) {
	if len(t) == 0 {
		return nil, nil
	}
	s := &metav1.LabelSelector{}
	require := func(key string, op metav1.LabelSelectorOperator, values ...string) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values})
	}
	for _, key := range t.keys() {
		c := t[key]
		values := c.sorted()
		switch {
		case c.only && c.absent && len(values) > 0:
			return nil, fmt.Errorf("it selects nodes where %s, which is two conjunctions, and a PodIPPool's nodeSelector is one", c.describe(key))
		case c.only && c.absent:
			require(key, metav1.LabelSelectorOpDoesNotExist)
		case c.only && len(values) == 1:
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[key] = values[0]
		case c.only:
			require(key, metav1.LabelSelectorOpIn, values...)
		default:
			if !c.absent {
				require(key, metav1.LabelSelectorOpExists)
			}
			if len(values) > 0 {
				require(key, metav1.LabelSelectorOpNotIn, values...)
			}
		}
	}
	return s, nil
}

// describe describes the nodes that terms select, for people: the first few.
func describe(terms []term) string {
	const most = 4
	var union []string
	for i, t := range terms {
		if i == most {
			union = append(union, fmt.Sprintf("%d more", len(terms)-most))
			break
		}
		var texts []string
		for _, key := range t.keys() {
			texts = append(texts, t[key].describe(key))
		}
		union = append(union, strings.Join(texts, " and "))
	}
	return strings.Join(union, "; or ")
}

func (c constraint) describe(key string) string {
	values := strings.Join(c.sorted(), ", ")
	if c.only && c.absent && values == "" {
		return key + " is missing"
	}
	if c.only && c.absent {
		return fmt.Sprintf("%s is missing or one of {%s}", key, values)
	}
	if c.only {
		return fmt.Sprintf("%s is one of {%s}", key, values)
	}
	if values == "" {
		return key + " is there"
	}
	if c.absent {
		return fmt.Sprintf("%s is missing or none of {%s}", key, values)
	}
	return fmt.Sprintf("%s is there and none of {%s}", key, values)
}
