package crd

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The owner of an address is whom it is kept for: the pods of one name, one after the other, or the pods with one
// value of a label. It is written as namespace/name or namespace/key=value, so it tells from the name of a node.

// OwnerByName returns the owner of pods of one name.
func OwnerByName(namespace, name string) string { return namespace + "/" + name }

// OwnerByLabel returns the owner of pods with one value of a label.
func OwnerByLabel(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// IsOwner reports whether a pin is for an owner, not for a node: no name of a node contains a slash.
func IsOwner(of string) bool { return strings.Contains(of, "/") }

// SplitOwner returns the parts of an owner: key is "" if it is of pods of one name, else value is that of the label.
func SplitOwner(owner string) (namespace, key, value string) {
	namespace, rest, _ := strings.Cut(owner, "/")
	if key, value, byLabel := strings.Cut(rest, "="); byLabel {
		return namespace, key, value
	}
	return namespace, "", rest
}

// OwnerWords names an owner in messages: pod web-0, or the pods with app=db, of its namespace.
func OwnerWords(owner string) string {
	namespace, key, value := SplitOwner(owner)
	if key == "" {
		return "pod " + owner
	}
	return fmt.Sprintf("pods with %s=%s in %s", key, value, namespace)
}

// The names of the Cilium pools of single owners have this prefix and one of these suffixes. PodIPPools cannot use
// the suffixes. Agents list their pools by name, and the first CIDR of the list is the primary one of the node: a
// change of it regenerates all endpoints of the node (pkg/k8s/node.go, ParseCiliumNode, v1.20.2). So the prefix sorts
// after the pools that agents have their own addresses from.
const (
	ownerPoolPrefix = "zz."
	podPoolSuffix   = ".pods.cilium-pool.io"
	labelPoolSuffix = ".labels.cilium-pool.io"
)

// oldPodPoolSuffix ends the names that earlier operators chose. They have no prefix.
const oldPodPoolSuffix = ".pod.cilium-pool.io"

// labelName is what the names of objects can hold of a label's key or value.
var labelName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// IsOwnerValue reports whether the value of a label can be an owner: the name of a Cilium pool contains it.
func IsOwnerValue(value string) bool { return labelName.MatchString(value) }

// CiliumPoolOfOwner returns the Cilium pool for the addresses of an owner. That of a label ends in the number of parts
// before and behind the slash of its key, so that OwnerOfPool can read it:
// zz.db.shop.vm.kubevirt.io.name.3-1.labels.cilium-pool.io.
func CiliumPoolOfOwner(owner string) string {
	namespace, key, value := SplitOwner(owner)
	if key == "" {
		return ownerPoolPrefix + value + "." + namespace + podPoolSuffix
	}
	before := 0
	domain, name, hasDomain := strings.Cut(key, "/")
	if hasDomain {
		before = parts(domain)
	} else {
		name = domain
	}
	path := strings.Join([]string{value, namespace, strings.ReplaceAll(key, "/", ".")}, ".")
	return fmt.Sprintf("%s%s.%d-%d%s", ownerPoolPrefix, path, before, parts(name), labelPoolSuffix)
}

func parts(name string) int { return strings.Count(name, ".") + 1 }

// OldCiliumPoolOfOwner returns the name that earlier operators chose for CiliumPoolOfOwner; "": they knew no such owner.
func OldCiliumPoolOfOwner(owner string) string {
	namespace, key, name := SplitOwner(owner)
	if key != "" {
		return ""
	}
	return name + "." + namespace + oldPodPoolSuffix
}

// OwnerOfPool returns the owner that a Cilium pool is for; "": it is for no single one. The name of a namespace has no
// dot.
func OwnerOfPool(ciliumPool string) string {
	if rest, ok := strings.CutSuffix(ciliumPool, oldPodPoolSuffix); ok {
		return podOwner(rest)
	}
	current, prefixed := strings.CutPrefix(ciliumPool, ownerPoolPrefix)
	if !prefixed {
		return ""
	}
	if rest, ok := strings.CutSuffix(current, podPoolSuffix); ok {
		return podOwner(rest)
	}
	if rest, ok := strings.CutSuffix(current, labelPoolSuffix); ok {
		return labelOwner(strings.Split(rest, "."))
	}
	return ""
}

// podOwner reads name.namespace.
func podOwner(path string) string {
	i := strings.LastIndexByte(path, '.')
	if i < 1 || i == len(path)-1 {
		return ""
	}
	return OwnerByName(path[i+1:], path[:i])
}

// labelOwner reads the parts of value.namespace.key.before-behind.
func labelOwner(path []string) string {
	last := len(path) - 1
	first, second, _ := strings.Cut(path[last], "-")
	before, beforeErr := strconv.Atoi(first)
	behind, behindErr := strconv.Atoi(second)
	namespace := last - before - behind - 1 // its place in path
	if beforeErr != nil || behindErr != nil || before < 0 || behind < 1 || namespace < 1 {
		return ""
	}
	key := strings.Join(path[last-behind:last], ".")
	if before > 0 {
		key = strings.Join(path[namespace+1:last-behind], ".") + "/" + key
	}
	return OwnerByLabel(path[namespace], key, strings.Join(path[:namespace], "."))
}
