package wire

import (
	"encoding/json"
	"errors"
	"strconv"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Store is an API server with one CiliumNode, and a watch of it that shows a version on request only. It is not
// safe for concurrent use.
type Store struct {
	// Node is the stored object, or nil if there is none.
	Node *ciliumv2.CiliumNode
	// Refuse is the error of the next write: "conflict", "error", or none.
	Refuse string
	// Shown is the version that the watch has shown last; nil: none, or a deletion.
	Shown *ciliumv2.CiliumNode

	version int
	unseen  []Version
}

// Version is a version of the object that the watch shows.
type Version struct {
	Node    *ciliumv2.CiliumNode
	Deleted bool
}

// Put writes as any client but the agent does: unconditionally, and the status too.
func (s *Store) Put(cn *ciliumv2.CiliumNode) { s.commit(cn.DeepCopy()) }

// Delete deletes the object, if there is one.
func (s *Store) Delete() {
	if s.Node != nil {
		s.unseen = append(s.unseen, Version{s.Node, true})
		s.Node = nil
	}
}

// commit stores a version, unless it equals the last one.
func (s *Store) commit(cn *ciliumv2.CiliumNode) {
	if s.Node != nil {
		cn.ResourceVersion = s.Node.ResourceVersion
		if JSON(cn) == JSON(s.Node) {
			return
		}
	}
	s.version++
	cn.ResourceVersion = strconv.Itoa(s.version)
	s.Node = &ciliumv2.CiliumNode{}
	if err := json.Unmarshal([]byte(JSON(cn)), s.Node); err != nil {
		panic(err) // It was just marshaled.
	}
	s.unseen = append(s.unseen, Version{s.Node, false})
}

// JSON returns a CiliumNode as a text.
func JSON(cn *ciliumv2.CiliumNode) string {
	text, err := json.Marshal(cn)
	if err != nil {
		panic(err) // CiliumNodes can be marshaled.
	}
	return string(text)
}

// Write writes as the agent does: the status, or everything else, and conditionally.
func (s *Store) Write(cn *ciliumv2.CiliumNode, status bool) (*ciliumv2.CiliumNode, error) {
	refuse := s.Refuse
	s.Refuse = ""
	nodes := schema.GroupResource{Group: "cilium.io", Resource: "ciliumnodes"}
	switch {
	case refuse == "error":
		return nil, errors.New("refused by the test")
	case s.Node == nil:
		return nil, apierrors.NewNotFound(nodes, cn.Name)
	case refuse == "conflict", cn.ResourceVersion != s.Node.ResourceVersion:
		return nil, apierrors.NewConflict(nodes, cn.Name, errors.New("the object has been modified"))
	}
	next := cn.DeepCopy()
	if status {
		next = s.Node.DeepCopy()
		cn.Status.DeepCopyInto(&next.Status)
	} else {
		s.Node.Status.DeepCopyInto(&next.Status)
	}
	s.commit(next)
	return s.Node.DeepCopy(), nil
}

// See returns the next version that the watch has not shown, or only the last of them.
func (s *Store) See(last bool) (v Version, any bool) {
	if len(s.unseen) == 0 {
		return v, false
	}
	if last {
		s.unseen = s.unseen[len(s.unseen)-1:]
	}
	v, s.unseen = s.unseen[0], s.unseen[1:]
	s.Shown = v.Node
	if v.Deleted {
		s.Shown = nil
	}
	return v, true
}

// Restart makes the watch of another agent show the stored object.
func (s *Store) Restart() {
	s.Shown = nil
	s.unseen = nil
	if s.Node != nil {
		s.unseen = []Version{{s.Node, false}}
	}
}
